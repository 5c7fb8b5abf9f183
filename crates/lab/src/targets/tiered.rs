//! `engine::tiered` over DRAM and the files of a pool: the crash loses DRAM, and what the pool had
//! not been told to keep.

use super::direct::{key_bytes, value, version_of};
use super::options::{findings, first_eight, is_unmade, options, refused_after_reboot};
use std::ops::Bound;
use std::path::Path;
use std::sync::Arc;
use terrace_engine::tiered::{self, Settings, Shares, Tiered};
use terrace_engine::{
    Change, Chore, Cursor, Durability, Durably, Engine, ManualClock, OnDisk, Put, Rest, Write, WriteError,
    WriteKind,
};
use terrace_index::hash::Turbo;
use terrace_medium::{Dram, MappedMedium};
use terrace_pool::{Geometry, Pool, PoolOptions};
use terrace_testkit::crash::{Effect, Key, Mix, Op, Plan, RandomSource, Reply, Subject, Target, Version};
use terrace_tier::PoolFiles;

type Store<M> = Tiered<PoolFiles<M>, Dram>;

/// The engine.
pub struct TieredEngine;

const TOP: &str = "/";
const MIX: Mix =
    Mix { put: 30, insert: 6, update: 8, remove: 14, swap: 6, batch: 12, puts: 4, background: 20 };

impl Target for TieredEngine {
    const NAME: &'static str = "tiered";
    const BYTES: (usize, usize) = (256 << 10, 256 << 10);
    type Subject<M: MappedMedium> = TieredUnderTest<M>;

    fn plan(seed: u64) -> Plan {
        let mut dice = RandomSource::new(seed);
        let keys = 2 + dice.roll(6) as usize;
        let (mut model, mut next) = (vec![None; keys], 0);
        let count = dice.roll(12) as usize;
        let before = MIX.random(&mut dice, count, &mut next, &mut model);
        let count = 3 + dice.roll(8) as usize;
        let ops = MIX.random(&mut dice, count, &mut next, &mut model);
        let mut after: Vec<Op> = (0..keys).map(|key| Op::Put(key, (1 << 20) + 60 * key as u64)).collect();
        after.extend((0..6).map(Op::Background));
        after.extend([Op::Remove(0), Op::Put(0, (1 << 20) + 6000)]);
        let names: Vec<_> = (0..keys as u64).map(|key| key_bytes(key * 7 + seed % 100)).collect();
        let creation = dice.roll(16) == 0;
        let (revived, names) = (first_eight(&after), Arc::new(names));
        Plan { seed, keys, hot: 0..keys, threads: 1, names, before, ops, after, revived, creation }
    }
}

/// The smallest parts that a value of the histories fits into.
fn settings(seed: u64) -> Settings {
    let mut settings = Settings::with_dram(512 << 10, Arc::new(ManualClock::at(1_000_000)), seed | 1);
    settings.shares = Shares { page_bytes: 4 << 10, block_pages: 2, seats: 1 };
    settings.stripes = 4;
    settings.segment_bytes = 8 << 10;
    settings.log_bytes = 16 << 10;
    settings.durability = Durability::Power;
    settings
}

fn dram() -> tiered::MakePool<Dram> {
    let geometry = Geometry { thread_slots: 2, ..Geometry::tiny() };
    Box::new(move || PoolOptions::anonymous().size(512 << 10).geometry(geometry).reproducible().create())
}

/// A store and the keys of its run.
pub struct TieredUnderTest<M: MappedMedium> {
    store: Store<M>,
    files: PoolFiles<M>,
    keys: Arc<Vec<Vec<u8>>>,
}

impl<M: MappedMedium> TieredUnderTest<M> {
    fn over(pool: Pool<M>, plan: &Plan) -> Result<Self, String> {
        let top = Path::new(TOP);
        let files = match PoolFiles::open(pool.clone(), top).map_err(|error| error.to_string())? {
            Some(files) => files,
            None => PoolFiles::create(pool, top).map_err(|error| error.to_string())?,
        };
        let exists = Store::<M>::exists(&files, top).map_err(|error| error.to_string())?;
        let opened = match exists {
            true => {
                Tiered::open::<Turbo<Dram, tiered::Kind>>(files.clone(), top, settings(plan.seed), dram())
            }
            false => {
                Tiered::create::<Turbo<Dram, tiered::Kind>>(files.clone(), top, settings(plan.seed), dram())
            }
        };
        Ok(Self { store: opened.map_err(|error| error.to_string())?, files, keys: plan.names() })
    }

    fn put(&self, key: Key, version: Version) -> Result<(), WriteError> {
        let value = value(key, version);
        self.store.put(Put { key: &self.keys[key], value: &value, expires_at: None }, Durably::Store)
    }

