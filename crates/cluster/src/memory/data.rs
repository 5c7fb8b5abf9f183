//! The pool: the store in it, its bytes for the fabric, and how many keys each slot has.

use super::area::Area;
use super::error::MemoryError;
use super::ledger;
use crate::arbiter::Incarnation;
use crate::entry::{Change, Entry};
use crate::slot::{SLOTS, SlotRange};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::*};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use terrace::Store;
use terrace_engine::direct::{self, Direct, Key, Settings};
use terrace_engine::{
    Cursor, Durability, Durably, Engine, ManualClock, Put, ReadError, Write, WriteError, WriteKind,
};
use terrace_fabric::Memory;
use terrace_index::{Bytes, CURSOR_LIMIT, CacheBounds, KeyKind, PointIndex, hash::Clht};
use terrace_medium::Shm;
use terrace_pool::{Pool, PoolOptions, Start};
use terrace_protocol::slot;

/// Keys that a step of a scan looks at.
const STEP: usize = 256;

/// The pool's bytes, as serving nodes read them.
pub(crate) struct PoolBytes {
    pool: Pool<Shm>,
    words: usize,
}

impl Memory for PoolBytes {
    fn words(&self) -> &[AtomicU64] {
        &self.pool.region().words()[..self.words]
    }
}

/// The store in the pool.
pub(crate) struct Data {
    pool: Pool<Shm>,
    pub(crate) engine: Arc<dyn Engine>,
    /// Has the threads of the store; closed last.
    store: Store,
    keys: Box<[AtomicU64]>,
    counting: Counting,
    /// Changes that were not made: of slots that were not the writer's, or that no store takes.
    pub(crate) refused: AtomicU64,
}

/// How far the keys are counted after a start. Changes go on meanwhile: those of keys behind the
/// frontier are counted with it.
struct Counting {
    /// Of the index's hashes.
    seed: u64,
    is_done: AtomicBool,
    /// The cursor up to which all is counted. Its lock is held over a change and its count, and
    /// over a step.
    frontier: Mutex<u64>,
    /// Changes that wait for the lock: a step begins when there is none.
    waiting: AtomicUsize,
}

impl Counting {
    fn frontier(&self) -> MutexGuard<'_, u64> {
        self.frontier.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The cursor of a key: scans go by the hashes.
    fn place(&self, key: &[u8]) -> u64 {
        let unused = CURSOR_LIMIT.leading_zeros() + 1;
        <Bytes<Key> as KeyKind>::hash(key, self.seed) >> unused
    }

    /// Makes a change. It is told of which keys it counts the changes.
    fn change<T>(&self, change: impl FnOnce(&dyn Fn(&[u8]) -> bool) -> T) -> T {
        // ORDER: pairs with the store behind the last step.
        if self.is_done.load(Acquire) {
            return change(&|_| true);
        }
        self.waiting.fetch_add(1, Relaxed);
        let frontier = self.frontier();
        self.waiting.fetch_sub(1, Relaxed);
        change(&|key| self.place(key) < *frontier)
    }
}

/// The bytes of keys and values, and the result, of an entry that was applied.
pub(crate) type Applied = Result<(), WriteError>;

impl Data {
    /// Opens or creates the pool.
    pub(crate) fn open(path: &Path, size: u64, expected_keys: u64) -> Result<Self, MemoryError> {
        let failed = |what: String| MemoryError::Pool { pool: path.into(), what };
        let options = PoolOptions::at(path).size(size);
        let pool = options.open_or_create::<Shm>().map_err(|error| failed(error.to_string()))?;
        let wanted = Clht::<Shm, direct::Kind>::NAME;
        if let Some(other) = direct::index_in(&pool).filter(|name| name != wanted) {
            return Err(failed(format!("its index is {other}, and only {wanted} can be read one-sided")));
        }
        let settings = Settings {
            expected_keys,
            index_cache: CacheBounds::default(),
            verify_reads: true,
            read_only: false,
            durability: Durability::Process,
            // Nothing expires here: the owners of slots decide about time.
            clock: Arc::new(ManualClock::at(0)),
        };
        let engine = Direct::open::<Clht<Shm, Bytes<Key>>>(pool.clone(), settings);
        let engine: Arc<dyn Engine> = Arc::new(engine.map_err(|error| failed(error.to_string()))?);
        let store = Store::over(engine.clone()).map_err(|error| failed(error.to_string()))?;
        let keys = (0..SLOTS).map(|_| AtomicU64::new(0)).collect();
        let (frontier, waiting) = Default::default();
        let address = direct::remote::address_in(&pool).map_err(|error| failed(error.to_string()))?;
        let seed = address.ok_or_else(|| failed("it has no index".into()))?.seed;
        let counting = Counting { seed, is_done: AtomicBool::new(false), frontier, waiting };
        Ok(Self { pool, engine, store, keys, counting, refused: AtomicU64::new(0) })
    }

