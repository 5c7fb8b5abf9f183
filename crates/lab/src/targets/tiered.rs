//! `tiered` over DRAM and the files of a pool: the crash loses DRAM, and what the pool had
//! not been told to keep.
//!
//! Settings differ from run to run, and from one open to the next ([`Opening`]). An open with
//! little DRAM flushes what the log has while it replays it. A store whose level promises less
//! than [`Durability::Power`] is told to sync, or to flush, before an operation returns: what it
//! has then must stay, and until then a key has its new version or the one of before.

use super::direct::{HEAD, key_bytes};
use super::on_files::{Done, OnFiles, TOP, files_in};
use super::options::{findings, first_eight, is_unmade, options, refused_after_reboot, reply_of_puts};
use std::io::ErrorKind;
use std::ops::Bound;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, OnceLock, Weak};
use terrace_engine::{Chore, Durability, Durably, Engine, ManualClock, OnDisk, Rest, WriteError};
use terrace_index::hash::Turbo;
use terrace_medium::files::Files;
use terrace_medium::{Dram, MappedMedium};
use terrace_pool::{Geometry, Pool, PoolOptions};
use terrace_testkit::crash::{Key, Mix, Op, Plan, RandomSource, Reply, Subject, Target, Version};
use terrace_testkit::simfs::{CallKind, Faulty};
use terrace_tier::PoolFiles;
use terrace_tiered::{Settings, Shares, Tiered};

/// The engine.
pub struct TieredEngine;

const NOW: u64 = 1_000_000;
const MIX: Mix =
    Mix { put: 30, insert: 6, update: 8, remove: 14, swap: 6, batch: 12, puts: 4, background: 20 };
/// Bytes of a page of DRAM. A value of a quarter has a file of its own.
const PAGE: u64 = 4 << 10;
/// Bytes of DRAM that are more than a history needs, and few pages beside the index.
const MUCH: usize = 512 << 10;
const LITTLE: [usize; 3] = [56 << 10, 64 << 10, 80 << 10];
/// Versions from here on are those of operations after a crash.
const AFTER: Version = 1 << 20;

impl Target for TieredEngine {
    const NAME: &'static str = "tiered";
    const BYTES: (usize, usize) = (512 << 10, 512 << 10);
    type Subject<M: MappedMedium> = TieredUnderTest<M>;

    fn plan(seed: u64) -> Plan {
        let mut dice = RandomSource::new(seed);
        let opening = Opening::of(seed, 0);
        let has_log = opening.durability != Durability::None;
        let is_long = dice.roll(3) == 0 && has_log;
        let keys = if is_long { LONG_KEYS } else { 2 + dice.roll(6) as usize };
        // A store without a log may keep a part of a batch. What a long log has stays there.
        let batch = if has_log { MIX.batch } else { 0 };
        let background = if is_long { 4 } else { MIX.background };
        let mix = Mix { batch, background, ..MIX };
        let (mut model, mut next) = (vec![None; keys], 0);
        let count = dice.roll(12) as usize;
        let before = match is_long {
            true => long_log(&mut dice, &mut next, &mut model),
            false => mix.random(&mut dice, count, &mut next, &mut model),
        };
        let count = 3 + dice.roll(8) as usize;
        let mut ops = mix.random(&mut dice, count, &mut next, &mut model);
        if dice.roll(3) == 0 {
            // Everything goes, and then a large value comes, beside another clear: see `write`.
            let at = dice.roll(ops.len() as u64) as usize;
            next = (next + 1).next_multiple_of(LARGE_ONE_IN);
            let key = dice.roll(keys as u64) as Key;
            ops.splice(at..at, [clear(keys), Op::Put(key, next)]);
        }
        let put = |key: Key, nth: u64| Op::Put(key, AFTER + 61 * (key as u64 + nth));
        let mut after: Vec<Op> = Vec::new();
        if is_long {
            // Blocks are rewritten one by one, and half of the keys stay as they are.
            for nth in 0..3 {
                after.extend((0..keys).step_by(2).map(|key| put(key, 100 * nth)));
                after.push(Op::Background(REWRITES));
            }
        } else {
            after.extend((0..keys).map(|key| put(key, 0)));
            after.extend((0..BACKGROUND).map(Op::Background));
        }
        after.extend([Op::Remove(0), Op::Put(0, AFTER + 60_000)]);
        let names: Vec<_> = (0..keys as u64).map(|key| key_bytes(key * 7 + seed % 100)).collect();
        let creation = dice.roll(16) == 0;
        let (revived, names) = (first_eight(&after), Arc::new(names));
        Plan { seed, keys, hot: 0..keys, threads: 1, names, before, ops, after, revived, creation }
    }
}

/// Keys of a run with a long log. Every other one is replaced again and again.
const LONG_KEYS: usize = 12;

