//! What threads do in a run: few operations each, on few keys, so that they meet.

use super::death::Death;
use super::policy::Policy;
use super::stage::{Ran, THREADS_MAX};
use crate::crash::{Dice, Key, Op, Plan, Target, Version};
use std::fmt;

/// One thing that a thread does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Act {
    /// An operation that may change the store.
    Do(Op),
    /// A read.
    Get(Key),
    /// A scan.
    Scan,
    /// A read of several keys at once.
    Snapshot(Vec<Key>),
    /// A question how many keys there are.
    Count,
    /// A collection of what a crash left to nobody.
    Collect,
    /// A look after the others: what the dead among them have left is taken back.
    LookAfter,
}

impl Act {
    /// The versions that it may write.
    fn written(&self) -> Vec<Version> {
        match self {
            Self::Do(op) => op.written().into_iter().map(|(_, version)| version).collect(),
            _ => Vec::new(),
        }
    }

    /// The keys that it may remove.
    pub(super) fn takes_away(&self) -> Vec<Key> {
        match self {
            Self::Do(op) => op.removed(),
            _ => Vec::new(),
        }
    }

    /// Whether it is work that nobody notices.
    fn is_background(&self) -> bool {
        matches!(self, Self::Do(Op::Background(_)))
    }

    /// The keys that it may change.
    pub(super) fn changes(&self) -> Vec<Key> {
        match self {
            Self::Do(op) => op.keys(),
            _ => Vec::new(),
        }
    }
}

impl fmt::Display for Act {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Do(op) => op.fmt(f),
            Self::Get(key) => write!(f, "get(k{key})"),
            Self::Scan => f.write_str("scan()"),
            Self::Snapshot(keys) => {
                let keys: Vec<String> = keys.iter().map(|key| format!("k{key}")).collect();
                write!(f, "snapshot({})", keys.join(", "))
            }
            Self::Count => f.write_str("count()"),
            Self::Collect => f.write_str("collect()"),
            Self::LookAfter => f.write_str("recover_dead()"),
        }
    }
}

/// A store, and what threads do to it.
#[derive(Clone, Debug)]
pub struct Scenario {
    /// The seed that target and store are made by, the keys, what is done before the threads start, and what is done after a crash.
    pub plan: Plan,
    /// What each thread does.
    pub threads: Vec<Vec<Act>>,
    /// What threads do before a first crash, where there are two.
    pub first: Vec<Vec<Act>>,
    /// The moment of that first crash; none if there is only one.
    pub moment: Option<u64>,
    /// Whether each thread is a participant by itself, with its own handle to a pool that all of them share.
    pub is_shared: bool,
    /// Who of them dies, where they are.
    pub deaths: Vec<Death>,
    /// How each thread goes from call to call, where it is not said, by the clock.
    pub manners: Vec<Manner>,
    /// Whether the store is killed and opened again before the threads start, one of which collects what that left.
    pub is_reopened: bool,
}

/// How a thread goes from one call to the next.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Manner {
    /// As one that tells others what it has done, and is told by them, as by a clock: with a barrier before and behind each call.
    #[default]
    ByClock,
    /// With nothing in between that orders anything: all that it has to know is what it was answered.
    Apart,
    /// The same, and under one pin for all calls.
    Pinned,
}

/// Operations of a thread at most.
const EACH: u64 = 4;
/// Operations of a thread where they crowd.
pub(super) const CROWD: u64 = 6;
/// Operations of a thread that does what a target's own history does.
const HISTORY: usize = 12;
/// Times that two keys take turns.
const EXCHANGES: u64 = 4;
/// Operations of a thread that fills the store.
const FILLING: u64 = 10;
/// Keys that threads meet at, at most.
const HOT: u64 = 3;

