//! The interface of a store under test, and the operations that runs apply to it.

use super::dice::RandomSource;
use std::any::Any;
use std::ops::Range;
use std::sync::Arc;
use terrace_index::Direction;
use terrace_medium::MappedMedium;
use terrace_pool::{Layout, Liveness, Pool};

/// A key, by number from 0.
pub type Key = usize;
/// A value, by number; 0 means none. Every write of a history uses a different one.
pub type Version = u64;

/// The new state of a key: a version, or absence.
pub type Effect = (Key, Option<Version>);

/// An operation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Op {
    /// Sets a key's value, whether the key is present or not.
    Put(Key, Version),
    /// Adds a key if it is absent.
    Insert(Key, Version),
    /// Replaces a key's value if the key is present.
    Update(Key, Version),
    /// Removes a key.
    Remove(Key),
    /// Sets a key to the second state if it is in the first.
    Swap(Key, Option<Version>, Option<Version>),
    /// Applies all effects atomically.
    Batch(Vec<Effect>),
    /// Several independent puts that share their fences.
    Puts(Vec<(Key, Version)>),
    /// Work invisible to readers: a step of a resize, a sweep, growth of the pool.
    Background(u64),
}

impl Op {
    /// The effects of this operation, if it succeeds, on a store that holds `model`.
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

    /// Applies this operation to `model` as a store does on success.
    pub fn do_to(&self, model: &mut [Option<Version>]) {
        match *self {
            // The common cases without the vector of `effects`: this runs dozens of times per crash
            // state.
            Self::Put(key, version) => model[key] = Some(version),
            Self::Remove(key) => model[key] = None,
            _ => self.effects(model).into_iter().for_each(|(key, to)| model[key] = to),
        }
    }

    /// Every version that this operation may write.
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

    /// The reply of a correct store that holds `model`.
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

/// The reply of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reply {
    /// The state that the operation found.
    Found(Option<Version>),
    /// The pool was full and nothing changed.
    Full,
    /// The pool was full for some of several puts; one bit for each that was done, the lowest for
    /// the first.
    Partly(u64),
    /// A reply that a correct store never gives.
    Broken(&'static str),
}

/// The operations and parameters of a run.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The seed from which everything else is generated.
    pub seed: u64,
    /// Number of keys.
    pub keys: usize,
    /// The keys on which threads conflict.
    pub hot: Range<Key>,
    /// Number of threads that use the store at once.
    pub threads: usize,
    /// The target's own names of the keys, made once for all recoveries of the run. See
    /// [`Plan::names`].
    pub names: Arc<dyn Any + Send + Sync>,
    /// Operations before crashes are explored.
    pub before: Vec<Op>,
    /// Operations during which crashes are explored.
    pub ops: Vec<Op>,
    /// Operations after a recovery, in addition to removing every other key.
    pub after: Vec<Op>,
    /// Operations of the process that follows a killed one, before power fails. Some run before it
    /// collects leaked memory, the rest after that. If empty, no power failure after a kill is
    /// tried.
    pub revived: Vec<Op>,
    /// Whether crashes during the creation of the store are explored, too.
    pub creation: bool,
}

impl Plan {
    /// The names of the keys.
    ///
    /// # Panics
    /// If the target gave the plan names of another type.
    pub fn names<N: Any + Send + Sync>(&self) -> Arc<N> {
        self.names.clone().downcast().expect("names of the type that the target made")
    }

    /// A random one of the hot keys.
    pub(crate) fn hot_key(&self, dice: &mut RandomSource) -> Key {
        self.hot.start + dice.roll(self.hot.len() as u64) as Key
    }
}

/// Creates a kind of store on any medium.
pub trait Target: 'static {
    /// Its name on the command line.
    const NAME: &'static str;
    /// Initial and maximum size of its pool in bytes.
    const BYTES: (usize, usize);
    /// Whether it can read several keys at one instant.
    const SNAPSHOTS: bool = false;
    /// Maximum number of writer threads in runs that crowd on few keys; at most 3, as one of the
    /// four threads reads.
    const WRITERS: u64 = 2;
    /// Whether it also runs as code without write-backs, on memory whose caches survive. Otherwise
    /// it is compiled once, with write-backs, which such memory ignores.
    const WITHOUT_CACHE: bool = true;
    /// The store on a given medium.
    type Subject<M: MappedMedium>: Subject<M>;
    /// The plan of the run with this seed.
    fn plan(seed: u64) -> Plan;
}

