//! `wip`, the ordered store on a disk, over the files of a pool: jobs step by step, in any
//! order, and writes that are suspended wherever another thread may come between.
//!
//! One thread does everything, so a seed gives the same history each time. Some operations of a
//! history come between the parts of another operation ([`Between`]): between the read of a rival's
//! change and its write, or while a job creates a table. A rival wants to write only if its key is
//! as it has seen it. The operation changes that key, so the rival must change nothing, whatever
//! jobs have done to the traces of the operation.

use super::direct::{HEAD, key_bytes};
use super::on_files::{Done, OnFiles, TOP, expiry, files_in};
use super::options::{findings, first_eight, is_unmade, options, refused_after_reboot};
use std::io::ErrorKind;
use std::ops::Bound;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use terrace_engine::{
    Chore, Clock, Commit, Durability, Durably, Engine, OnDisk, Rest, Write, WriteError, WriteKind,
};
use terrace_medium::MappedMedium;
use terrace_medium::files::Files;
use terrace_pool::Pool;
use terrace_testkit::crash::{Effect, Key, Mix, Op, Plan, RandomSource, Reply, Subject, Target, Version};
use terrace_testkit::simfs::{CallKind, Faulty};
use terrace_tier::PoolFiles;
use terrace_wip::{Settings, Wip};

/// The engine.
pub struct DiskEngine;

const MIX: Mix =
    Mix { put: 22, insert: 8, update: 8, remove: 18, swap: 8, batch: 8, puts: 4, background: 24 };
/// Kinds of background work.
const BACKGROUND: u64 = 8;
/// What a rival would write.
const RIVAL: Version = 1 << 40;

impl Target for DiskEngine {
    const NAME: &'static str = "disk";
    const BYTES: (usize, usize) = (512 << 10, 512 << 10);
    type Subject<M: MappedMedium> = DiskUnderTest<M>;

    fn plan(seed: u64) -> Plan {
        let mut dice = RandomSource::new(seed);
        let keys = 2 + dice.roll(6) as usize;
        let (mut model, mut next) = (vec![None; keys], 0);
        let count = dice.roll(40) as usize;
        let before = MIX.random(&mut dice, count, &mut next, &mut model);
        let count = 3 + dice.roll(10) as usize;
        let mut ops = MIX.random(&mut dice, count, &mut next, &mut model);
        if dice.roll(4) == 0 {
            let at = dice.roll(ops.len() as u64) as usize;
            ops.insert(at, Op::Batch((0..keys).map(|key| (key, None)).collect()));
        }
        let mut after: Vec<Op> = (0..keys).map(|key| Op::Put(key, (1 << 20) + key as u64)).collect();
        after.extend((0..BACKGROUND).map(Op::Background));
        after.extend([Op::Remove(0), Op::Put(0, (1 << 20) + 100)]);
        let names: Vec<_> = (0..keys as u64).map(|key| key_bytes(key * 7 + seed % 100)).collect();
        let creation = dice.roll(16) == 0;
        let (revived, names) = (first_eight(&after), Arc::new(names));
        Plan { seed, keys, hot: 0..keys, threads: 1, names, before, ops, after, revived, creation }
    }
}

fn length(version: Version) -> usize {
    HEAD + [0, 8, 40, 300][(version % 4) as usize]
}

/// Where an operation may come between the parts of another one.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Place {
    /// The clock is asked.
    Clock,
    /// A table is created.
    Table,
}

/// An operation that comes between.
#[derive(Default)]
enum Between {
    #[default]
    Nothing,
    Waits(Place, Op),
    Done(Done),
}

/// What all threads share.
struct Shared {
    store: OnceLock<Wip>,
    keys: Arc<Vec<Vec<u8>>>,
    dice: Mutex<RandomSource>,
    now: AtomicU64,
    between: Mutex<Between>,
}

/// A clock that an operation may meet.
struct Watch(Weak<Shared>);

impl Clock for Watch {
    fn now_ms(&self) -> u64 {
        let Some(shared) = self.0.upgrade() else { return 0 };
        shared.meet(Place::Clock);
        shared.now.load(Relaxed)
    }
}

impl Shared {
    fn store(&self) -> &Wip {
        self.store.get().expect("set by the open")
    }

    fn roll(&self, sides: u64) -> u64 {
        self.dice.lock().unwrap_or_else(PoisonError::into_inner).roll(sides)
    }

