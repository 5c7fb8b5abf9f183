//! A process crashed after it had marked a batch as finished, but before the fence: every process
//! that depends on that mark makes it durable first.

use std::sync::Arc;
use std::sync::atomic::Ordering::Release;
use terrace_direct::{Direct, Kind, Settings};
use terrace_engine::{Durability, Durably, Engine, ManualClock, Put, Write, WriteKind};
use terrace_index::hash::{Clht, Turbo};
use terrace_index::{CacheBounds, PointIndex, Stored};
use terrace_medium::{Offset, Word};
use terrace_pool::{Geometry, Lock, Pool, PoolOptions};
use terrace_testkit::crash::Memory;
use terrace_testkit::{Layered, Recording};

type Medium = Layered<true>;

const BYTES: usize = 256 << 10;
/// The name of the finished batch; these tests never read the batch.
const FINISHED: u64 = 1 << 12;

/// A store with the records of a batch whose end is in the caches, but not on the medium.
struct UnfencedEnd {
    store: Direct<Medium>,
    medium: Arc<Recording<Memory<true>>>,
    /// Offset of the word that names the running batch.
    active: u64,
}

impl UnfencedEnd {
    fn new<I: PointIndex<Kind = Kind, Medium = Medium> + Stored<Medium = Medium> + 'static>() -> Self {
        let medium = Arc::new(Recording::over(Memory::zeroed(BYTES, BYTES).expect("memory")));
        let options = PoolOptions::anonymous().geometry(Geometry::tiny()).hash_seed(11).boot_id(1);
        let pool: Pool<Medium> = options.create_on(Layered::over(medium.clone())).expect("a pool");
        let settings = Settings {
            expected_keys: 8,
            index_cache: CacheBounds::default(),
            index_dram: Some(0),
            verify_reads: true,
            read_only: false,
            durability: Durability::Power,
            clock: Arc::new(ManualClock::at(1000)),
        };
        let store = Direct::open::<I>(pool.clone(), settings).expect("a store");
        let write = |key| Write { key, what: WriteKind::Put { value: b"1", expires_at: None } };
        store.commit(&[write(b"one"), write(b"other")], &[], Durably::Store).expect("room for a batch");
        let root = pool.roots().into_iter().find(|root| root.name == "engine").and_then(|root| root.offset);
        let root = root.expect("a store has a root");
        let store = Self { store, medium, active: root + 8 };
        let word = |at| pool.region().at(Offset::<Word>::new(at));
        word(store.active).store(pool.medium(), FINISHED, Release);
        pool.region().persist(word(store.active));
        let guard = pool.pin();
        let lock = Lock::of(word(root)).acquire(&guard);
        word(store.active).store(pool.medium(), 0, Release);
        lock.release_unfenced();
        assert_eq!(store.durable_active(), FINISHED);
        store
    }

    /// The running batch, as a power failure would leave it.
    fn durable_active(&self) -> u64 {
        self.medium.trace().durable(BYTES / 8)[self.active as usize / 8]
    }
}

#[test]
fn overwriting_a_batch_record_persists_the_batch_end() {
    let left = UnfencedEnd::new::<Clht<_, Kind>>();
    // One fence, that of the removal itself, is enough.
    assert_eq!(left.store.remove(b"one", Durably::Store), Ok(true));
    assert_eq!(left.durable_active(), 0);
    let left = UnfencedEnd::new::<Clht<_, Kind>>();
    left.store
        .put(Put { key: b"one", value: b"2", expires_at: None }, Durably::Store)
        .expect("room for a record");
    assert_eq!(left.durable_active(), 0);
}

#[test]
fn collection_persists_a_batch_end_before_freeing_blocks() {
    // P-CLHT would do so incidentally, by a fence of its own; TurboHash would not.
    let left = UnfencedEnd::new::<Turbo<_, Kind>>();
    assert!(!left.store.reachable().is_empty());
    assert_eq!(left.durable_active(), 0);
}