/// A log that an open with little DRAM has to flush. Keys that stay fill the first block; one or
/// two of them go later on.
fn long_log(dice: &mut RandomSource, next: &mut Version, model: &mut [Option<Version>]) -> Vec<Op> {
    let mut put = |key, kinds: &[Version]| {
        *next += 1;
        while !kinds.contains(&(*next % LARGE_ONE_IN)) {
            *next += 1;
        }
        Op::Put(key, *next)
    };
    let mut ops: Vec<Op> = (1..LONG_KEYS).step_by(2).map(|key| put(key, &[5])).collect();
    let mut gone = Vec::new();
    for _ in 0..1 + dice.roll(2) {
        gone.push((10 + dice.roll(30), 1 + 2 * dice.roll(LONG_KEYS as u64 / 2) as Key));
    }
    for nth in 0..40 {
        ops.push(put(2 * dice.roll(LONG_KEYS as u64 / 2) as Key, &[1, 3, 6]));
        ops.extend(gone.iter().filter(|(at, _)| *at == nth).map(|(_, key)| Op::Remove(*key)));
    }
    ops.iter().for_each(|op| op.do_to(model));
    ops
}

/// A removal of all keys, which is a clear.
fn clear(keys: usize) -> Op {
    Op::Batch((0..keys).map(|key| (key, None)).collect())
}

/// One version in this many is large.
const LARGE_ONE_IN: Version = 8;
/// Kinds of background work.
const BACKGROUND: u64 = 8;
/// That which flushes, and rewrites blocks of which most is dead.
const REWRITES: u64 = 5;

fn is_large(version: Version) -> bool {
    version.is_multiple_of(LARGE_ONE_IN)
}

fn length(version: Version) -> usize {
    match version % LARGE_ONE_IN {
        0 => PAGE as usize / 4 + 76,
        1 | 3 | 6 => 700 + 8 * (version as usize % 5),
        5 => 960,
        n => HEAD + 8 * (n as usize % 3),
    }
}

/// How a store is opened.
struct Opening {
    dram: usize,
    log_bytes: u64,
    stripes: usize,
    durability: Durability,
}

impl Opening {
    /// That of an open which finds so many files, in the run with this seed.
    fn of(seed: u64, files: usize) -> Self {
        let mut dice = RandomSource::new(seed ^ 0x6f70_656e ^ (files as u64) << 40);
        Self {
            dram: if files > 0 && dice.roll(2) == 0 { *dice.pick(&LITTLE) } else { MUCH },
            log_bytes: *dice.pick(&[4 << 10, 16 << 10, 128 << 10, 128 << 10]),
            stripes: *dice.pick(&[1, 4, 8]),
            durability: *dice.pick(&[
                Durability::Power,
                Durability::Power,
                Durability::Process,
                Durability::None,
            ]),
        }
    }

    fn settings(&self, seed: u64) -> Settings {
        let mut settings = Settings::with_dram(self.dram as u64, Arc::new(ManualClock::at(NOW)), seed | 1);
        settings.shares = Shares { page_bytes: PAGE, block_pages: 2, seats: 1 };
        settings.stripes = self.stripes;
        settings.segment_bytes = 8 << 10;
        settings.log_bytes = self.log_bytes;
        settings.durability = self.durability;
        settings
    }

    fn pool(&self) -> terrace_tiered::MakePool {
        let (size, geometry) = (self.dram, Geometry { thread_slots: 2, ..Geometry::tiny() });
        Box::new(move || {
            PoolOptions::anonymous().size(size as u64).geometry(geometry).reproducible().create()
        })
    }
}

/// Clears the store while the file of a large value is written.
struct Beside {
    store: OnceLock<Weak<Tiered>>,
    is_due: AtomicBool,
}

impl Beside {
    fn meet(&self, kind: CallKind, path: &Path) {
        let is_large = path.extension().is_some_and(|end| end == "large");
        if kind == CallKind::Write
            && is_large
            && self.is_due.swap(false, Relaxed)
            && let Some(store) = self.store.get().and_then(Weak::upgrade)
        {
            // Where it fails, nothing has changed.
            let _ = store.clear(Durably::Store);
        }
    }
}

/// A store and the keys of its run.
pub struct TieredUnderTest<M: MappedMedium> {
    store: Arc<Tiered>,
    beside: Arc<Beside>,
    files: PoolFiles<M>,
    durability: Durability,
    keys: Arc<Vec<Vec<u8>>>,
}

impl<M: MappedMedium> TieredUnderTest<M> {
    fn over(pool: Pool<M>, plan: &Plan) -> Result<Self, String> {
        let top = Path::new(TOP);
        let files = files_in(pool)?;
        let beside = Arc::new(Beside { store: OnceLock::new(), is_due: AtomicBool::new(false) });
        let met = Arc::clone(&beside);
        let watched: Arc<dyn Files> =
            Arc::new(Faulty::watched(files.clone(), move |call| met.meet(call.kind, call.path)));
        let exists = Tiered::exists(&watched, top).map_err(|error| error.to_string())?;
        let count = if exists { files.list(top).map_err(|error| error.to_string())?.len() } else { 0 };
        let opening = Opening::of(plan.seed, count);
        let (settings, make) = (opening.settings(plan.seed), opening.pool());
        let opened = match exists {
            true => Tiered::open::<Turbo<Dram, terrace_tiered::Kind>>(watched, top, settings, make),
            false => Tiered::create::<Turbo<Dram, terrace_tiered::Kind>>(watched, top, settings, make),
        };
        let store = Arc::new(opened.map_err(|error| error.to_string())?);
        let _ = beside.store.set(Arc::downgrade(&store));
        Ok(Self { store, beside, files, durability: opening.durability, keys: plan.names() })
    }