    fn between(&self) -> MutexGuard<'_, Between> {
        self.between.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Does what waits for this place.
    fn meet(&self, place: Place) {
        let mut between = self.between();
        let op = match std::mem::take(&mut *between) {
            Between::Waits(at, op) if at == place => op,
            other => return *between = other,
        };
        drop(between);
        let done = self.plain(&op);
        // A job that creates a table has not ended: nobody may wait for it.
        match place {
            Place::Clock => self.jobs(),
            Place::Table => self.steps(),
        }
        *self.between() = Between::Done(done);
    }

    fn on_files(&self) -> OnFiles<'_, Wip> {
        OnFiles { store: self.store(), keys: &self.keys, length }
    }

    /// Steps of jobs. Each ends by itself.
    fn steps(&self) {
        for _ in 0..self.roll(12) {
            let chore = [Chore::Flush, Chore::Merge, Chore::Log][self.roll(3) as usize];
            self.store().step(chore, &|| false);
        }
    }

    /// All jobs that are due, as long as there are some.
    fn work(&self, chores: &[Chore]) {
        for chore in chores {
            let mut left = 30;
            while left > 0 && self.store().step(*chore, &|| false) == Rest::More {
                left -= 1;
            }
        }
    }

    /// Some jobs. They change no value, so it does not matter whether they succeed.
    fn jobs(&self) {
        let all = (Bound::Unbounded, Bound::Unbounded);
        match self.roll(4) {
            0 => self.steps(),
            1 => _ = OnDisk::flush(self.store()),
            2 => _ = OnDisk::compact(self.store(), all.0, all.1),
            _ => {
                let _ = OnDisk::flush(self.store());
                self.work(&[Chore::Merge]);
            }
        }
    }

    /// Background work, which changes no value.
    fn background(&self, step: u64) -> Result<(), WriteError> {
        let key = Bound::Included(&*self.keys[(step / BACKGROUND) as usize % self.keys.len()]);
        match step % BACKGROUND {
            0 => OnDisk::flush(self.store())?,
            1 => self.steps(),
            2 => self.work(&[Chore::Flush, Chore::Merge]),
            3 => OnDisk::compact(self.store(), key, key)?,
            4 => OnDisk::compact(self.store(), Bound::Unbounded, Bound::Unbounded)?,
            5 => self.work(&[Chore::Log]),
            6 => {
                // Nobody writes for a while, so small neighbours are joined.
                for _ in 0..3 {
                    self.now.fetch_add(10_000, Relaxed);
                    self.work(&[Chore::Flush, Chore::Merge]);
                }
            }
            // A step of a job within that of another one.
            _ => {
                *self.between() = Between::Waits(Place::Table, Op::Background(1));
                let compacted = OnDisk::compact(self.store(), key, key);
                *self.between() = Between::Nothing;
                compacted?;
            }
        }
        Ok(())
    }

    /// Does an operation without another one.
    fn plain(&self, op: &Op) -> Done {
        let on_files = self.on_files();
        on_files.write(op, |key, version| on_files.put(key, version), |step| self.background(step))
    }

    /// A key that the operation changes, and what it has.
    fn changed(&self, op: &Op) -> Option<Effect> {
        let model: Vec<_> =
            (0..self.keys.len()).map(|key| self.on_files().get(key).unwrap_or(None)).collect();
        let effects = op.effects(&model);
        effects.into_iter().find(|&(key, to)| model[key] != to).map(|(key, _)| (key, model[key]))
    }

    /// Does an operation, alone or between the parts of another one.
    fn write(&self, op: &Op) -> Done {
        let kind = self.roll(8);
        match (kind, self.changed(op)) {
            (0 | 1, Some((key, before))) => self.within_a_change(op, key, before),
            (2, Some((key, _))) => self.before_a_commit(op, key),
            (3, Some((key, Some(before)))) if expiry(before).is_some() => self.within_a_commit(op, key),
            (4, Some(_)) => self.within_a_job(op),
            _ => self.plain(op),
        }
    }

    /// Between the read of a change and its write.
    fn within_a_change(&self, op: &Op, key: Key, before: Option<Version>) -> Done {
        let mut done = Ok(None);
        let mut is_first = true;
        let rival = self.on_files().modify(key, |seen| {
            let wants = seen == before;
            if std::mem::take(&mut is_first) {
                done = self.plain(op);
                self.jobs();
            }
            (wants && done.is_ok()).then_some(Some(RIVAL))
        });
        rival.and(done)
    }

    /// A commit that expects a key as it was before.
    fn commit_of_rival(&self, key: Key, version: terrace_engine::Version) -> Result<Commit, WriteError> {
        let value = self.on_files().value(key, RIVAL);
        let what = WriteKind::Put { value: &value, expires_at: None };
        let name = &*self.keys[key];
        self.store().commit(&[Write { key: name, what }], &[(name, version)], Durably::Store)
    }

    /// Between the read of a version and a commit that expects it.
    fn before_a_commit(&self, op: &Op, key: Key) -> Done {
        let version = self.store().version(&self.keys[key])?;
        let done = self.plain(op)?;
        self.jobs();
        self.commit_of_rival(key, version)?;
        Ok(done)
    }

    /// Between what a commit reads and what it writes.
    fn within_a_commit(&self, op: &Op, key: Key) -> Done {
        let version = self.store().version(&self.keys[key])?;
        *self.between() = Between::Waits(Place::Clock, op.clone());
        let committed = self.commit_of_rival(key, version);
        let between = std::mem::take(&mut *self.between());
        committed?;
        match between {
            Between::Done(done) => done,
            _ => Err(WriteError::Stopped("a commit has not asked the clock".into())),
        }
    }

    /// While a job creates a table, if one does.
    fn within_a_job(&self, op: &Op) -> Done {
        *self.between() = Between::Waits(Place::Table, op.clone());
        self.jobs();
        let between = std::mem::take(&mut *self.between());
        match between {
            Between::Done(done) => done,
            _ => self.plain(op),
        }
    }
}

