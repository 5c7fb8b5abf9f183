//! Tests of `open`.

use super::*;
use crate::batch::descriptor::Descriptor;
use crate::tests::fixtures::{self, settings};
use std::path::Path;
use terrace_medium::{Dram, Shm};
use terrace_pool::{Lock, PoolOptions};

fn options(path: &Path) -> PoolOptions {
    PoolOptions::at(path.join("pool")).size(4 << 20).shared(true)
}

#[test]
fn reader_completes_no_half_created_store() {
    let directory = tempfile::tempdir_in("/dev/shm").unwrap();
    let pool = options(directory.path()).create::<Shm>().unwrap();
    fixtures::Index::<Shm>::create(&pool, INDEX, 100).unwrap();
    let reader = Settings { read_only: true, ..settings() };
    let opened = fixtures::open::<Shm>(options(directory.path()).open().unwrap(), reader);
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
    let one = fixtures::open::<Shm>(options(directory.path()).create().unwrap(), settings()).unwrap();
    let guard = one.pool().pin();
    let block = Descriptor::alloc(&guard, 0).unwrap();
    let descriptor = Descriptor::init(&guard, block, 0);
    let lock = Lock::of(one.root().lock()).acquire(&guard);
    one.root().set_active(descriptor.offset());
    let two = fixtures::open::<Shm>(options(directory.path()).open().unwrap(), settings()).unwrap();
    assert_eq!((two.batch_finished, one.root().active()), (None, descriptor.offset()));
    one.root().set_active(0);
    lock.release();
}
