//! For tests: small stores in memory of this process.

use super::{Direct, Key, Settings};
use crate::{Clock, Durability, Durably, Engine, ManualClock, OpenError, Put};
use std::cell::RefCell;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use terrace_index::{Bytes, CacheBounds, hash::Clht};
use terrace_medium::{Dram, MappedMedium, Offset, Word};
use terrace_pool::Pool;

pub(super) type Index<M = Dram> = Clht<M, Bytes<Key>>;
pub(super) type Store<M = Dram> = Direct<M>;

/// What a store of these tests goes by. It is one second past 1970.
pub(super) fn settings() -> Settings {
    Settings {
        expected_keys: 100,
        index_cache: CacheBounds::default(),
        verify_reads: true,
        read_only: false,
        durability: Durability::Process,
        clock: Arc::new(ManualClock::at(1000)),
    }
}

pub(super) fn open<M: MappedMedium>(pool: Pool<M>, settings: Settings) -> Result<Store<M>, OpenError> {
    Direct::open::<Index<M>>(pool, settings)
}

/// A store, and the clock that it goes by.
pub(super) fn store() -> (Store, Arc<ManualClock>) {
    let clock = Arc::new(ManualClock::at(1000));
    let settings = Settings { clock: clock.clone(), ..settings() };
    (open(Pool::anonymous(16 << 20).unwrap(), settings).unwrap(), clock)
}

/// Stands still, and counts who asks: once a record that expires.
#[derive(Default)]
pub(super) struct Asked(AtomicU64);

impl Clock for Asked {
    fn now_ms(&self) -> u64 {
        self.0.fetch_add(1, Relaxed);
        1000
    }
}

/// How often `clock` is asked meanwhile.
pub(super) fn asked(clock: &Asked, work: impl FnOnce()) -> u64 {
    clock.0.store(0, Relaxed);
    work();
    clock.0.load(Relaxed)
}

/// What a thread does instead of resting; it is told how often it has been called before.
type Errand = Box<dyn FnMut(u32)>;

thread_local!(static ERRAND: RefCell<Option<(Errand, u32)>> = const { RefCell::new(None) });

/// Does `work`, and `errand` whenever this thread would give its processor away meanwhile, as it does while it waits. Returns how often it was so.
pub(super) fn with_errand<R>(errand: impl FnMut(u32) + 'static, work: impl FnOnce() -> R) -> (R, u32) {
    terrace_pool::rest_with(|| {
        // What it does may rest itself.
        if let Some((mut errand, calls)) = ERRAND.take() {
            errand(calls);
            ERRAND.set(Some((errand, calls + 1)));
        }
    });
    ERRAND.set(Some((Box::new(errand), 0)));
    let done = work();
    let (_, calls) = ERRAND.take().expect("it is put back");
    (done, calls)
}

impl Store {
    pub(super) fn give(&self, key: &[u8], value: &[u8], expires_at: Option<u64>) {
        self.put(Put { key, value, expires_at }, Durably::Store).unwrap();
    }

    /// Where the record of `key` lies.
    pub(super) fn place(&self, key: &[u8]) -> u64 {
        self.index.get(&self.pool().pin(), key).unwrap()
    }

    /// A word of the pool, as it lies there.
    pub(super) fn raw(&self, at: u64) -> &Word {
        self.pool().region().at(Offset::new(at))
    }

    /// Changes a bit of the word at `at`.
    pub(super) fn damage(&self, at: u64) {
        let (word, medium) = (self.raw(at), self.pool().medium());
        word.store(medium, word.load(medium, Relaxed) ^ 1 << 20, Relaxed);
    }
}