    /// Changes a key to what `decide` returns for its version.
    fn modify(
        &self,
        key: Key,
        decide: impl Fn(Option<Version>) -> Option<Option<Version>>,
    ) -> Result<Option<Version>, WriteError> {
        let mut seen = None;
        let mut change = |entry: Option<terrace_engine::Entry<'_>>| {
            seen = entry.and_then(|entry| version_of(key, entry).ok());
            match decide(seen) {
                None => Change::Keep,
                Some(None) => Change::Remove,
                Some(Some(version)) => Change::Put { value: value(key, version), expires_at: None },
            }
        };
        self.store.modify(&self.keys[key], &mut change, Durably::Store)?;
        Ok(seen)
    }

    fn commit(&self, effects: &[Effect]) -> Result<(), WriteError> {
        let values: Vec<_> =
            effects.iter().map(|&(key, to)| (key, to.map(|version| value(key, version)))).collect();
        let writes: Vec<Write<'_>> = values
            .iter()
            .map(|(key, value)| {
                let put = |value| WriteKind::Put { value, expires_at: None };
                Write { key: &self.keys[*key], what: value.as_deref().map_or(WriteKind::Remove, put) }
            })
            .collect();
        self.store.commit(&writes, &[], Durably::Store).map(drop)
    }

    fn put_many(&self, puts: &[(Key, Version)]) -> Result<(), WriteError> {
        let values: Vec<_> = puts.iter().map(|&(key, version)| value(key, version)).collect();
        let puts: Vec<Put<'_>> = puts
            .iter()
            .zip(&values)
            .map(|(&(key, _), value)| Put { key: &self.keys[key], value, expires_at: None })
            .collect();
        self.store.put_many(&puts, Durably::Store).into_iter().collect()
    }

    /// Background work, which changes no value.
    fn background(&self, step: u64) -> Result<(), WriteError> {
        let all = (Bound::Unbounded, Bound::Unbounded);
        match step % 6 {
            0 => OnDisk::flush(&self.store)?,
            1 => self.store.evict(),
            2 => OnDisk::compact(&self.store, all.0, all.1)?,
            3 => self.store.drop_oldest_copies(step % 12 < 6),
            _ => {
                for chore in [Chore::Flush, Chore::Merge, Chore::Log, Chore::Maintain] {
                    while self.store.step(chore, &|| false) == Rest::More {}
                }
            }
        }
        Ok(())
    }

    fn write(&self, op: &Op) -> Result<Option<Version>, WriteError> {
        let get = |key| self.get(key).unwrap_or(None);
        match *op {
            Op::Put(key, version) => {
                let before = get(key);
                self.put(key, version).map(|()| before)
            }
            Op::Insert(key, version) => self.modify(key, |seen| seen.is_none().then_some(Some(version))),
            Op::Update(key, version) => self.modify(key, |seen| seen.map(|_| Some(version))),
            Op::Remove(key) => {
                let before = get(key);
                self.store.remove(&self.keys[key], Durably::Store).map(|_| before)
            }
            Op::Swap(key, expected, new) => self.modify(key, |seen| (seen == expected).then_some(new)),
            Op::Batch(ref effects) => self.commit(effects).map(|()| None),
            Op::Puts(ref puts) => self.put_many(puts).map(|()| None),
            Op::Background(step) => self.background(step).map(|()| None),
        }
    }
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
        match self.write(op) {
            Ok(found) => Reply::Found(found),
            Err(WriteError::PoolFull { .. }) => Reply::Full,
            Err(_) => Reply::Broken("the operation is refused"),
        }
    }

    fn knows_what_it_found(&self, op: &Op) -> bool {
        !matches!(op, Op::Put(..) | Op::Remove(_))
    }

    fn get(&self, key: Key) -> Result<Option<Version>, String> {
        let value = self.store.get(&self.keys[key]).map_err(|error| error.to_string())?;
        value.map(|value| version_of(key, value.entry())).transpose()
    }

    fn scan(&self, each: &mut dyn FnMut(Key, Version)) -> Result<(), String> {
        let (mut wrong, mut cursor) = (None, Cursor::START);
        while !cursor.is_end() {
            let next = self.store.scan(&cursor, 100, &mut |bytes, entry| {
                let key = self.keys.iter().position(|key| key == bytes).unwrap_or(usize::MAX);
                match version_of(key, entry) {
                    Ok(version) => each(key, version),
                    Err(why) => wrong = Some(format!("a scan finds {why}")),
                }
            });
            cursor = next.map_err(|error| error.to_string())?;
        }
        wrong.map_or(Ok(()), Err)
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
        let Self { store, files, .. } = self;
        let pool = files.pool().clone();
        drop(store);
        drop(files);
        pool.abandon();
    }

    fn salvaged(medium: &dyn Fn() -> M, plan: &Plan) -> Result<Vec<(Key, Version)>, String> {
        // A store of this engine cannot be salvaged.
        refused_after_reboot(medium(), plan).map(|()| Vec::new())
    }
}
