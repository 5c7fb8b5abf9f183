//! Opening a table in a pool that another participant has grown meanwhile.

use std::path::Path;
use terrace_index::hash::{Clht, Level, Rewo, Turbo};
use terrace_index::ordered::{Art, BwTree, Hot, Masstree, SpTree};
use terrace_index::{PointIndex, Stored, U64};
use terrace_medium::Shm;
use terrace_pool::{Pool, PoolOptions};

const SIZE: u64 = 1 << 20;
const GROWN: u64 = 32 << 20;
const KEYS: u64 = 20_000;

fn options(path: &Path) -> PoolOptions {
    PoolOptions::at(path).size(SIZE).max_size(GROWN).shared(true)
}

/// Takes all memory that is left.
fn fill(pool: &Pool<Shm>) {
    let guard = pool.pin();
    for bytes in (6..20).rev().map(|log2| 1 << log2) {
        while let Ok(block) = guard.alloc(bytes) {
            let _ = block.persist().into_offset();
        }
    }
}

fn finds_table_beyond_the_old_end<I: PointIndex<Medium = Shm, Kind = U64> + Stored<Medium = Shm>>() {
    let directory = tempfile::tempdir_in("/dev/shm").unwrap();
    let path = directory.path().join("shared.pool");
    let one = options(&path).create::<Shm>().unwrap();
    let index = I::create(&one, "map", 0).unwrap();
    let two = options(&path).open::<Shm>().unwrap();
    fill(&one);
    one.grow(GROWN).unwrap();
    let guard = one.pin();
    (0..KEYS).for_each(|key| _ = index.insert(&guard, &key, key + 1).unwrap());
    let found = I::recover(&two, "map").unwrap_or_else(|error| panic!("{}: {error}", I::NAME));
    let (found, guard) = (found.expect("the table"), two.pin());
    assert!((0..KEYS).all(|key| found.get(&guard, &key) == Some(key + 1)));
}

#[test]
fn clht() {
    finds_table_beyond_the_old_end::<Clht<Shm, U64>>();
}

#[test]
fn level() {
    finds_table_beyond_the_old_end::<Level<Shm, U64>>();
}

#[test]
fn rewo() {
    finds_table_beyond_the_old_end::<Rewo<Shm, U64>>();
}

#[test]
fn turbo() {
    finds_table_beyond_the_old_end::<Turbo<Shm, U64>>();
}

#[test]
fn art() {
    finds_table_beyond_the_old_end::<Art<Shm, U64>>();
}

#[test]
fn hot() {
    finds_table_beyond_the_old_end::<Hot<Shm, U64>>();
}

#[test]
fn masstree() {
    finds_table_beyond_the_old_end::<Masstree<Shm, U64>>();
}

#[test]
fn bwtree() {
    finds_table_beyond_the_old_end::<BwTree<Shm, U64>>();
}

#[test]
fn sptree() {
    finds_table_beyond_the_old_end::<SpTree<Shm, U64>>();
}
