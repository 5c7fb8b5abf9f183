//! The operations of the threads in a run: few each, on few keys, so that they conflict.

use super::death::ThreadCrash;
use super::drawn::random_threads;
use super::policy::Policy;
use super::stage::{RunResult, THREADS_MAX};
use crate::crash::{Key, Memory, Op, Plan, RandomSource, Subject, Target, Version};
use std::fmt;
use terrace_index::Direction;

/// An operation of a thread.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ThreadOp {
    /// An operation that may change the store.
    Do(Op),
    /// A read.
    Get(Key),
    /// A scan.
    Scan,
    /// A scan of a range of keys, both ends included.
    Range(Key, Key, Direction),
    /// A read of several keys at one instant.
    Snapshot(Vec<Key>),
    /// A count of the keys.
    Count,
    /// A collection of leaked memory.
    Collect,
    /// A recovery of dead processes.
    RecoverDead,
}

impl ThreadOp {
    /// The versions that this may write.
    fn written(&self) -> Vec<Version> {
        match self {
            Self::Do(op) => op.written().into_iter().map(|(_, version)| version).collect(),
            _ => Vec::new(),
        }
    }

    /// The keys that this may remove.
    pub(super) fn removes(&self) -> Vec<Key> {
        match self {
            Self::Do(op) => op.removed(),
            _ => Vec::new(),
        }
    }

    /// Whether this is invisible background work.
    fn is_background(&self) -> bool {
        matches!(self, Self::Do(Op::Background(_)))
    }

    /// The keys that this may change.
    pub(super) fn changes(&self) -> Vec<Key> {
        match self {
            Self::Do(op) => op.keys(),
            _ => Vec::new(),
        }
    }
}

impl fmt::Display for ThreadOp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Do(op) => op.fmt(f),
            Self::Get(key) => write!(f, "get(k{key})"),
            Self::Scan => f.write_str("scan()"),
            Self::Range(from, to, Direction::Forward) => write!(f, "range(k{from} to k{to})"),
            Self::Range(from, to, Direction::Backward) => write!(f, "range(k{to} back to k{from})"),
            Self::Snapshot(keys) => {
                let keys: Vec<String> = keys.iter().map(|key| format!("k{key}")).collect();
                write!(f, "snapshot({})", keys.join(", "))
            }
            Self::Count => f.write_str("count()"),
            Self::Collect => f.write_str("collect()"),
            Self::RecoverDead => f.write_str("recover_dead()"),
        }
    }
}

/// A store and the operations of the threads on it.
#[derive(Clone, Debug)]
pub struct Scenario {
    /// The seed of target and store, the keys, and the operations before the threads start and
    /// after a crash.
    pub plan: Plan,
    /// The operations of each thread.
    pub threads: Vec<Vec<ThreadOp>>,
    /// The operations of each thread before the first crash, if there are two crashes.
    pub first: Vec<Vec<ThreadOp>>,
    /// When that first crash happens; `None` if there is only one crash.
    pub moment: Option<u64>,
    /// Whether each thread is a participant with its own handle to a shared pool.
    pub is_shared: bool,
    /// Crashes of threads, in a shared pool.
    pub crashes: Vec<ThreadCrash>,
    /// How each thread proceeds from call to call; `ByClock` for threads beyond the end.
    pub manners: Vec<CallOrdering>,
    /// Whether the store is killed and reopened before the threads start. One of them then collects
    /// the leaked memory.
    pub is_reopened: bool,
}

/// How a thread proceeds from one call to the next.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CallOrdering {
    /// With a barrier before and after each call, as if threads communicated their results. Calls
    /// are ordered by time.
    #[default]
    ByClock,
    /// Without any ordering between calls: a thread knows only the answers that it got.
    Apart,
    /// As `Apart`, and under one pin for all calls.
    Pinned,
}

/// Number of operations of a thread in a crowded scenario.
pub(super) const CROWD: u64 = 6;
/// Maximum number of operations of a thread that runs the target's own history.
const HISTORY: usize = 12;
/// Number of times that two keys replace each other.
const EXCHANGES: u64 = 4;
/// Number of operations of a thread that fills the store.
const FILLING: u64 = 10;