/// A store under test.
pub struct DiskUnderTest<M: MappedMedium> {
    shared: Arc<Shared>,
    files: PoolFiles<M>,
}

impl<M: MappedMedium> DiskUnderTest<M> {
    fn over(pool: Pool<M>, plan: &Plan) -> Result<Self, String> {
        let top = Path::new(TOP);
        let files = files_in(pool)?;
        let shared = Arc::new(Shared {
            store: OnceLock::new(),
            keys: plan.names(),
            dice: Mutex::new(RandomSource::new(plan.seed ^ 0x6469_736b)),
            now: AtomicU64::new(1_000_000),
            between: Mutex::default(),
        });
        let weak = Arc::downgrade(&shared);
        let watched: Arc<dyn Files> = Arc::new(Faulty::watched(files.clone(), move |call| {
            let is_table = call.path.extension().is_some_and(|end| end == "table");
            if call.kind == CallKind::Name && is_table {
                weak.upgrade().iter().for_each(|shared| shared.meet(Place::Table));
            }
        }));
        let settings = settings(plan.seed, Arc::new(Watch(Arc::downgrade(&shared))));
        let opened = match Wip::exists(&watched, top).map_err(|error| error.to_string())? {
            true => Wip::open(watched, top, settings),
            false => Wip::create(watched, top, settings),
        };
        let store = opened.map_err(|error| error.to_string())?;
        assert!(shared.store.set(store).is_ok(), "set once");
        Ok(Self { shared, files })
    }
}

/// The smallest parts, so that a few writes flush, merge and split.
fn settings(seed: u64, clock: Arc<dyn Clock>) -> Settings {
    let mut settings = Settings::with_memory(16 << 20, clock, seed | 1);
    settings.memtable_bytes = [256, 1 << 10, 64 << 10][(seed % 3) as usize];
    settings.segment_bytes = 4 << 10;
    settings.log_bytes = 24 << 10;
    settings.fanout = 2;
    settings.split_into = 2;
    settings.durability = Durability::Power;
    settings
}

fn is_full(error: &WriteError) -> bool {
    matches!(error, WriteError::PoolFull { .. } | WriteError::Io { kind: ErrorKind::StorageFull, .. })
}

impl<M: MappedMedium> Subject<M> for DiskUnderTest<M> {
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
        match self.shared.write(op) {
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
        self.shared.on_files().get(key)
    }

    fn scan(&self, each: &mut dyn FnMut(Key, Version)) -> Result<(), String> {
        self.shared.on_files().scan(each)
    }

    /// Done when the files are opened.
    fn collect(&self) {}

    fn verify(&self) -> Vec<String> {
        let report = self.shared.store().check(&mut |_, _| {});
        let store = report.findings.iter().map(ToString::to_string);
        store.chain(self.files.check()).chain(findings(self.pool())).collect()
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
        // A store in a lost pool cannot be salvaged.
        refused_after_reboot(medium(), plan).map(|()| Vec::new())
    }
}
