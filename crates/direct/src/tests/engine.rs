//! Tests of `engine`.

use super::*;
use crate::batch::descriptor::Descriptor;
use crate::tests::fixtures::{self, settings, store};
use std::path::Path;
use terrace_medium::{Dram, Shm};
use terrace_pool::{Lock, PoolOptions, Start};

#[test]
fn random_u64_is_splitmix64() {
    let (store, _) = store();
    store.random_state.store(1_234_567, Ordering::Relaxed);
    // The second number is the first of the published list for this seed.
    let _ = store.random_u64();
    assert_eq!([(); 2].map(|()| store.random_u64()), [6_457_827_717_110_365_317, 3_203_168_211_198_807_973]);
}

#[test]
fn random_u64_differs_by_pool_and_open() {
    let directory = tempfile::tempdir_in("/dev/shm").unwrap();
    let mut first = std::collections::BTreeSet::new();
    for (name, seed) in [("three", 3), ("four", 4), ("eight", 8)] {
        for _ in 0..2 {
            let options = PoolOptions::at(directory.path().join(name)).size(4 << 20).hash_seed(seed);
            let store =
                crate::tests::fixtures::open::<Shm>(options.open_or_create().unwrap(), settings()).unwrap();
            first.insert(store.random_u64());
        }
    }
    assert_eq!(first.len(), 6);
}

fn options(path: &Path) -> PoolOptions {
    PoolOptions::at(path.join("pool")).size(4 << 20).shared(true)
}

#[test]
fn reader_completes_no_half_created_store() {
    let directory = tempfile::tempdir_in("/dev/shm").unwrap();
    let pool = options(directory.path()).create::<Shm>().unwrap();
    fixtures::Index::<Shm>::create(&pool, INDEX, 100).unwrap();
    let reader = Settings { read_only: true, ..settings() };
    let opened = crate::tests::fixtures::open::<Shm>(options(directory.path()).open().unwrap(), reader);
    assert!(matches!(opened, Err(OpenError::Empty)));
    assert_eq!(pool.roots().iter().filter(|root| root.offset.is_some()).count(), 1);
    assert!(fixtures::open(pool, settings()).is_ok());
}

#[test]
fn index_in_finds_the_store_s_index() {
    let pool = Pool::<Dram>::anonymous(4 << 20).unwrap();
    fixtures::Index::<Dram>::create(&pool, "another", 100).unwrap();
    assert_eq!(index_in(&pool), None);
    fixtures::open(pool.clone(), settings()).unwrap();
    assert_eq!(index_in(&pool).as_deref(), Some("clht"));
}

#[test]
fn second_open_leaves_running_batch_alone() {
    let directory = tempfile::tempdir_in("/dev/shm").unwrap();
    let one =
        crate::tests::fixtures::open::<Shm>(options(directory.path()).create().unwrap(), settings()).unwrap();
    let guard = one.pool().pin();
    let block = Descriptor::alloc(&guard, 0).unwrap();
    let descriptor = Descriptor::init(&guard, block, 0);
    let lock = Lock::of(one.root.lock()).acquire(&guard);
    one.root.set_active(descriptor.offset());
    let two =
        crate::tests::fixtures::open::<Shm>(options(directory.path()).open().unwrap(), settings()).unwrap();
    assert_eq!((two.batch_finished, one.root.active()), (None, descriptor.offset()));
    one.root.set_active(0);
    lock.release();
}

#[test]
fn watches_pins_and_huge_pages_follow_the_pool() {
    let directory = tempfile::tempdir_in("/dev/shm").unwrap();
    let path = directory.path().join("pool");
    let open = || {
        let pool = PoolOptions::at(&path).size(4 << 20).open_or_create::<Shm>().unwrap();
        Arc::new(fixtures::open(pool, settings()).unwrap())
    };
    let store = open();
    let mut watch = store.watch(b"k").unwrap();
    let put = |key| store.put(Put { key, value: b"value", expires_at: None }, Durably::Store).unwrap();
    assert!(!watch.has_changed() && !watch.wait(Duration::ZERO));
    put(b"other");
    assert!(!watch.has_changed());
    put(b"key");
    assert!(watch.has_changed() && !watch.has_changed());
    put(b"key");
    assert!(watch.wait(Duration::from_secs(10)) && !watch.wait(Duration::ZERO));
    drop(watch);

    assert!(!store.keeps_entries());
    let value = store.get(b"key").unwrap();
    assert!(value.is_some() && store.keeps_entries());
    drop(value);
    assert!(!store.keeps_entries());

    // Huge pages are requested piece by piece, up to the end of the pool.
    let pieces: Vec<u64> = std::iter::successors(Some(0), |&from| store.collapse_step(from)).collect();
    assert!(pieces.len() > 1 && pieces.is_sorted() && *pieces.last().unwrap() >= store.pool().size());
    assert!(pieces.iter().rev().skip(1).all(|&from| from < store.pool().size()));

    let other = store.clone();
    assert!(matches!(other.close(), Err(CloseError::StillOpen)));
    store.close().unwrap();
    assert_eq!(open().stats().pool.unwrap().found, Start::Clean);
}