impl Scenario {
    /// The scenario of this seed. Part of the target's plan runs before; the threads run operations
    /// like the rest of it.
    pub fn random<T: Target>(seed: u64) -> Self {
        let mut dice = RandomSource::new(seed ^ 0x7068_7561_6c6c_2121);
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
        let mut draw = |threads| random_threads(&mut dice, &plan, &like, threads, &mut versions);
        let (threads, first) = (draw(threads), draw(2));
        Self {
            plan,
            threads,
            first,
            moment: None,
            is_shared: false,
            crashes: Vec::new(),
            manners: Vec::new(),
            is_reopened: false,
        }
    }

    /// A scenario with exactly these operations, after the plan's earlier ones. Calls are ordered
    /// by time.
    pub fn of(mut plan: Plan, threads: Vec<Vec<ThreadOp>>) -> Self {
        (plan.creation, plan.threads) = (false, THREADS_MAX);
        Self {
            plan,
            threads,
            first: Vec::new(),
            moment: None,
            is_shared: false,
            crashes: Vec::new(),
            manners: Vec::new(),
            is_reopened: false,
        }
    }

    /// As [`Scenario::random`], for a run without crashes. Some threads scan and then read a key
    /// that another thread changes: no read may contradict an earlier scan.
    pub fn random_to_race<T: Target>(seed: u64) -> Self {
        let mut scenario = Self::random::<T>(seed);
        let mut dice = RandomSource::new(seed ^ 0x0073_6565_6e21);
        let changed: Vec<Key> = scenario.threads.iter().flatten().flat_map(ThreadOp::changes).collect();
        for acts in scenario.threads.iter_mut().filter(|_| !changed.is_empty()) {
            if dice.roll(4) == 0 {
                let place = dice.roll(acts.len() as u64 + 1) as usize;
                acts.splice(place..place, [ThreadOp::Scan, ThreadOp::Get(*dice.pick(&changed))]);
            }
        }
        scenario.with_snapshots::<T>(seed)
    }

