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
use terrace_direct::{Direct, Key, Settings};
use terrace_engine::{
    Cursor, Durability, Durably, Engine, ManualClock, Put, ReadError, Write, WriteError, WriteKind,
};
use terrace_fabric::Memory;
use terrace_index::{Bytes, CURSOR_LIMIT, CacheBounds, KeyKind, PointIndex, hash::Clht};
use terrace_medium::Shm;
use terrace_pool::{Pool, PoolOptions, Start};
use terrace_server::databases::slot_of;

/// Keys that a step of a scan looks at.
const STEP: usize = 256;
/// Steps of a scan in a step of clearing slots: some milliseconds.
const CLEAR_STEPS: usize = 16;

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
    clearing: Mutex<Clearing>,
    /// Changes that were not made: of slots that were not the writer's, or that no store takes.
    pub(crate) refused: AtomicU64,
}

/// Entries that clear slots, and wait at the heads of their logs. One walk through the index, round
/// and round, removes the keys of all of them.
#[derive(Default)]
struct Clearing {
    /// Where the walk goes on.
    at: Place,
    waiting: BTreeMap<Clearer, Clear>,
}

/// A place of the walk: how often it was at the end, and its cursor.
type Place = (u64, u64);

/// The session and the shard of an entry that clears slots.
type Clearer = (Incarnation, usize);