impl Scenario {
    /// What the run with this seed does: a part of the plan of the target before, operations like those of the rest by threads.
    pub fn draw<T: Target>(seed: u64) -> Self {
        let mut dice = Dice::new(seed ^ 0x7068_7561_6c6c_2121);
        let mut plan = T::plan(seed);
        plan.creation = false;
        plan.threads = THREADS_MAX;
        let mut all = std::mem::take(&mut plan.before);
        let like = plan.ops.clone();
        let wanted = dice.roll(like.len() as u64 + 1) as usize;
        all.extend(plan.ops.drain(..).take(wanted));
        plan.before = all;
        let mut versions = plan.all_versions();
        let threads = (2 + dice.roll(THREADS_MAX as u64 - 1)) as usize;
        let mut draw = |threads| draw_threads(&mut dice, &plan, &like, threads, &mut versions);
        let (threads, first) = (draw(threads), draw(2));
        Self {
            plan,
            threads,
            first,
            moment: None,
            is_shared: false,
            deaths: Vec::new(),
            manners: Vec::new(),
            is_reopened: false,
        }
    }

    /// Threads that do just this, each with its own clock, behind what the plan has before.
    pub fn of(mut plan: Plan, threads: Vec<Vec<Act>>) -> Self {
        (plan.creation, plan.threads) = (false, THREADS_MAX);
        Self {
            plan,
            threads,
            first: Vec::new(),
            moment: None,
            is_shared: false,
            deaths: Vec::new(),
            manners: Vec::new(),
            is_reopened: false,
        }
    }

    /// As [`Scenario::draw`], for a run that nothing happens to but that its threads meet: some of them scan, and then read a key that another one changes. What a scan has shown, no read may take back.
    pub fn draw_to_race<T: Target>(seed: u64) -> Self {
        let mut scenario = Self::draw::<T>(seed);
        let mut dice = Dice::new(seed ^ 0x0073_6565_6e21);
        let changed: Vec<Key> = scenario.threads.iter().flatten().flat_map(Act::changes).collect();
        for acts in scenario.threads.iter_mut().filter(|_| !changed.is_empty()) {
            if dice.roll(4) == 0 {
                let place = dice.roll(acts.len() as u64 + 1) as usize;
                acts.splice(place..place, [Act::Scan, Act::Get(*dice.pick(&changed))]);
            }
        }
        scenario.with_snapshots::<T>(seed)
    }

    /// As [`Scenario::draw`], for a run in which one or two threads take keys away and bring them back, so that what one had is another's soon, while others read just those.
    pub fn draw_crowd<T: Target>(seed: u64) -> Self {
        let mut scenario = Self::draw::<T>(seed);
        let mut dice = Dice::new(seed ^ 0x0063_726f_7764);
        let (plan, like) = (&scenario.plan, T::plan(seed).ops);
        let hot: Vec<Key> = (0..2 + dice.roll(2)).map(|_| dice.roll(plan.keys as u64) as Key).collect();
        let mut next = scenario
            .threads
            .iter()
            .flatten()
            .flat_map(Act::written)
            .max()
            .unwrap_or(0)
            .max(plan.all_versions());
        let mut known = Vec::new();
        let mut change = |dice: &mut Dice| {
            let key = *dice.pick(&hot);
            if like.is_empty() || dice.roll(2) == 0 {
                return Act::Do(Op::Remove(key));
            }
            let op = dice.pick(&like).moved_to(key, &mut next, &known, dice);
            known.extend(op.written());
            Act::Do(op)
        };
        let read = |dice: &mut Dice| match dice.roll(8) {
            0 => Act::Scan,
            _ => Act::Get(*dice.pick(&hot)),
        };
        let writers = 1 + dice.roll(T::WRITERS);
        scenario.threads = (0..writers + 1 + dice.roll(THREADS_MAX as u64 - 1 - writers))
            .map(|thread| {
                (0..CROWD)
                    .map(|_| if thread < writers { change(&mut dice) } else { read(&mut dice) })
                    .collect()
            })
            .collect();
        scenario.with_snapshots::<T>(seed)
    }

