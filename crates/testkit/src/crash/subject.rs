//! What is put through crashes: a store under test, in a few lines.

use super::dice::Dice;
use std::any::Any;
use std::sync::Arc;
use terrace_medium::MappedMedium;
use terrace_pool::{Layout, Liveness, Pool};

/// A key, by number, from 0 on.
pub type Key = usize;
/// A value, by number; 0 is none. Every write of a history has another.
pub type Version = u64;

/// What becomes of a key: a version, or it goes.
pub type Effect = (Key, Option<Version>);

/// An operation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Op {
    /// Gives a key a value, whether it is there or not.
    Put(Key, Version),
    /// Adds a key if it is absent.
    Insert(Key, Version),
    /// Gives a key another value if it is there.
    Update(Key, Version),
    /// Removes a key.
    Remove(Key),
    /// Gives a key the second state if it has the first.
    Swap(Key, Option<Version>, Option<Version>),
    /// All of it or nothing.
    Batch(Vec<Effect>),
    /// Several puts that share their fences, each by itself.
    Puts(Vec<(Key, Version)>),
    /// Something that no reader notices: a step of a resize, a sweep, growth of the pool.
    Background(u64),
}

impl Op {
    /// What it does to a store that holds `model` if it succeeds.
    pub fn effects(&self, model: &[Option<Version>]) -> Vec<Effect> {
        match *self {
            Self::Put(key, version) => vec![(key, Some(version))],
            Self::Insert(key, version) if model[key].is_none() => vec![(key, Some(version))],
            Self::Update(key, version) if model[key].is_some() => vec![(key, Some(version))],
            Self::Remove(key) if model[key].is_some() => vec![(key, None)],
            Self::Swap(key, expected, new) if model[key] == expected => vec![(key, new)],
            Self::Batch(ref effects) => effects.clone(),
            Self::Puts(ref puts) => puts.iter().map(|&(key, version)| (key, Some(version))).collect(),
            _ => Vec::new(),
        }
    }

    /// Does it to `model`, as a store does that succeeds.
    pub fn do_to(&self, model: &mut [Option<Version>]) {
        match *self {
            // The usual ones without the vector that `effects` makes: this is done some dozen times in each crash state.
            Self::Put(key, version) => model[key] = Some(version),
            Self::Remove(key) => model[key] = None,
            _ => self.effects(model).into_iter().for_each(|(key, to)| model[key] = to),
        }
    }

    /// Every version that it may write.
    pub fn may_write(&self) -> Vec<(Key, Version)> {
        match *self {
            Self::Put(key, version) | Self::Insert(key, version) | Self::Update(key, version) => {
                vec![(key, version)]
            }
            Self::Swap(key, _, new) => new.map(|new| (key, new)).into_iter().collect(),
            Self::Batch(ref effects) => effects.iter().filter_map(|&(key, to)| Some((key, to?))).collect(),
            Self::Puts(ref puts) => puts.clone(),
            Self::Remove(_) | Self::Background(_) => Vec::new(),
        }
    }

    /// What it answers.
    pub fn answer(&self, model: &[Option<Version>]) -> Option<Version> {
        match *self {
            Self::Put(key, _) | Self::Insert(key, _) | Self::Update(key, _) | Self::Remove(key) => model[key],
            Self::Swap(key, ..) => model[key],
            Self::Batch(_) | Self::Puts(_) | Self::Background(_) => None,
        }
    }
}

impl std::fmt::Display for Op {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let state = |version: Option<Version>| version.map_or("none".into(), |version| format!("v{version}"));
        match self {
            Self::Put(key, version) => write!(f, "put(k{key}, v{version})"),
            Self::Insert(key, version) => write!(f, "insert(k{key}, v{version})"),
            Self::Update(key, version) => write!(f, "update(k{key}, v{version})"),
            Self::Remove(key) => write!(f, "remove(k{key})"),
            Self::Swap(key, old, new) => write!(f, "swap(k{key}, {} -> {})", state(*old), state(*new)),
            Self::Batch(effects) => {
                let each: Vec<String> =
                    effects.iter().map(|&(key, to)| format!("k{key} = {}", state(to))).collect();
                write!(f, "batch({})", each.join(", "))
            }
            Self::Puts(puts) => {
                let each: Vec<String> =
                    puts.iter().map(|(key, version)| format!("k{key} = v{version}")).collect();
                write!(f, "puts({})", each.join(", "))
            }
            Self::Background(step) => write!(f, "background({step})"),
        }
    }
}