    /// The pool's unique number.
    pub(crate) fn id(&self) -> u128 {
        self.pool.uuid()
    }

    /// Whether it was created just now, or has no key.
    pub(crate) fn is_new(&self) -> bool {
        self.pool.found() == Start::Created || self.engine.is_empty()
    }

    /// The pool itself, for pins.
    pub(crate) fn pool(&self) -> &Pool<Shm> {
        &self.pool
    }

    /// Its bytes.
    pub(crate) fn bytes(&self) -> PoolBytes {
        let pool = self.pool.clone();
        let words = usize::try_from(pool.size() / 8).expect("a mapped pool");
        PoolBytes { pool, words }
    }

    /// What a serving node has to know to look up keys.
    pub(crate) fn address(&self) -> Result<[u64; 4], String> {
        let address = direct::remote::address_in(&self.pool).map_err(|error| error.to_string())?;
        let address = address.ok_or("the pool has no index")?;
        Ok([address.root, address.seed, address.start, address.end])
    }

    /// Free bytes. Takes about a millisecond for ten GiB.
    pub(crate) fn free_bytes(&self) -> u64 {
        self.pool.space().free
    }

    /// Keys of a slot.
    pub(crate) fn keys(&self, slot: u16) -> u64 {
        self.keys[usize::from(slot)].load(Relaxed)
    }

    /// Whether the keys of all slots are counted.
    pub(crate) fn is_counted(&self) -> bool {
        self.counting.is_done.load(Acquire)
    }