    /// As [`Scenario::draw`], for a run in which one thread takes a key away and puts another in its place, and back again, while others read the two, without a clock: where a table gives the slot of the one to the other, what they
    /// see of the slot must be of one of them.
    pub fn draw_exchange<T: Target>(seed: u64) -> Self {
        let mut scenario = Self::draw::<T>(seed);
        let mut dice = Dice::new(seed ^ 0x6578_6368);
        let keys = scenario.plan.keys as u64;
        let one = dice.roll(keys) as Key;
        let other = ((one as u64 + 1 + dice.roll(keys.saturating_sub(1).max(1))) % keys) as Key;
        let mut next = scenario.plan.all_versions();
        let mut put = |key| {
            next += 1;
            Op::Put(key, next)
        };
        scenario.plan.before.extend([put(one), Op::Remove(other)]);
        let mut exchanges: Vec<Op> = Vec::new();
        let _ = (0..EXCHANGES).fold((one, other), |(there, gone), _| {
            exchanges.extend([Op::Remove(there), put(gone)]);
            (gone, there)
        });
        let mut read = |_| match dice.roll(6) {
            0 => Act::Scan,
            number => Act::Get(if number < 4 { one } else { other }),
        };
        let readers = [0, 1].map(|_| (0..EXCHANGES).map(&mut read).collect());
        scenario.threads = [vec![exchanges.into_iter().map(Act::Do).collect()], readers.to_vec()].concat();
        let manner = if seed >> 9 & 1 == 0 { Manner::Pinned } else { Manner::Apart };
        scenario.manners = vec![Manner::Apart, manner, Manner::Apart];
        scenario
    }

    /// As [`Scenario::draw`], for a run in which one thread does what the target's own history does, which is made to evict, to move and to resize, while others read, without a clock.
    pub fn draw_history<T: Target>(seed: u64) -> Self {
        let mut scenario = Self::draw::<T>(seed);
        let mut dice = Dice::new(seed ^ 0x6869_7374);
        let plan = T::plan(seed);
        let history: Vec<Op> = plan.ops.into_iter().take(HISTORY).collect();
        scenario.plan.before = plan.before;
        let keys: Vec<Key> = history.iter().flat_map(Op::keys).collect();
        let mut read = |_| match dice.roll(4) {
            0 => Act::Scan,
            1 if !keys.is_empty() => Act::Get(*dice.pick(&keys)),
            _ => Act::Get(dice.roll(plan.keys as u64) as Key),
        };
        let readers = [0, 1].map(|_| (0..CROWD).map(&mut read).collect());
        scenario.threads = [vec![history.into_iter().map(Act::Do).collect()], readers.to_vec()].concat();
        let manner = if seed >> 9 & 1 == 0 { Manner::Pinned } else { Manner::Apart };
        scenario.manners = vec![Manner::Apart, manner, Manner::Apart];
        scenario
    }

    /// The same, where the store is killed and opened again in one run of four, if the pool is not shared.
    pub fn with_kill(mut self, seed: u64) -> Self {
        let mut dice = Dice::new(seed ^ 0x6b69_6c6c);
        if self.is_shared || dice.roll(4) != 0 {
            return self;
        }
        let thread = dice.roll(self.threads.len() as u64) as usize;
        let place = if dice.roll(2) == 0 { 0 } else { dice.roll(self.threads[thread].len() as u64 + 1) };
        self.threads[thread].insert(place as usize, Act::Collect);
        self.is_reopened = true;
        self
    }

    /// The same, where in three runs of four threads have no clock, some of them or all.
    pub fn with_manners(mut self, seed: u64) -> Self {
        // Chosen so that the runs of seeds that are kept stay what they were.
        let mut dice = Dice::new(seed ^ 0x6d61_6e6e_65a8);
        let (kind, is_reopened) = (dice.roll(4), self.is_reopened);
        let mut draw = |acts: &mut Vec<Act>| {
            let reads = acts.iter().all(|act| matches!(act, Act::Get(_) | Act::Scan | Act::Snapshot(_)));
            let manner = match kind {
                0 => Manner::ByClock,
                1 => Manner::Pinned,
                2 if reads => Manner::Pinned,
                2 => Manner::Apart,
                _ => [Manner::ByClock, Manner::Apart, Manner::Pinned][dice.roll(3) as usize],
            };
            let work = acts.iter().filter(|act| act.is_background()).count();
            // A collection waits for all who are pinned; and who is refused memory waits for the collection.
            let may_pin = reads || !(is_reopened || acts.contains(&Act::Collect) || 2 * work >= acts.len());
            match manner {
                Manner::Pinned if may_pin => acts.retain(|act| !act.is_background()),
                Manner::Pinned => return Manner::Apart,
                _ => {}
            }
            manner
        };
        self.manners = self.threads.iter_mut().map(&mut draw).collect();
        self
    }