/// What an operation has answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reply {
    /// The state that it found.
    Found(Option<Version>),
    /// There was no room: nothing has changed.
    Full,
    /// Something that it never says.
    Broken(&'static str),
}

/// What a run does.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Everything else follows from it.
    pub seed: u64,
    /// How many keys there are.
    pub keys: usize,
    /// How many threads use the store at once.
    pub threads: usize,
    /// What the target calls the keys: its own business, made once for all recoveries of the run. See [`Plan::names`].
    pub names: Arc<dyn Any + Send + Sync>,
    /// What is done before crashes are explored.
    pub before: Vec<Op>,
    /// What crashes fall into.
    pub ops: Vec<Op>,
    /// What is done after a recovery, on top of removing every other key.
    pub after: Vec<Op>,
    /// What a process does that comes after a kill, before power fails: some of it before it collects what was left, the rest after that. Nothing: then
    /// power does not fail after a kill.
    pub revived: Vec<Op>,
    /// Whether crashes fall into the making of the store, too.
    pub creation: bool,
}

impl Plan {
    /// The names of the keys.
    ///
    /// # Panics
    /// If they are of another kind than the target gave the plan.
    pub fn names<N: Any + Send + Sync>(&self) -> Arc<N> {
        self.names.clone().downcast().expect("names as the target made them")
    }
}

/// Makes a kind of store on any medium.
pub trait Target: 'static {
    /// Its name on the command line.
    const NAME: &'static str;
    /// Bytes of its pool, and those that it can grow to.
    const BYTES: (usize, usize);
    /// Whether it reads several keys at one instant.
    const SNAPSHOTS: bool = false;
    /// Threads that change something, where threads crowd on few keys, at most: three of four.
    const WRITERS: u64 = 2;
    /// The store on one medium.
    type Subject<M: MappedMedium>: Subject<M>;
    /// What the run with this seed does.
    fn plan(seed: u64) -> Plan;
}

/// A store under test. Whatever it is asked, it answers without a panic; if it does panic, that is a finding.
pub trait Subject<M: MappedMedium>: Sized + Send + Sync + 'static {
    /// Makes it in zeroed memory, for what `plan` does.
    fn create(medium: M, plan: &Plan) -> Self;
    /// Recovers it from what a crash has left; `None` if there is none.
    fn recover(medium: M, plan: &Plan) -> Result<Option<Self>, String>;
    /// Shares it with others in the same memory: makes it, if this is the `first` one there, and else goes in to them.
    fn share(_medium: M, _plan: &Plan, _liveness: Arc<dyn Liveness>, _first: bool) -> Result<Self, String> {
        Err("it cannot be shared".into())
    }
    /// Takes back what others have left who died.
    fn look_after(&self) {
        self.pool().recover_dead();
    }
    /// Its pool.
    fn pool(&self) -> &Pool<M>;
    /// Does an operation.
    fn apply(&self, op: &Op) -> Reply;
    /// Whether what `apply` says of this operation is what the operation itself found, and not what was there shortly before: where threads meet, they differ.
    fn knows_what_it_found(&self, _op: &Op) -> bool {
        true
    }
    /// What a key holds, from a point read.
    fn get(&self, key: Key) -> Result<Option<Version>, String>;
    /// What these keys hold, all at one instant: of a target that has [`Target::SNAPSHOTS`].
    fn snapshot(&self, _keys: &[Key]) -> Result<Vec<Option<Version>>, String> {
        Err("it reads one key at a time".into())
    }
    /// Calls `each` on every key that a scan finds, with its version.
    fn scan(&self, each: &mut dyn FnMut(Key, Version)) -> Result<(), String>;
    /// Whether every scan until now has found a key that was there throughout once only. By default that is not said.
    fn finds_once(&self) -> bool {
        false
    }
    /// How many keys it says that it has; nothing if it does not say.
    fn count(&self) -> Option<u64> {
        None
    }
    /// Takes back the memory that a crash left to nobody.
    fn collect(&self);
    /// What does not hold of its invariants.
    fn verify(&self) -> Vec<String>;
    /// Every block that it can reach: where it lies and the bytes that it takes.
    fn blocks(&self) -> Vec<(u64, u64)>;
    /// Lets go of it as a process does that dies.
    fn abandon(self);
    /// That an image is refused after a crash of the machine, and what of it can be proved all the same. `medium` gives it, any number of times.
    fn salvaged(_medium: &dyn Fn() -> M, _plan: &Plan) -> Result<Vec<(Key, Version)>, String> {
        Ok(Vec::new())
    }
}