    /// Counts the keys of all slots, until `stop`.
    pub(crate) fn count_keys(&self, stop: &dyn Fn() -> bool) {
        let counting = &self.counting;
        while !stop() && !self.is_counted() {
            if counting.waiting.load(Relaxed) > 0 {
                std::thread::yield_now();
                continue;
            }
            let mut frontier = counting.frontier();
            let from = *frontier;
            // After the index has shrunk, a step begins before the frontier.
            let mut each = |key: &[u8], _: terrace_engine::Entry<'_>| {
                if counting.place(key) >= from {
                    self.add(key);
                }
            };
            let cursor = Cursor::from_number(from).expect("a scan stopped there");
            match self.scan(&cursor, STEP, &mut each) {
                Ok(next) if !next.is_end() => *frontier = next.number().expect("a place in a hash index"),
                ended => {
                    if let Err(error) = ended {
                        log::error!("the keys of each slot cannot be counted: {error}");
                    }
                    // Also for changes that wait for the lock now: every key is behind it.
                    *frontier = CURSOR_LIMIT;
                    // ORDER: pairs with the load in `change`: later changes are counted.
                    counting.is_done.store(true, Release);
                }
            }
        }
    }

    /// Visits entries from `cursor` on, as the engine does, but goes on behind damaged records. The
    /// store counts these.
    pub(crate) fn scan(
        &self,
        cursor: &Cursor,
        at_least: usize,
        each: &mut dyn FnMut(&[u8], terrace_engine::Entry<'_>),
    ) -> Result<Cursor, ReadError> {
        match self.engine.scan(cursor, at_least, each) {
            Err(ReadError::Skipped { next, .. }) => Ok(next),
            scanned => scanned,
        }
    }

    fn add(&self, key: &[u8]) {
        // ORDER: Relaxed: a slot has one writer, and readers need no other memory with the number.
        self.keys[usize::from(slot(key))].fetch_add(1, Relaxed);
    }

    fn subtract(&self, key: &[u8]) {
        let less = |keys: u64| Some(keys.saturating_sub(1));
        // ORDER: as in `add`.
        let _ = self.keys[usize::from(slot(key))].fetch_update(Relaxed, Relaxed, less);
    }

    /// Makes the changes of an entry, if the slots are this session's. May be repeated.
    pub(crate) fn apply(&self, entry: &Entry<'_>, session: Incarnation, area: &Area) -> Applied {
        match entry {
            Entry::Changes(changes) => {
                let is_sound = |change: &&Change<'_>| self.is_sound(change.key(), session, area);
                let sound: Vec<&Change<'_>> = changes.iter().filter(is_sound).collect();
                match sound[..] {
                    [] => Ok(()),
                    [change] => self.apply_one(change),
                    _ => self.apply_all(&sound),
                }
            }
            Entry::Clear(ranges) => self.clear(ranges, session, area),
            Entry::End => Ok(()),
        }
    }

    fn is_sound(&self, key: &[u8], session: Incarnation, area: &Area) -> bool {
        let (slot, is_long) = (slot(key), key.len() > terrace_engine::KEY_MAX);
        let is_sound = !is_long && ledger::owner(area, slot) == session;
        if !is_sound {
            let why = if is_long { "its key is too long" } else { "another node owns it" };
            log::error!("session {session} has written a change of slot {slot} that is not made: {why}");
            self.refused.fetch_add(1, Relaxed);
        }
        is_sound
    }

    fn is_present(&self, key: &[u8]) -> bool {
        // A damaged record was not counted.
        matches!(self.engine.token(key), Ok(Some(_)))
    }

    fn apply_one(&self, change: &Change<'_>) -> Applied {
        self.counting.change(|is_counted| {
            match *change {
                Change::Put { key, value, expires_at } => {
                    let was_present = self.is_present(key);
                    self.engine.put(Put { key, value, expires_at }, Durably::Store)?;
                    if !was_present && is_counted(key) {
                        self.add(key);
                    }
                }
                Change::Remove { key } => {
                    if self.engine.remove(key, Durably::Store)? && is_counted(key) {
                        self.subtract(key);
                    }
                }
            }
            Ok(())
        })
    }

    /// Of several changes of a key, the last one counts.
    fn apply_all(&self, changes: &[&Change<'_>]) -> Applied {
        let last: BTreeMap<&[u8], &Change<'_>> =
            changes.iter().map(|change| (change.key(), *change)).collect();
        let writes: Vec<Write<'_>> = last.values().map(|change| write_of(change)).collect();
        self.counting.change(|is_counted| {
            let were_present: Vec<bool> = last.keys().map(|key| self.is_present(key)).collect();
            self.engine.commit(&writes, &[], Durably::Store)?;
            let changed = last.values().zip(were_present).filter(|(change, _)| is_counted(change.key()));
            for (change, was_present) in changed {
                match change {
                    Change::Put { key, .. } if !was_present => self.add(key),
                    Change::Remove { key } if was_present => self.subtract(key),
                    _ => {}
                }
            }
            Ok(())
        })
    }

    /// Removes all keys of these slots that are the session's.
    fn clear(&self, ranges: &[SlotRange], session: Incarnation, area: &Area) -> Applied {
        let mut cleared = vec![false; SLOTS.into()];
        let slots = ranges.iter().flat_map(|range| range.slots());
        slots.for_each(|slot| cleared[usize::from(slot)] = ledger::owner(area, slot) == session);
        let (mut cursor, mut keys) = (Cursor::START, Vec::new());
        while !cursor.is_end() {
            let mut each = |key: &[u8], _: terrace_engine::Entry<'_>| {
                if cleared[usize::from(slot(key))] {
                    keys.push(key.to_vec());
                }
            };
            cursor = self.scan(&cursor, STEP, &mut each)?;
            for key in keys.drain(..) {
                self.apply_one(&Change::Remove { key: &key })?;
            }
        }
        Ok(())
    }

    /// Moves records together, and frees what nobody reads any more.
    pub(crate) fn make_room(&self) {
        if let Some(pool) = self.engine.pooled() {
            pool.compact();
            pool.maintain();
        }
    }

    /// Closes the store. Nobody else has the engine or the pool any more.
    pub(crate) fn close(self) -> Result<(), String> {
        let Self { pool, engine, store, .. } = self;
        drop((pool, engine));
        store.close().map_err(|error| error.to_string())
    }
}

fn write_of<'a>(change: &Change<'a>) -> Write<'a> {
    let what = match *change {
        Change::Put { value, expires_at, .. } => WriteKind::Put { value, expires_at },
        Change::Remove { .. } => WriteKind::Remove,
    };
    Write { key: change.key(), what }
}

/// The path of the log area of a pool.
pub(crate) fn log_path(pool: &Path) -> PathBuf {
    let mut path = pool.as_os_str().to_owned();
    path.push(".log");
    path.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A change has found that counting goes on, and gets the lock behind the last step.
    #[test]
    fn change_that_waited_for_the_last_step_is_counted() {
        let directory = tempfile::tempdir_in("/dev/shm").unwrap();
        let data = Data::open(&directory.path().join("pool"), 64 << 20, 0).unwrap();
        data.count_keys(&|| false);
        data.counting.is_done.store(false, Relaxed);
        for number in 0..100_u32 {
            data.apply_one(&Change::Put { key: &number.to_le_bytes(), value: b"", expires_at: None })
                .unwrap();
        }
        assert_eq!((0..SLOTS).map(|slot| data.keys(slot)).sum::<u64>(), 100);
    }
}