    /// How a thread goes from call to call.
    pub fn manner(&self, thread: usize) -> Manner {
        self.manners.get(thread).copied().unwrap_or_default()
    }

    /// The threads whose calls no clock orders, a bit each.
    pub fn apart(&self) -> u8 {
        let is_apart = |&thread: &usize| self.manner(thread) != Manner::ByClock;
        (0..self.threads.len()).filter(is_apart).fold(0, |bits, thread| bits | 1 << thread)
    }

    /// As [`Scenario::draw_crowd`], for a run in which one or two threads fill the store, or empty it, until it grows or shrinks, while others read a few keys.
    pub fn draw_filling<T: Target>(seed: u64) -> Self {
        let mut scenario = Self::draw_crowd::<T>(seed);
        let mut dice = Dice::new(seed ^ 0x6669_6c6c_6e67);
        let keys = scenario.plan.keys as u64;
        let mut next = scenario.threads.iter().flatten().flat_map(Act::written).max().unwrap_or(0);
        next = next.max(scenario.plan.all_versions());
        let removes = dice.roll(3) == 0;
        let is_writer = |acts: &&mut Vec<Act>| acts.iter().any(|act| matches!(act, Act::Do(_)));
        for acts in scenario.threads.iter_mut().filter(is_writer) {
            let mut change = || {
                let key = dice.roll(keys) as Key;
                next += 1;
                let is_removal = dice.roll(8) < if removes { 7 } else { 1 };
                Act::Do(if is_removal { Op::Remove(key) } else { Op::Put(key, next) })
            };
            *acts = (0..FILLING).map(|_| change()).collect();
        }
        scenario
    }

    /// The same, where some of those who read a key read several at once, as far as the target can.
    fn with_snapshots<T: Target>(mut self, seed: u64) -> Self {
        let mut dice = Dice::new(seed ^ 0x736e_6170_7368);
        let mut hot: Vec<Key> = self.threads.iter().flatten().flat_map(Act::changes).collect();
        hot.sort_unstable();
        hot.dedup();
        if !T::SNAPSHOTS || hot.len() < 2 {
            return self;
        }
        for act in self.threads.iter_mut().flatten().filter(|act| matches!(act, Act::Get(_))) {
            if dice.roll(2) == 0 {
                let count = 2 + dice.roll(hot.len() as u64 - 1) as usize;
                (1..hot.len()).for_each(|nth| hot.swap(nth, dice.roll(nth as u64 + 1) as usize));
                *act = Act::Snapshot(hot[..count].to_vec());
            }
        }
        self
    }

    /// As [`Scenario::draw`], for participants of a shared pool. Who dies is [drawn](Scenario::draw_deaths) once it is known how long they live.
    pub fn draw_shared<T: Target>(seed: u64) -> Self {
        let mut scenario = Self { is_shared: true, ..Self::draw::<T>(seed) };
        let mut dice = Dice::new(seed ^ 0x6d6f_7274_616c);
        for acts in &mut scenario.threads {
            if dice.roll(4) == 0 {
                // Somebody collects while others die.
                let place = dice.roll(acts.len() as u64 + 1) as usize;
                acts.insert(place, if dice.roll(2) == 0 { Act::Collect } else { Act::LookAfter });
            }
        }
        scenario
    }

    /// The same, where some die. `ran` is the run with this seed in which nobody did.
    pub fn draw_deaths(&self, ran: &Ran, seed: u64) -> Self {
        let mut dice = Dice::new(seed ^ 0x6465_6174_6873);
        let changes = &ran.changes[..self.threads.len().min(ran.changes.len())];
        Self { deaths: Death::draw(&mut dice, changes), ..self.clone() }
    }