/// The parts of a pool that recovery resets whatever they hold: participants, seats, and of the allocator's words those that start again from
/// zero. As ranges of bytes.
pub fn scratch(layout: &Layout) -> [std::ops::Range<u64>; 4] {
    // Line 1 of the allocator's words has the reserve, line 2 the hints; both are kept.
    let lists = layout.allocator + 3 * 64;
    [
        layout.participants..layout.shared,
        layout.allocator..layout.allocator + 64,
        lists..layout.thread_slots,
        layout.thread_slots..layout.zones,
    ]
}

/// Shares of a hundred that kinds of operations have in a history.
#[derive(Clone, Copy, Debug)]
pub struct Mix {
    /// Puts.
    pub put: u64,
    /// Inserts.
    pub insert: u64,
    /// Updates.
    pub update: u64,
    /// Removals.
    pub remove: u64,
    /// Swaps.
    pub swap: u64,
    /// Batches.
    pub batch: u64,
    /// Puts that share fences.
    pub puts: u64,
    /// Background work.
    pub background: u64,
}

impl Mix {
    /// `count` operations on `keys` keys, that know what the store holds: swaps mostly succeed. `model` is what it holds before and then after.
    pub fn draw(
        &self,
        dice: &mut Dice,
        count: usize,
        next: &mut Version,
        model: &mut [Option<Version>],
    ) -> Vec<Op> {
        let mut ops = Vec::with_capacity(count);
        for _ in 0..count {
            let op = self.draw_one(dice, next, model);
            op.do_to(model);
            ops.push(op);
        }
        ops
    }

    fn draw_one(&self, dice: &mut Dice, next: &mut Version, model: &[Option<Version>]) -> Op {
        let shares = [
            self.put,
            self.insert,
            self.update,
            self.remove,
            self.swap,
            self.batch,
            self.puts,
            self.background,
        ];
        let mut at = dice.roll(shares.iter().sum());
        let kind = shares.iter().position(|&share| {
            let here = at < share;
            at = at.saturating_sub(share);
            here
        });
        let key = dice.roll(model.len() as u64) as Key;
        let mut version = || {
            *next += 1;
            *next
        };
        match kind {
            Some(0) | None => Op::Put(key, version()),
            Some(1) => Op::Insert(key, version()),
            Some(2) => Op::Update(key, version()),
            Some(3) => Op::Remove(key),
            Some(4) => {
                let expected = if dice.roll(8) == 0 { None } else { model[key] };
                let new = if dice.roll(4) == 0 { None } else { Some(version()) };
                Op::Swap(key, expected, new)
            }
            Some(5) => Op::Batch(
                some_keys(dice, model.len())
                    .map(|(key, remove)| (key, (!remove).then(&mut version)))
                    .collect(),
            ),
            Some(6) => Op::Puts(some_keys(dice, model.len()).map(|(key, _)| (key, version())).collect()),
            Some(_) => Op::Background(dice.bits()),
        }
    }
}

/// One to four keys, each once, and whether one in four is taken.
fn some_keys(dice: &mut Dice, keys: usize) -> impl Iterator<Item = (Key, bool)> + use<> {
    let count = (1 + dice.roll(4) as usize).min(keys);
    let mut chosen: Vec<(Key, bool)> = Vec::new();
    while chosen.len() < count {
        let key = dice.roll(keys as u64) as Key;
        if !chosen.iter().any(|&(other, _)| other == key) {
            chosen.push((key, dice.roll(4) == 0));
        }
    }
    chosen.into_iter()
}