/// A store under test. Its methods must not panic: a panic is a finding.
pub trait Subject<M: MappedMedium>: Sized + Send + Sync + 'static {
    /// Creates the store in zeroed memory, for the operations of `plan`.
    fn create(medium: M, plan: &Plan) -> Self;
    /// Recovers the store from the content that a crash left; `None` if there is no store.
    fn recover(medium: M, plan: &Plan) -> Result<Option<Self>, String>;
    /// Shares the store with other processes in the same memory: creates it if this process is the
    /// `first`, joins otherwise.
    fn share(_medium: M, _plan: &Plan, _liveness: Arc<dyn Liveness>, _first: bool) -> Result<Self, String> {
        Err("this store cannot be shared".into())
    }
    /// Recovers everything that dead processes left.
    fn recover_dead(&self) {
        self.pool().recover_dead();
    }
    /// The store's pool.
    fn pool(&self) -> &Pool<M>;
    /// Applies an operation.
    fn apply(&self, op: &Op) -> Reply;
    /// Whether the reply of `apply` to this operation is the state that the operation itself found,
    /// rather than an earlier read. The two differ if threads conflict.
    fn knows_what_it_found(&self, _op: &Op) -> bool {
        true
    }
    /// The value of a key, by a point read.
    fn get(&self, key: Key) -> Result<Option<Version>, String>;
    /// The values of these keys at one instant. Only for a target with [`Target::SNAPSHOTS`].
    fn snapshot(&self, _keys: &[Key]) -> Result<Vec<Option<Version>>, String> {
        Err("it reads one key at a time".into())
    }
    /// Calls `each` for every key that a scan finds, with its version.
    fn scan(&self, each: &mut dyn FnMut(Key, Version)) -> Result<(), String>;
    /// Whether every scan so far visited each key that was present throughout exactly once. By
    /// default this is not guaranteed.
    fn finds_once(&self) -> bool {
        false
    }
    /// Whether it visits ranges of keys. Its keys are then in the order of their numbers.
    const RANGES: bool = false;
    /// Calls `each` for every key of a range, both ends included, with its version. Only for a
    /// store with [`Subject::RANGES`].
    fn range(
        &self,
        _from: Key,
        _to: Key,
        _direction: Direction,
        _each: &mut dyn FnMut(Key, Version),
    ) -> Result<(), String> {
        Err("its keys have no order".into())
    }
    /// The store's own count of its keys, if it keeps one.
    fn count(&self) -> Option<u64> {
        None
    }
    /// Collects the memory that a crash leaked.
    fn collect(&self);
    /// The violations of the store's invariants.
    fn verify(&self) -> Vec<String>;
    /// Every reachable block: its offset and its bytes.
    fn blocks(&self) -> Vec<(u64, u64)>;
    /// Drops the store as a crashing process does.
    fn abandon(self);
    /// Checks that an image is refused after a crash of the machine, and returns what can be
    /// salvaged from it. `medium` returns the image, any number of times.
    fn salvaged(_medium: &dyn Fn() -> M, _plan: &Plan) -> Result<Vec<(Key, Version)>, String> {
        Ok(Vec::new())
    }
}

/// The parts of a pool, as ranges of bytes, that recovery resets whatever their content:
/// participants, thread slots, and those of the allocator's words that restart from zero.
pub fn scratch(layout: &Layout) -> [Range<u64>; 4] {
    // Line 1 of the allocator's words holds the reserve, line 2 the hints; recovery keeps both.
    let lists = layout.allocator + 3 * 64;
    [
        layout.participants..layout.shared,
        layout.allocator..layout.allocator + 64,
        lists..layout.thread_slots,
        layout.thread_slots..layout.zones,
    ]
}

/// The percentage of each kind of operation in a history.
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
    /// Puts that share their fences.
    pub puts: u64,
    /// Background work.
    pub background: u64,
}

impl Mix {
    /// Generates `count` operations on the keys of `model`, the store's content, which follows
    /// them. Knowing the content, most swaps succeed.
    pub fn random(
        &self,
        dice: &mut RandomSource,
        count: usize,
        next: &mut Version,
        model: &mut [Option<Version>],
    ) -> Vec<Op> {
        let mut ops = Vec::with_capacity(count);
        for _ in 0..count {
            let op = self.random_one(dice, next, model);
            op.do_to(model);
            ops.push(op);
        }
        ops
    }

    fn random_one(&self, dice: &mut RandomSource, next: &mut Version, model: &[Option<Version>]) -> Op {
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

/// One to four distinct keys, each with a flag that is set for one in four.
fn some_keys(dice: &mut RandomSource, keys: usize) -> impl Iterator<Item = (Key, bool)> + use<> {
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