    /// As [`Scenario::draw_deaths`]; in most runs the first thread dies right behind a store with Release.
    pub fn draw_deaths_behind(&self, ran: &Ran, seed: u64) -> Self {
        let mut drawn = self.draw_deaths(ran, seed);
        let mut dice = Dice::new(seed ^ 0x6265_6869_6e64);
        if dice.roll(4) != 0
            && let Some(death) = Death::behind_order(&mut dice, &ran.ordered)
        {
            drawn.deaths = vec![death];
        }
        drawn
    }

    /// As [`Scenario::draw`], for a run that crashes: one in four has a first crash behind it, and one of its threads collects. In one in three somebody scans besides: what a scan has shown is durable, too.
    pub fn draw_to_crash<T: Target>(seed: u64) -> Self {
        let mut scenario = Self::draw::<T>(seed);
        let mut dice = Dice::new(seed ^ 0x7477_6963_6521);
        if dice.roll(4) == 0 {
            scenario.moment = Some(dice.bits() >> 1);
            if let Some(last) = scenario.threads.last_mut() {
                last.insert(0, Act::Collect);
            }
        }
        if dice.roll(3) == 0 {
            let thread = dice.roll(scenario.threads.len() as u64) as usize;
            let acts = &mut scenario.threads[thread];
            acts.insert(dice.roll(acts.len() as u64 + 1) as usize, Act::Scan);
        }
        scenario
    }

    /// How threads take turns before a first crash.
    pub fn first_policy(&self) -> Policy {
        let mut dice = Dice::new(self.plan.seed ^ self.moment.unwrap_or(0));
        Policy::draw(&mut dice, 128)
    }

    /// How the run with this seed goes.
    pub fn policy(seed: u64) -> Policy {
        let mut dice = Dice::new(seed ^ 0x6f72_6465_7221);
        let steps = 32 << dice.roll(6);
        Policy::draw(&mut dice, steps)
    }

    /// How many things are done.
    pub fn len(&self) -> usize {
        self.plan.before.len() + self.threads.iter().map(Vec::len).sum::<usize>()
    }

    /// Whether nothing is done.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The same with one thing less: something of a thread, or done before. Threads that do nothing are left out.
    pub fn shorter(&self) -> impl Iterator<Item = Self> + '_ {
        let of_threads = self.threads.iter().enumerate().flat_map(move |(thread, acts)| {
            (0..acts.len()).map(move |act| {
                let mut less = self.clone();
                less.threads[thread].remove(act);
                if less.is_shared {
                    // Who does nothing still looks after the others. Whoever dies does so in the same call as before.
                    let later = less.deaths.iter_mut().filter(|it| it.thread == thread && it.call > act);
                    later.for_each(|death| death.call -= 1);
                } else {
                    let all = less
                        .threads
                        .into_iter()
                        .enumerate()
                        .map(|(thread, acts)| (self.manner(thread), acts));
                    (less.manners, less.threads) = all.filter(|(_, acts)| !acts.is_empty()).unzip();
                }
                less
            })
        });
        let immortal = (0..self.deaths.len()).map(|death| {
            let mut less = self.clone();
            less.deaths.remove(death);
            less
        });
        let total = self.plan.before.len();
        let sizes = std::iter::successors(Some(total), |&size| (size > 1).then(|| size.div_ceil(2)));
        let ranges = sizes.flat_map(move |size| (0..total).step_by(size.max(1)).map(move |at| at..at + size));
        let before = ranges.map(move |range| {
            let mut less = self.clone();
            less.plan.before.drain(range.start..range.end.min(total));
            less
        });
        immortal.chain(of_threads).chain(before).filter(|less| !less.threads.is_empty())
    }
}