    /// As [`Scenario::random`], but one or two threads remove and restore a few keys, so that
    /// memory is soon reused, while others read these keys.
    pub fn random_crowd<T: Target>(seed: u64) -> Self {
        let mut scenario = Self::random::<T>(seed);
        let mut dice = RandomSource::new(seed ^ 0x0063_726f_7764);
        let (plan, like) = (&scenario.plan, T::plan(seed).ops);
        let hot: Vec<Key> = (0..2 + dice.roll(2)).map(|_| plan.hot_key(&mut dice)).collect();
        let mut next = scenario
            .threads
            .iter()
            .flatten()
            .flat_map(ThreadOp::written)
            .max()
            .unwrap_or(0)
            .max(plan.all_versions());
        let mut known = Vec::new();
        let mut change = |dice: &mut RandomSource| {
            let key = *dice.pick(&hot);
            if like.is_empty() || dice.roll(2) == 0 {
                return ThreadOp::Do(Op::Remove(key));
            }
            let op = dice.pick(&like).moved_to(key, &mut next, &known, dice);
            known.extend(op.written());
            ThreadOp::Do(op)
        };
        let read = |dice: &mut RandomSource| match dice.roll(8) {
            0 => ThreadOp::Scan,
            _ => ThreadOp::Get(*dice.pick(&hot)),
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

    /// As [`Scenario::random`], but one thread alternates between two keys, removing one and adding
    /// the other, while others read both, with no barriers between calls. A table may give one
    /// key's slot to the other; a reader must not mix the two.
    pub fn random_exchange<T: Target>(seed: u64) -> Self {
        let mut scenario = Self::random::<T>(seed);
        let mut dice = RandomSource::new(seed ^ 0x6578_6368);
        let hot = scenario.plan.hot.clone();
        let keys = hot.len() as u64;
        let one = dice.roll(keys);
        let other = (one + 1 + dice.roll(keys.saturating_sub(1).max(1))) % keys;
        let [one, other] = [one, other].map(|key| hot.start + key as Key);
        let mut next = scenario.plan.all_versions();
        let mut put = |key| {
            next += 1;
            Op::Put(key, next)
        };
        scenario.plan.before.extend([put(one), Op::Remove(other)]);
        let mut exchanges: Vec<Op> = Vec::new();
        let _ = (0..EXCHANGES).fold((one, other), |(present, absent), _| {
            exchanges.extend([Op::Remove(present), put(absent)]);
            (absent, present)
        });
        let mut read = |_| match dice.roll(6) {
            0 => ThreadOp::Scan,
            number => ThreadOp::Get(if number < 4 { one } else { other }),
        };
        let readers = [0, 1].map(|_| (0..EXCHANGES).map(&mut read).collect());
        scenario.threads =
            [vec![exchanges.into_iter().map(ThreadOp::Do).collect()], readers.to_vec()].concat();
        let manner = if seed >> 9 & 1 == 0 { CallOrdering::Pinned } else { CallOrdering::Apart };
        scenario.manners = vec![CallOrdering::Apart, manner, CallOrdering::Apart];
        scenario
    }

    /// As [`Scenario::random`], but one thread runs the target's own history, which is made to
    /// evict, move and resize. Others read, with no barriers between calls.
    pub fn random_history<T: Target>(seed: u64) -> Self {
        let mut scenario = Self::random::<T>(seed);
        let mut dice = RandomSource::new(seed ^ 0x6869_7374);
        let plan = T::plan(seed);
        let history: Vec<Op> = plan.ops.into_iter().take(HISTORY).collect();
        scenario.plan.before = plan.before;
        let keys: Vec<Key> = history.iter().flat_map(Op::keys).collect();
        let mut read = |_| match dice.roll(4) {
            0 => ThreadOp::Scan,
            1 if !keys.is_empty() => ThreadOp::Get(*dice.pick(&keys)),
            _ => ThreadOp::Get(dice.roll(plan.keys as u64) as Key),
        };
        let readers = [0, 1].map(|_| (0..CROWD).map(&mut read).collect());
        scenario.threads = [vec![history.into_iter().map(ThreadOp::Do).collect()], readers.to_vec()].concat();
        let manner = if seed >> 9 & 1 == 0 { CallOrdering::Pinned } else { CallOrdering::Apart };
        scenario.manners = vec![CallOrdering::Apart, manner, CallOrdering::Apart];
        scenario
    }

    /// This scenario, but if the pool is not shared, the store is killed and reopened in one run of
    /// four.
    pub fn with_kill(mut self, seed: u64) -> Self {
        let mut dice = RandomSource::new(seed ^ 0x6b69_6c6c);
        if self.is_shared || dice.roll(4) != 0 {
            return self;
        }
        let thread = dice.roll(self.threads.len() as u64) as usize;
        let place = if dice.roll(2) == 0 { 0 } else { dice.roll(self.threads[thread].len() as u64 + 1) };
        self.threads[thread].insert(place as usize, ThreadOp::Collect);
        self.is_reopened = true;
        self
    }

    /// This scenario, but in three runs of four, some or all threads have no barriers between
    /// calls.
    pub fn with_manners(mut self, seed: u64) -> Self {
        // This constant was chosen so that the runs of recorded seeds stay as they were.
        let mut dice = RandomSource::new(seed ^ 0x6d61_6e6e_65a8);
        let (kind, is_reopened) = (dice.roll(4), self.is_reopened);
        let mut draw = |acts: &mut Vec<ThreadOp>| {
            let reads = acts.iter().all(|act| {
                matches!(act, ThreadOp::Get(_) | ThreadOp::Scan | ThreadOp::Range(..) | ThreadOp::Snapshot(_))
            });
            let manner = match kind {
                0 => CallOrdering::ByClock,
                1 => CallOrdering::Pinned,
                2 if reads => CallOrdering::Pinned,
                2 => CallOrdering::Apart,
                _ => {
                    [CallOrdering::ByClock, CallOrdering::Apart, CallOrdering::Pinned][dice.roll(3) as usize]
                }
            };
            let work = acts.iter().filter(|act| act.is_background()).count();
            // A collection waits for all pinned threads, and a thread that was refused memory waits
            // for the collection.
            let may_pin =
                reads || !(is_reopened || acts.contains(&ThreadOp::Collect) || 2 * work >= acts.len());
            match manner {
                CallOrdering::Pinned if may_pin => acts.retain(|act| !act.is_background()),
                CallOrdering::Pinned => return CallOrdering::Apart,
                _ => {}
            }
            manner
        };
        self.manners = self.threads.iter_mut().map(&mut draw).collect();
        self
    }

    /// How a thread proceeds from call to call.
    pub fn manner(&self, thread: usize) -> CallOrdering {
        self.manners.get(thread).copied().unwrap_or_default()
    }

    /// The threads whose calls are not ordered by time, one bit each.
    pub fn apart(&self) -> u8 {
        let is_apart = |&thread: &usize| self.manner(thread) != CallOrdering::ByClock;
        (0..self.threads.len()).filter(is_apart).fold(0, |bits, thread| bits | 1 << thread)
    }

    /// As [`Scenario::random_crowd`], but one or two threads fill or empty the store until it grows
    /// or shrinks, while others read a few keys.
    pub fn random_filling<T: Target>(seed: u64) -> Self {
        let mut scenario = Self::random_crowd::<T>(seed);
        let mut dice = RandomSource::new(seed ^ 0x6669_6c6c_6e67);
        let plan = &scenario.plan;
        let mut next = scenario.threads.iter().flatten().flat_map(ThreadOp::written).max().unwrap_or(0);
        next = next.max(plan.all_versions());
        let removes = dice.roll(3) == 0;
        let is_writer = |acts: &&mut Vec<ThreadOp>| acts.iter().any(|act| matches!(act, ThreadOp::Do(_)));
        for acts in scenario.threads.iter_mut().filter(is_writer) {
            let mut change = || {
                let key = plan.hot_key(&mut dice);
                next += 1;
                let is_removal = dice.roll(8) < if removes { 7 } else { 1 };
                ThreadOp::Do(if is_removal { Op::Remove(key) } else { Op::Put(key, next) })
            };
            *acts = (0..FILLING).map(|_| change()).collect();
        }
        scenario
    }

    /// This scenario, but some reads of one key become snapshots of several, if the target supports
    /// that.
    fn with_snapshots<T: Target>(mut self, seed: u64) -> Self {
        let mut dice = RandomSource::new(seed ^ 0x736e_6170_7368);
        let mut hot: Vec<Key> = self.threads.iter().flatten().flat_map(ThreadOp::changes).collect();
        hot.sort_unstable();
        hot.dedup();
        if !T::SNAPSHOTS || hot.len() < 2 {
            return self;
        }
        for act in self.threads.iter_mut().flatten().filter(|act| matches!(act, ThreadOp::Get(_))) {
            if dice.roll(2) == 0 {
                let count = 2 + dice.roll(hot.len() as u64 - 1) as usize;
                (1..hot.len()).for_each(|nth| hot.swap(nth, dice.roll(nth as u64 + 1) as usize));
                *act = ThreadOp::Snapshot(hot[..count].to_vec());
            }
        }
        self
    }

    /// This scenario, but if the store visits ranges of keys, most scans become ranges, as do some
    /// reads.
    pub fn with_ranges<T: Target>(mut self, seed: u64) -> Self {
        if !<T::Subject<Memory<false>> as Subject<Memory<false>>>::RANGES {
            return self;
        }
        let mut dice = RandomSource::new(seed ^ 0x7261_6e67_6573);
        for act in self.threads.iter_mut().chain(&mut self.first).flatten() {
            let is_range = match act {
                ThreadOp::Scan => dice.roll(4) != 0,
                ThreadOp::Get(_) => dice.roll(4) == 0,
                _ => false,
            };
            let mut end = || dice.roll(self.plan.keys as u64) as Key;
            let (one, other) = (end(), end());
            let direction = if dice.roll(2) == 0 { Direction::Forward } else { Direction::Backward };
            if is_range {
                *act = ThreadOp::Range(one.min(other), one.max(other), direction);
            }
        }
        self
    }

    /// As [`Scenario::random`], for participants of a shared pool. [`Scenario::random_crashes`]
    /// adds crashes once the lengths of the calls are known.
    pub fn random_shared<T: Target>(seed: u64) -> Self {
        let mut scenario = Self { is_shared: true, ..Self::random::<T>(seed) };
        let mut dice = RandomSource::new(seed ^ 0x6d6f_7274_616c);
        for acts in &mut scenario.threads {
            if dice.roll(4) == 0 {
                // One thread collects or recovers while others crash.
                let place = dice.roll(acts.len() as u64 + 1) as usize;
                acts.insert(place, if dice.roll(2) == 0 { ThreadOp::Collect } else { ThreadOp::RecoverDead });
            }
        }
        scenario
    }

    /// This scenario with crashes of threads. `ran` is the run of this seed without crashes.
    pub fn random_crashes(&self, ran: &RunResult, seed: u64) -> Self {
        let mut dice = RandomSource::new(seed ^ 0x6465_6174_6873);
        let changes = &ran.changes[..self.threads.len().min(ran.changes.len())];
        Self { crashes: ThreadCrash::random(&mut dice, changes), ..self.clone() }
    }

    /// As [`Scenario::random_crashes`], but in most runs one thread crashes right after a store
    /// with Release.
    pub fn random_crashes_after(&self, ran: &RunResult, seed: u64) -> Self {
        let mut drawn = self.random_crashes(ran, seed);
        let mut dice = RandomSource::new(seed ^ 0x6265_6869_6e64);
        if dice.roll(4) != 0
            && let Some(death) = ThreadCrash::after_ordered_store(&mut dice, &ran.ordered)
        {
            drawn.crashes = vec![death];
        }
        drawn
    }

    /// As [`Scenario::random`], for a run with a power failure. One in four has an earlier crash,
    /// and a thread that collects. In one in three a thread also scans: the result of a scan must
    /// be durable, too.
    pub fn random_to_crash<T: Target>(seed: u64) -> Self {
        let mut scenario = Self::random::<T>(seed);
        let mut dice = RandomSource::new(seed ^ 0x7477_6963_6521);
        if dice.roll(4) == 0 {
            scenario.moment = Some(dice.bits() >> 1);
            if let Some(last) = scenario.threads.last_mut() {
                last.insert(0, ThreadOp::Collect);
            }
        }
        if dice.roll(3) == 0 {
            let thread = dice.roll(scenario.threads.len() as u64) as usize;
            let acts = &mut scenario.threads[thread];
            acts.insert(dice.roll(acts.len() as u64 + 1) as usize, ThreadOp::Scan);
        }
        scenario
    }

    /// The policy of the threads before the first crash.
    pub fn first_policy(&self) -> Policy {
        let mut dice = RandomSource::new(self.plan.seed ^ self.moment.unwrap_or(0));
        Policy::draw(&mut dice, 128)
    }

    /// The policy of the run with this seed.
    pub fn policy(seed: u64) -> Policy {
        let mut dice = RandomSource::new(seed ^ 0x6f72_6465_7221);
        let steps = 32 << dice.roll(6);
        Policy::draw(&mut dice, steps)
    }

    /// Number of operations.
    pub fn len(&self) -> usize {
        self.plan.before.len() + self.threads.iter().map(Vec::len).sum::<usize>()
    }

    /// Whether there is no operation.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Scenarios with some operations less, of a thread or of those before. Drops threads without
    /// operations.
    pub fn shorter(&self) -> impl Iterator<Item = Self> + '_ {
        let of_threads = self.threads.iter().enumerate().flat_map(move |(thread, acts)| {
            (0..acts.len()).map(move |act| {
                let mut less = self.clone();
                less.threads[thread].remove(act);
                if less.is_shared {
                    // A thread without operations still recovers the others. A thread that crashes
                    // does so in the same call as before.
                    let later = less.crashes.iter_mut().filter(|it| it.thread == thread && it.call > act);
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
        let fewer_crashes = (0..self.crashes.len()).map(|death| {
            let mut less = self.clone();
            less.crashes.remove(death);
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
        fewer_crashes.chain(of_threads).chain(before).filter(|less| !less.threads.is_empty())
    }
}