    fn on_files(&self) -> OnFiles<'_, Tiered> {
        OnFiles { store: &self.store, keys: &self.keys, length }
    }

    fn put(&self, key: Key, version: Version) -> Result<(), WriteError> {
        self.beside.is_due.store(is_large(version) && self.store.len().get() == 0, Relaxed);
        let done = self.on_files().put(key, version);
        self.beside.is_due.store(false, Relaxed);
        done
    }

    /// Background work, which changes no value.
    fn background(&self, step: u64) -> Result<(), WriteError> {
        let all = (Bound::Unbounded, Bound::Unbounded);
        match step % BACKGROUND {
            0 => OnDisk::flush(&*self.store)?,
            1 => self.store.evict(),
            2 => OnDisk::compact(&*self.store, all.0, all.1)?,
            3 => self.store.drop_oldest_copies(step % 16 < 8),
            4 => self.work(&[Chore::Merge]),
            REWRITES => {
                OnDisk::flush(&*self.store)?;
                self.work(&[Chore::Merge]);
            }
            _ => self.work(&[Chore::Flush, Chore::Merge, Chore::Log, Chore::Maintain]),
        }
        Ok(())
    }

    fn work(&self, chores: &[Chore]) {
        for chore in chores {
            while self.store.step(*chore, &|| false) == Rest::More {}
        }
    }

    /// Makes what has returned survive any crash, where the level does not promise it.
    fn settle(&self) -> Result<(), WriteError> {
        match self.durability {
            Durability::None => {
                // Dead records go while only DRAM has what replaces them.
                self.work(&[Chore::Merge]);
                OnDisk::flush(&*self.store)
            }
            Durability::Process if self.files.outlasts_power() => OnDisk::sync(&*self.store),
            _ => Ok(()),
        }
    }

    fn write(&self, op: &Op) -> Done {
        self.on_files().write(op, |key, version| self.put(key, version), |step| self.background(step))
    }
}

fn is_full(error: &WriteError) -> bool {
    use WriteError::{DramFull, Io, PoolFull};
    matches!(error, PoolFull { .. } | DramFull { .. } | Io { kind: ErrorKind::StorageFull, .. })
}

impl<M: MappedMedium> Subject<M> for TieredUnderTest<M> {
    fn create(medium: M, plan: &Plan) -> Self {
        let pool = options(plan).create_on(medium).expect("a pool in new memory");
        Self::over(pool, plan).expect("a store in a new pool")
    }

    fn recover(medium: M, plan: &Plan) -> Result<Option<Self>, String> {
        match options(plan).open_on(medium) {
            Ok(pool) => Self::over(pool, plan).map(Some),
            Err(error) if is_unmade(plan, &error) => Ok(None),
            Err(error) => Err(error.to_string()),
        }
    }

    fn pool(&self) -> &Pool<M> {
        self.files.pool()
    }

    fn apply(&self, op: &Op) -> Reply {
        const NOT_SETTLED: Reply = Reply::Broken("what is done cannot be made to last");
        if let Op::Puts(puts) = op {
            return match reply_of_puts(&self.on_files().put_many(puts), is_full) {
                Reply::Found(_) | Reply::Partly(_) if self.settle().is_err() => NOT_SETTLED,
                reply => reply,
            };
        }
        match self.write(op) {
            Ok(_) if !matches!(op, Op::Background(_)) && self.settle().is_err() => NOT_SETTLED,
            Ok(found) => Reply::Found(found),
            Err(error) if is_full(&error) => Reply::Full,
            // A run ends with it.
            Err(error) => Reply::Broken(Box::leak(error.to_string().into_boxed_str())),
        }
    }

    fn knows_what_it_found(&self, op: &Op) -> bool {
        !matches!(op, Op::Put(..) | Op::Remove(_))
    }

    fn get(&self, key: Key) -> Result<Option<Version>, String> {
        self.on_files().get(key)
    }

    fn scan(&self, each: &mut dyn FnMut(Key, Version)) -> Result<(), String> {
        self.on_files().scan(each)
    }

    fn count(&self) -> Option<u64> {
        Some(self.store.len().get())
    }

    /// Done when the files are opened.
    fn collect(&self) {}

    fn verify(&self) -> Vec<String> {
        let report = self.store.check(&mut |_, _| {});
        let store = report.findings.iter().map(ToString::to_string);
        store.chain(findings(self.pool())).collect()
    }

    fn blocks(&self) -> Vec<(u64, u64)> {
        self.files.reachable()
    }

    fn abandon(self) {
        let pool = self.files.pool().clone();
        drop(self);
        pool.abandon();
    }

    fn salvaged(medium: &dyn Fn() -> M, plan: &Plan) -> Result<Vec<(Key, Version)>, String> {
        // A store of this engine cannot be salvaged.
        refused_after_reboot(medium(), plan).map(|()| Vec::new())
    }
}