/// What `count` threads do in a store that has gone through `plan.before`, in operations like these.
pub(super) fn draw_threads(
    dice: &mut Dice,
    plan: &Plan,
    like: &[Op],
    count: usize,
    next: &mut Version,
) -> Vec<Vec<Act>> {
    let hot: Vec<Key> = (0..1 + dice.roll(HOT)).map(|_| dice.roll(plan.keys as u64) as Key).collect();
    let mut known: Vec<(Key, Version)> = Vec::new();
    let mut draw = |dice: &mut Dice| {
        let key = if dice.roll(4) == 0 { dice.roll(plan.keys as u64) as Key } else { *dice.pick(&hot) };
        match dice.roll(16) {
            0..4 => return Act::Get(key),
            4 => return Act::Scan,
            _ if like.is_empty() => return Act::Get(key),
            _ => {}
        }
        let op = dice.pick(like).moved_to(key, next, &known, dice);
        known.extend(op.written());
        Act::Do(op)
    };
    (0..count).map(|_| (0..1 + dice.roll(EACH)).map(|_| draw(dice)).collect()).collect()
}

impl Plan {
    /// A version that is higher than any of the plan.
    pub(super) fn all_versions(&self) -> Version {
        let ops = self.before.iter().chain(&self.ops);
        // The plan's last operations may be at the end of what a version can be.
        ops.flat_map(Op::written).map(|(_, version)| version).max().unwrap_or(0) + 0x1000
    }
}

impl Op {
    /// The keys that it may change.
    pub(crate) fn keys(&self) -> Vec<Key> {
        match self {
            Self::Put(key, _) | Self::Insert(key, _) | Self::Update(key, _) => vec![*key],
            Self::Remove(key) | Self::Swap(key, ..) => vec![*key],
            Self::Batch(effects) => effects.iter().map(|effect| effect.0).collect(),
            Self::Puts(puts) => puts.iter().map(|put| put.0).collect(),
            Self::Background(_) => Vec::new(),
        }
    }

    /// The versions that it may write.
    pub(super) fn written(&self) -> Vec<(Key, Version)> {
        match self {
            Self::Put(key, version) | Self::Insert(key, version) | Self::Update(key, version) => {
                vec![(*key, *version)]
            }
            Self::Swap(key, _, new) => new.iter().map(|&new| (*key, new)).collect(),
            Self::Batch(effects) => effects.iter().filter_map(|&(key, to)| Some((key, to?))).collect(),
            Self::Puts(puts) => puts.clone(),
            Self::Remove(_) | Self::Background(_) => Vec::new(),
        }
    }

    /// The keys that it may remove.
    pub(super) fn removed(&self) -> Vec<Key> {
        match self {
            Self::Remove(key) | Self::Swap(key, _, None) => vec![*key],
            Self::Batch(effects) => {
                effects.iter().filter(|(_, to)| to.is_none()).map(|&(key, _)| key).collect()
            }
            _ => Vec::new(),
        }
    }

    /// The same kind of operation on another key, with versions of its own. A swap expects one of the `known` versions of the key, or none.
    pub(super) fn moved_to(
        &self,
        key: Key,
        next: &mut Version,
        known: &[(Key, Version)],
        dice: &mut Dice,
    ) -> Self {
        let mut version = || {
            *next += 1;
            *next
        };
        match self {
            Self::Put(..) => Self::Put(key, version()),
            Self::Insert(..) => Self::Insert(key, version()),
            Self::Update(..) => Self::Update(key, version()),
            Self::Remove(_) => Self::Remove(key),
            Self::Swap(_, _, new) => {
                let of_key: Vec<Version> =
                    known.iter().filter(|known| known.0 == key).map(|known| known.1).collect();
                let expected = if of_key.is_empty() { None } else { Some(*dice.pick(&of_key)) };
                Self::Swap(key, expected, new.map(|_| version()))
            }
            Self::Batch(effects) => {
                let first = (key, effects.first().and_then(|first| first.1).map(|_| version()));
                let rest = effects.iter().skip(1).filter(|effect| effect.0 != key);
                let rest: Vec<_> = rest.map(|&(key, to)| (key, to.map(|_| version()))).collect();
                Self::Batch(std::iter::once(first).chain(rest).collect())
            }
            Self::Puts(puts) => {
                let rest = puts.iter().skip(1).filter(|put| put.0 != key);
                let keys = std::iter::once(key).chain(rest.map(|put| put.0));
                Self::Puts(keys.map(|key| (key, version())).collect())
            }
            Self::Background(step) => Self::Background(*step),
        }
    }
}
