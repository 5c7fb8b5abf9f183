//! Tests of `engine`.

use super::*;
use crate::tests::fixtures::{self, settings};
use terrace_medium::Shm;
use terrace_pool::{PoolOptions, Start};

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
