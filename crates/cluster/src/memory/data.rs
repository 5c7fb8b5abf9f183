//! The pool: the store in it, its bytes for the fabric, and the changes that logs make to it.

use super::area::Area;
use super::clearing::{Clearer, Clearing, Place};
use super::counting::{Counting, STEP};
use super::error::MemoryError;
use super::ledger;
use crate::arbiter::Incarnation;
use crate::entry::{Change, Entry};
use crate::lock::lock;
use crate::slot::SlotRange;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use terrace::Store;
use terrace_direct::Settings;
use terrace_engine::{
    Cursor, Durability, Durably, Engine, ManualClock, Put, ReadError, Write, WriteError, WriteKind,
};
use terrace_fabric::Memory;
use terrace_index::{CacheBounds, PointIndex, hash::Clht};
use terrace_medium::Shm;
use terrace_pool::{Pool, PoolOptions, Start};
use terrace_server::databases::slot_of;

/// Steps of a scan in a step of clearing slots: some milliseconds.
pub(super) const CLEAR_STEPS: usize = 16;

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

/// The store in the pool. Below stand the count of keys, and the walk that clears slots.
pub(crate) struct Data {
    pool: Pool<Shm>,
    pub(crate) engine: Arc<dyn Engine>,
    /// Has the threads of the store; closed last.
    store: Store,
    pub(super) counting: Counting,
    pub(super) clearing: Mutex<Clearing>,
    /// Changes that were not made: of slots that were not the writer's, or that no store takes.
    pub(crate) refused: AtomicU64,
}

/// The result of a change.
type Applied = Result<(), WriteError>;

/// How far an entry is applied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Progress {
    Done,
    /// It is to be applied again.
    Goes,
}

/// Whether a change that fails so never succeeds, however often it is tried.
fn is_lasting(error: &WriteError) -> bool {
    !matches!(
        error,
        WriteError::PoolFull { .. }
            | WriteError::MemoryLimit { .. }
            | WriteError::DramFull { .. }
            | WriteError::Io { .. }
            | WriteError::Stopped(_)
            | WriteError::Unavailable(_)
            | WriteError::Unknown(_)
    )
}