struct Clear {
    slots: Vec<bool>,
    /// Where the walk was everywhere since this came: the same cursor, one round later. Steps
    /// differ from round to round, and the last one of that round may jump over it.
    until: Place,
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
    /// Whether damaged records were left out. Those that are damaged later were counted.
    has_skipped: AtomicBool,
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
fn make(
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

impl Data {
    /// Opens or creates the pool. One that is smaller grows, if it is to.
    pub(crate) fn open(
        path: &Path,
        (size, grows): (u64, bool),
        expected_keys: u64,
    ) -> Result<Self, MemoryError> {
        let failed = |what: String| MemoryError::Pool { pool: path.into(), what };
        let mut options = PoolOptions::at(path).size(size);
        if grows {
            // It has addresses to grow to that size, whatever it has now.
            options = options.max_size(size);
        }
        let pool = options.open_or_create::<Shm>().map_err(|error| failed(error.to_string()))?;
        if grows {
            grow(&pool, size);
        }
        let wanted = Clht::<Shm, terrace_direct::Kind>::NAME;
        if let Some(other) = terrace_direct::index_in(&pool).filter(|name| name != wanted) {
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
        let (frontier, waiting, has_skipped) = Default::default();
        let address = terrace_direct::remote::address_in(&pool).map_err(|error| failed(error.to_string()))?;
        let seed = address.ok_or_else(|| failed("it has no index".into()))?.seed;
        let counting = Counting { seed, is_done: AtomicBool::new(false), frontier, waiting, has_skipped };
        let (clearing, refused) = Default::default();
        Ok(Self { pool, engine, store, keys, counting, clearing, refused })
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
            let scanned = self.engine.scan(&cursor, STEP, &mut each);
            if matches!(scanned, Err(ReadError::Skipped { .. })) {
                // ORDER: Relaxed: changes read it under the lock, or once all is counted.
                counting.has_skipped.store(true, Relaxed);
            }
            match go_on(scanned) {
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

    fn add(&self, key: &[u8]) {
        // ORDER: Relaxed: a slot has one writer, and readers need no other memory with the number.
        self.keys[usize::from(slot_of(key))].fetch_add(1, Relaxed);
    }

    fn subtract(&self, key: &[u8]) {
        let less = |keys: u64| Some(keys.saturating_sub(1));
        // ORDER: as in `add`.
        let _ = self.keys[usize::from(slot_of(key))].fetch_update(Relaxed, Relaxed, less);
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
            Err(_) => !self.counting.has_skipped.load(Relaxed),
        }
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

    /// Removes keys of these slots that are owned: some, and those of other entries that clear
    /// slots. Nothing else is written to the slots until all are removed.
    fn clear(
        &self,
        clearer: Clearer,
        ranges: &[SlotRange],
        is_owned: impl Fn(u16) -> bool,
    ) -> Result<Progress, WriteError> {
        // Held over the step: slots whose keys are all removed are left out from the next one on.
        let mut clearing = self.clearing.lock().unwrap_or_else(PoisonError::into_inner);
        let Clearing { at, waiting } = &mut *clearing;
        waiting.entry(clearer).or_insert_with(|| {
            let mut slots = vec![false; SLOTS.into()];
            let owned = ranges.iter().flat_map(|range| range.slots()).filter(|slot| is_owned(*slot));
            owned.for_each(|slot| slots[usize::from(slot)] = true);
            Clear { slots, until: (at.0 + 1, at.1) }
        });
        let until = waiting[&clearer].until;
        if *at < until {
            *at = self.clear_step(*at, clearer.0, waiting)?;
        }
        if *at < until {
            return Ok(Progress::Goes);
        }
        waiting.remove(&clearer);
        Ok(Progress::Done)
    }

    /// Removes keys of all slots that are being cleared, from a place on. Returns where to go on.
    fn clear_step(
        &self,
        from: Place,
        session: Incarnation,
        waiting: &BTreeMap<Clearer, Clear>,
    ) -> Result<Place, WriteError> {
        let ((round, mut at), mut keys) = (from, Vec::new());
        for _ in 0..CLEAR_STEPS {
            let mut each = |key: &[u8], _: terrace_engine::Entry<'_>| {
                let slot = usize::from(slot_of(key));
                if waiting.values().any(|clear| from < clear.until && clear.slots[slot]) {
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

/// Goes on behind damaged records.
fn go_on(scanned: Result<Cursor, ReadError>) -> Result<Cursor, ReadError> {
    match scanned {
        Err(ReadError::Skipped { next, .. }) => Ok(next),
        scanned => scanned,
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

    /// Keys that two entries clear together are looked at twice at most, whenever the second comes.
    #[test]
    fn slots_of_two_entries_are_cleared_in_one_walk() {
        let directory = tempfile::tempdir_in("/dev/shm").unwrap();
        let data = Data::open(&directory.path().join("pool"), (64 << 20, false), 0).unwrap();
        data.count_keys(&|| false);
        let keys: Vec<Vec<u8>> = (0..100_000_u32).map(|number| number.to_le_bytes().to_vec()).collect();
        for key in &keys {
            data.apply_one(&Change::Put { key, value: b"", expires_at: None }).unwrap();
        }
        // Slots 0 to 4095 and 4096 to 8191; the second entry clears none that another owns.
        let ranges = |first: u16| [SlotRange::new(first, first + 4095).unwrap()];
        let (mut is_done, mut steps) = ([false; 2], 0_usize);
        while is_done != [true; 2] {
            for (nth, is_done) in is_done.iter_mut().enumerate() {
                // The second one comes later.
                if !*is_done && (nth == 0 || steps >= 7) {
                    let done = data.clear((7, nth), &ranges(4096 * nth as u16), |slot| slot < 8000).unwrap();
                    *is_done = done == Progress::Done;
                    steps += 1;
                }
            }
        }
        let left = |key: &&Vec<u8>| slot_of(key) >= 8000;
        assert_eq!(data.engine.len().get(), keys.iter().filter(left).count() as u64);
        assert!((0..SLOTS).all(|slot| slot >= 8000 || data.keys(slot) == 0));
        assert!(steps * STEP * CLEAR_STEPS <= 2 * keys.len() + 4 * STEP * CLEAR_STEPS, "{steps} steps");
        assert!(data.clearing.lock().unwrap().waiting.is_empty());
    }

    /// The walk of the first entry has passed a part of the index. Then few keys are left, and a
    /// step always goes to the end.
    #[test]
    fn clear_that_comes_in_the_middle_of_a_walk_ends() {
        let directory = tempfile::tempdir_in("/dev/shm").unwrap();
        let data = Data::open(&directory.path().join("pool"), (64 << 20, false), 0).unwrap();
        data.count_keys(&|| false);
        for number in 0..6000_u32 {
            data.apply_one(&Change::Put { key: &number.to_le_bytes(), value: b"", expires_at: None })
                .unwrap();
        }
        let ranges = |first: u16| [SlotRange::new(first, first + 8191).unwrap()];
        let (mut is_done, mut steps) = ([false; 2], 0_usize);
        while is_done != [true; 2] {
            for (nth, is_done) in is_done.iter_mut().enumerate() {
                if !*is_done {
                    let done = data.clear((7, nth), &ranges(8192 * nth as u16), |_| true).unwrap();
                    *is_done = done == Progress::Done;
                    steps += 1;
                    assert!(steps < 100, "the walk never ends; {} keys left", data.engine.len().get());
                }
            }
        }
    }

    #[test]
    fn put_over_a_record_that_was_damaged_later_counts_once() {
        let directory = tempfile::tempdir_in("/dev/shm").unwrap();
        let data = Data::open(&directory.path().join("pool"), (64 << 20, false), 0).unwrap();
        data.count_keys(&|| false);
        let put = Change::Put { key: b"key", value: &[0xd7; 64], expires_at: None };
        data.apply_one(&put).unwrap();
        let bytes = data.bytes();
        let of_value = u64::from_le_bytes([0xd7; 8]);
        let word = bytes.words().iter().find(|word| word.load(Relaxed) == of_value);
        word.expect("a word of the value").store(!of_value, Relaxed);
        assert!(data.engine.token(b"key").is_err());
        data.apply_one(&put).unwrap();
        assert_eq!(data.keys(slot_of(b"key")), 1);
        data.apply_one(&Change::Remove { key: b"key" }).unwrap();
        assert_eq!(data.keys(slot_of(b"key")), 0);
    }

    #[test]
    fn change_that_can_never_be_made_is_refused_alone() {
        let put = |key: &'static [u8]| Change::Put { key, value: b"", expires_at: None };
        let (one, bad, two) = (put(b"one"), put(b"bad"), put(b"two"));
        let damage = || WriteError::Corrupt { place: terrace_engine::Place::Pool(0), what: "a bucket" };
        let full = || WriteError::PoolFull { wanted: 1, size: 1, longest: None, waiting: 0 };
        let (made, refused) = (Mutex::new(Vec::new()), Mutex::new(Vec::new()));
        let run = |why: &dyn Fn() -> WriteError| {
            let alone = |change: &Change<'_>| match change.key() {
                b"bad" => Err(why()),
                key => {
                    made.lock().unwrap().push(key.to_vec());
                    Ok(())
                }
            };
            let refuse = |change: &Change<'_>, _: &WriteError| {
                refused.lock().unwrap().push(change.key().to_vec());
            };
            make(&[&one, &bad, &two], |_| Err(why()), alone, refuse)
        };
        // It waits for room, and nothing else happens.
        assert!(matches!(run(&full), Err(WriteError::PoolFull { .. })));
        assert!(made.lock().unwrap().is_empty() && refused.lock().unwrap().is_empty());
        run(&damage).unwrap();
        assert_eq!(*made.lock().unwrap(), [b"one", b"two"]);
        assert_eq!(*refused.lock().unwrap(), [b"bad"]);
    }

    /// A change has found that counting goes on, and gets the lock behind the last step.
    #[test]
    fn change_that_waited_for_the_last_step_is_counted() {
        let directory = tempfile::tempdir_in("/dev/shm").unwrap();
        let data = Data::open(&directory.path().join("pool"), (64 << 20, false), 0).unwrap();
        data.count_keys(&|| false);
        data.counting.is_done.store(false, Relaxed);
        for number in 0..100_u32 {
            data.apply_one(&Change::Put { key: &number.to_le_bytes(), value: b"", expires_at: None })
                .unwrap();
        }
        assert_eq!((0..SLOTS).map(|slot| data.keys(slot)).sum::<u64>(), 100);
    }
}
