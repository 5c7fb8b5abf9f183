//! Who ended a batch has died between the store that says so and its fence: whoever builds on that makes it durable, by himself.

use std::sync::Arc;
use std::sync::atomic::Ordering::Release;
use terrace_engine::direct::{Direct, Kind, Settings};
use terrace_engine::{Durability, Durably, Engine, ManualClock, Put, What, Write};
use terrace_index::hash::{Clht, Turbo};
use terrace_index::{CacheBounds, PointIndex, Stored};
use terrace_medium::{Offset, Word};
use terrace_pool::{Geometry, Lock, Pool, PoolOptions};
use terrace_testkit::crash::Memory;
use terrace_testkit::{Layered, Recording};

type Medium = Layered<true>;

const BYTES: usize = 256 << 10;
/// The batch that has ended. Nobody looks at it here.
const ENDED: u64 = 1 << 12;

/// A store with the records of a batch. That this has ended is in the caches, and not on the medium.
struct Left {
    store: Direct<Medium>,
    medium: Arc<Recording<Memory<true>>>,
    /// Where the name of the batch lies that is under way.
    active: u64,
}

impl Left {
    fn new<I: PointIndex<Kind = Kind, Medium = Medium> + Stored<Medium = Medium> + 'static>() -> Self {
        let medium = Arc::new(Recording::over(Memory::zeroed(BYTES, BYTES).expect("memory")));
        let options = PoolOptions::anonymous().geometry(Geometry::tiny()).hash_seed(11).boot_id(1);
        let pool: Pool<Medium> = options.create_on(Layered::over(medium.clone())).expect("a pool");
        let settings = Settings {
            expected_keys: 8,
            index_cache: CacheBounds::default(),
            verify_reads: true,
            read_only: false,
            durability: Durability::Power,
            clock: Arc::new(ManualClock::at(1000)),
        };
        let store = Direct::open::<I>(pool.clone(), settings).expect("a store");
        let write = |key| Write { key, what: What::Put { value: b"1", expires_at: None } };
        store.commit(&[write(b"one"), write(b"other")], &[], Durably::Store).expect("room for a batch");
        let root = pool.roots().into_iter().find(|root| root.name == "engine").and_then(|root| root.offset);
        let root = root.expect("a store has a root");
        let left = Self { store, medium, active: root + 8 };
        let word = |at| pool.region().at(Offset::<Word>::new(at));
        word(left.active).store(pool.medium(), ENDED, Release);
        pool.region().persist(word(left.active));
        let guard = pool.pin();
        let lock = Lock::of(word(root)).acquire(&guard);
        word(left.active).store(pool.medium(), 0, Release);
        lock.release_unfenced();
        assert_eq!(left.named(), ENDED);
        left
    }

    /// The batch that is under way, after a loss of power.
    fn named(&self) -> u64 {
        self.medium.trace().durable(BYTES / 8)[self.active as usize / 8]
    }
}

#[test]
fn whoever_writes_over_a_record_of_a_batch_has_it_durable_that_this_has_ended() {
    let left = Left::new::<Clht<_, Kind>>();
    // With one fence, its own.
    assert_eq!(left.store.remove(b"one", Durably::Store), Ok(true));
    assert_eq!(left.named(), 0);
    let left = Left::new::<Clht<_, Kind>>();
    left.store
        .put(Put { key: b"one", value: b"2", expires_at: None }, Durably::Store)
        .expect("room for a record");
    assert_eq!(left.named(), 0);
}

#[test]
fn whoever_collects_has_it_durable_that_a_batch_has_ended_before_its_blocks_are_freed() {
    // P-CLHT would do it by the way: it fences for itself. TurboHash does not.
    let left = Left::new::<Turbo<_, Kind>>();
    assert!(!left.store.reachable().is_empty());
    assert_eq!(left.named(), 0);
}