/// Makes changes `together`. If that can never be, makes each `alone`, and refuses those that can
/// never be made: their log must go on.
pub(super) fn make(
    changes: &[&Change<'_>],
    together: impl FnOnce(&[&Change<'_>]) -> Applied,
    alone: impl Fn(&Change<'_>) -> Applied,
    refuse: impl Fn(&Change<'_>, &WriteError),
) -> Applied {
    match together(changes) {
        Err(error) if is_lasting(&error) => {}
        made => return made,
    }
    for change in changes {
        match alone(change) {
            Err(error) if is_lasting(&error) => refuse(change, &error),
            made => made?,
        }
    }
    Ok(())
}

/// Grows a pool to so many bytes, if it has fewer. If that cannot be, it stays what it was, and the
/// log says why.
fn grow(pool: &Pool<Shm>, bytes: u64) {
    let before = pool.size();
    if bytes <= before {
        return;
    }
    match pool.grow(bytes) {
        Ok(size) => log::info!("the pool has grown from {before} to {size} bytes"),
        Err(error) => log::error!(
            "the pool keeps its {before} bytes, and does not grow to {bytes}: {error}. What it has is served"
        ),
    }
}

/// The index that can be read one-sided.
const INDEX: &str = Clht::<Shm, terrace_direct::Kind>::NAME;

/// Opens or creates a pool whose index can be read one-sided.
fn open_pool(path: &Path, size: u64, grows: bool) -> Result<Pool<Shm>, String> {
    let mut options = PoolOptions::at(path).size(size);
    if grows {
        // It has addresses to grow to that size, whatever it has now.
        options = options.max_size(size);
    }
    let pool = options.open_or_create::<Shm>().map_err(|error| error.to_string())?;
    if grows {
        grow(&pool, size);
    }
    match terrace_direct::index_in(&pool).filter(|name| name != INDEX) {
        Some(other) => Err(format!("its index is {other}, and only {INDEX} can be read one-sided")),
        None => Ok(pool),
    }
}

impl Data {
    /// Opens or creates the pool. One that is smaller grows, if it is to.
    pub(crate) fn open(
        path: &Path,
        (size, grows): (u64, bool),
        expected_keys: u64,
    ) -> Result<Self, MemoryError> {
        let failed = |what: String| MemoryError::Pool { pool: path.into(), what };
        let pool = open_pool(path, size, grows).map_err(failed)?;
        let settings = Settings {
            expected_keys,
            index_cache: CacheBounds::default(),
            index_dram: Some(0),
            verify_reads: true,
            read_only: false,
            durability: Durability::Process,
            // Nothing expires here: the owners of slots decide about time.
            clock: Arc::new(ManualClock::at(0)),
        };
        let engine = terrace_direct::open_shm(INDEX, pool.clone(), settings)
            .map_err(|error| failed(error.to_string()))?;
        let store = Store::over(engine.clone()).map_err(|error| failed(error.to_string()))?;
        let address = terrace_direct::remote::address_in(&pool).map_err(|error| failed(error.to_string()))?;
        let seed = address.ok_or_else(|| failed("it has no index".into()))?.seed;
        let (clearing, refused) = Default::default();
        Ok(Self { pool, engine, store, counting: Counting::new(seed), clearing, refused })
    }

    /// The pool's unique number.
    pub(crate) fn id(&self) -> u128 {
        self.pool.uuid()
    }

    /// Whether it was created just now, or has no key.
    pub(crate) fn is_new(&self) -> bool {
        self.pool.found() == Start::Created || self.engine.is_empty()
    }

    /// The store, without the count of each slot's keys.
    pub(crate) fn store(&self) -> &Store {
        &self.store
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
        let address = terrace_direct::remote::address_in(&self.pool).map_err(|error| error.to_string())?;
        let address = address.ok_or("the pool has no index")?;
        Ok([address.root, address.seed, address.start, address.end])
    }

    /// Free bytes, and those that are once their readers have ended. Takes about a millisecond for
    /// ten GiB.
    pub(crate) fn room(&self) -> (u64, u64) {
        let space = self.pool.space();
        (space.free, space.waiting_bytes)
    }

    /// Keys of a slot.
    pub(crate) fn keys(&self, slot: u16) -> u64 {
        self.counting.keys(slot)
    }

    /// Whether the keys of all slots are counted.
    pub(crate) fn is_counted(&self) -> bool {
        self.counting.is_done()
    }

    /// Counts the keys of all slots, until `stop`.
    pub(crate) fn count_keys(&self, stop: &dyn Fn() -> bool) {
        self.counting.run(&*self.engine, stop);
    }

    /// Visits entries from `cursor` on, as the engine does, but goes on behind damaged records, and
    /// tells how many these are.
    pub(crate) fn scan(
        &self,
        cursor: &Cursor,
        at_least: usize,
        each: &mut dyn FnMut(&[u8], terrace_engine::Entry<'_>),
    ) -> Result<(Cursor, u64), ReadError> {
        match self.engine.scan(cursor, at_least, each) {
            // Damage of the index may hide one.
            Err(ReadError::Skipped { next, records, .. }) => Ok((next, records.max(1))),
            scanned => Ok((scanned?, 0)),
        }
    }

    /// Makes the changes of an entry of a shard's log, if the slots are this session's. May be
    /// repeated.
    pub(crate) fn apply(
        &self,
        entry: &Entry<'_>,
        (session, shard): Clearer,
        area: &Area,
    ) -> Result<Progress, WriteError> {
        match entry {
            Entry::Changes(changes) => {
                let is_sound = |change: &&Change<'_>| self.is_sound(change.key(), session, area);
                let sound: Vec<&Change<'_>> = changes.iter().filter(is_sound).collect();
                let together = |changes: &[&Change<'_>]| match changes {
                    [] => Ok(()),
                    [change] => self.apply_one(change),
                    _ => self.apply_all(changes),
                };
                let refuse = |change: &Change<'_>, error: &WriteError| {
                    self.refuse(change.key(), session, &error.to_string());
                };
                make(&sound, together, |change| self.apply_one(change), refuse)?;
            }
            Entry::Clear(ranges) => {
                let is_owned = |slot: u16| ledger::owner(area, slot) == session;
                return self.clear((session, shard), ranges, is_owned);
            }
            Entry::End => {}
        }
        Ok(Progress::Done)
    }

    fn refuse(&self, key: &[u8], session: Incarnation, why: &str) {
        log::error!(
            "session {session} has written a change of slot {} that is not made: {why}",
            slot_of(key)
        );
        self.refused.fetch_add(1, Relaxed);
    }

    fn is_sound(&self, key: &[u8], session: Incarnation, area: &Area) -> bool {
        let (slot, is_long) = (slot_of(key), key.len() > terrace_engine::KEY_MAX);
        let is_sound = !is_long && ledger::owner(area, slot) == session;
        if !is_sound {
            self.refuse(key, session, if is_long { "its key is too long" } else { "another node owns it" });
        }
        is_sound
    }

    /// Whether a key is counted, if its place is. A damaged record is, unless it may be one of
    /// those that were left out.
    fn is_present(&self, key: &[u8]) -> bool {
        match self.engine.token(key) {
            Ok(token) => token.is_some(),
            Err(_) => !self.counting.has_skipped(),
        }
    }

    pub(super) fn apply_one(&self, change: &Change<'_>) -> Applied {
        self.counting.change(|is_counted| {
            match *change {
                Change::Put { key, value, expires_at } => {
                    let was_present = self.is_present(key);
                    self.engine.put(Put { key, value, expires_at }, Durably::Store)?;
                    if !was_present && is_counted(key) {
                        self.counting.add(key);
                    }
                }
                Change::Remove { key } => {
                    if self.engine.remove(key, Durably::Store)? && is_counted(key) {
                        self.counting.subtract(key);
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
                    Change::Put { key, .. } if !was_present => self.counting.add(key),
                    Change::Remove { key } if was_present => self.counting.subtract(key),
                    _ => {}
                }
            }
            Ok(())
        })
    }

    /// Removes keys of these slots that are owned: some, and those of other entries that clear
    /// slots. Nothing else is written to the slots until all are removed.
    pub(super) fn clear(
        &self,
        clearer: Clearer,
        ranges: &[SlotRange],
        is_owned: impl Fn(u16) -> bool,
    ) -> Result<Progress, WriteError> {
        // Held over the step: slots whose keys are all removed are left out from the next one on.
        let mut clearing = lock(&self.clearing);
        clearing.enter(clearer, || {
            ranges.iter().flat_map(|range| range.slots()).filter(|slot| is_owned(*slot)).collect()
        });
        if clearing.goes_on(clearer) {
            let next = self.clear_step(&clearing, clearer.0)?;
            clearing.walked(next);
        }
        if clearing.goes_on(clearer) {
            return Ok(Progress::Goes);
        }
        clearing.leave(clearer);
        Ok(Progress::Done)
    }

    /// Removes keys of all slots that are being cleared. Returns where the walk goes on.
    fn clear_step(&self, clearing: &Clearing, session: Incarnation) -> Result<Place, WriteError> {
        let ((round, mut at), mut keys) = (clearing.at(), Vec::new());
        for _ in 0..CLEAR_STEPS {
            let mut each = |key: &[u8], _: terrace_engine::Entry<'_>| {
                if clearing.clears(slot_of(key)) {
                    keys.push(key.to_vec());
                }
            };
            let cursor = Cursor::from_number(at).expect("a scan stopped there");
            let (next, _) = self.scan(&cursor, STEP, &mut each)?;
            for key in keys.drain(..) {
                match self.apply_one(&Change::Remove { key: &key }) {
                    Err(error) if is_lasting(&error) => self.refuse(&key, session, &error.to_string()),
                    made => made?,
                }
            }
            match next.number() {
                Some(next) if next > 0 => at = next,
                _ => return Ok((round + 1, 0)),
            }
        }
        Ok((round, at))
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
