//! For tests: small stores in memory of this process.

use crate::batch::commit::Batches;
use crate::record::layout::Root;
use crate::{Direct, Key, Settings};
use std::cell::RefCell;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use terrace_engine::{Clock, Durability, Durably, Engine, ManualClock, OpenError, Put, Table};
use terrace_index::{Bytes, CacheBounds, hash::Clht};
use terrace_medium::{Dram, MappedMedium, Offset, Word};
use terrace_pool::Pool;
use terrace_testkit::Reference;

pub(crate) type Index<M = Dram> = Clht<M, Bytes<Key>>;
pub(crate) type Store<M = Dram> = Direct<M>;

/// Settings of the stores in these tests. Their clock is at one second past 1970.
pub(crate) fn settings() -> Settings {
    Settings {
        expected_keys: 100,
        index_cache: CacheBounds::default(),
        index_dram: Some(0),
        verify_reads: true,
        read_only: false,
        durability: Durability::Process,
        clock: Arc::new(ManualClock::at(1000)),
    }
}

pub(crate) fn open<M: MappedMedium>(pool: Pool<M>, settings: Settings) -> Result<Store<M>, OpenError> {
    Direct::open::<Index<M>>(pool, settings)
}

/// A store and its clock.
pub(crate) fn store() -> (Store, Arc<ManualClock>) {
    let clock = Arc::new(ManualClock::at(1000));
    let settings = Settings { clock: clock.clone(), ..settings() };
    (open(Pool::anonymous(16 << 20).unwrap(), settings).unwrap(), clock)
}

/// A store that keeps its keys in order, and its clock.
pub(crate) fn ordered_store() -> (Store, Arc<ManualClock>) {
    let clock = Arc::new(ManualClock::at(1000));
    let settings = Settings { clock: clock.clone(), ..settings() };
    let pool = Pool::anonymous(16 << 20).unwrap();
    (Direct::open_ordered::<Reference<Dram, Bytes<Key>>>(pool, settings).unwrap(), clock)
}

/// A stopped clock that counts how often it is read: once per record that expires.
#[derive(Default)]
pub(crate) struct CountingClock(AtomicU64);

impl Clock for CountingClock {
    fn now_ms(&self) -> u64 {
        self.0.fetch_add(1, Relaxed);
        1000
    }
}

/// How often `work` reads `clock`.
pub(crate) fn count_clock_reads(clock: &CountingClock, work: impl FnOnce()) -> u64 {
    clock.0.store(0, Relaxed);
    work();
    clock.0.load(Relaxed)
}

/// What a thread does instead of sleeping. Its argument counts the earlier calls.
type Hook = Box<dyn FnMut(u32)>;

thread_local!(static HOOK: RefCell<Option<(Hook, u32)>> = const { RefCell::new(None) });

/// Does `work`, and `hook` whenever this thread would yield or sleep meanwhile, as it does while it
/// waits. Returns how often it was called.
pub(crate) fn with_hook_on_wait<R>(hook: impl FnMut(u32) + 'static, work: impl FnOnce() -> R) -> (R, u32) {
    terrace_pool::rest_with(|| {
        // The hook may wait itself.
        if let Some((mut hook, calls)) = HOOK.take() {
            hook(calls);
            HOOK.set(Some((hook, calls + 1)));
        }
    });
    HOOK.set(Some((Box::new(hook), 0)));
    let done = work();
    let (_, calls) = HOOK.take().expect("the hook is put back");
    (done, calls)
}

impl Store {
    pub(crate) fn put_entry(&self, key: &[u8], value: &[u8], expires_at: Option<u64>) {
        self.put(Put { key, value, expires_at }, Durably::Store).unwrap();
    }

    /// The offset of the record of `key`.
    pub(crate) fn record_offset(&self, key: &[u8]) -> u64 {
        self.index().get(&self.pool().pin(), key).unwrap()
    }

    /// A word of the pool, without any check.
    pub(crate) fn raw(&self, at: u64) -> &Word {
        self.pool().region().at(Offset::new(at))
    }

    /// Flips a bit of the word at `at`.
    pub(crate) fn damage(&self, at: u64) {
        let (word, medium) = (self.raw(at), self.pool().medium());
        word.store(medium, word.load(medium, Relaxed) ^ 1 << 20, Relaxed);
    }
}

/// The parts of a store.
impl<M: MappedMedium> Direct<M> {
    pub(crate) fn root(&self) -> &Root<M> {
        &self.records().root
    }

    pub(crate) fn index(&self) -> &dyn Table<M> {
        &*self.records().index
    }

    pub(crate) fn batches(&self) -> &Batches<M> {
        &self.writes.batches
    }
}
