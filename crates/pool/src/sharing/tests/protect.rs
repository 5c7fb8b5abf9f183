//! Tests of `protect`.

use crate::format::layout::Geometry;
use crate::pool::Pool;
use crate::tests::fixtures::participants;
use terrace_medium::{Medium, Shm};

fn pool() -> (tempfile::TempDir, Pool<Shm>) {
    let (directory, [pool]) = participants(Geometry::tiny());
    (directory, pool)
}

/// Whether the kernel lets this process store to the byte at `offset`.
pub(crate) fn takes_stores(pool: &Pool<Shm>, offset: u64) -> bool {
    let at = pool.medium().base().addr().get() as u64 + offset;
    let number = |text: &str| u64::from_str_radix(text, 16).unwrap();
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    let mut mappings = maps.lines().filter_map(|line| line.split_once(' '));
    let is_there = |range: &str| {
        let (from, to) = range.split_once('-').unwrap();
        (number(from)..number(to)).contains(&at)
    };
    mappings.find(|(range, _)| is_there(range)).unwrap().1.starts_with("rw")
}

/// The same for the zones: for their first page and their last one.
fn takes_data(pool: &Pool<Shm>) -> bool {
    let from = pool.layout().zones.next_multiple_of(rustix::param::page_size() as u64);
    let [first, last] = [from, pool.size() - 1].map(|offset| takes_stores(pool, offset));
    assert_eq!(first, last);
    first
}

#[test]
fn protected_pool_takes_stores_before_its_data_only() {
    let (_directory, pool) = pool();
    assert!(takes_stores(&pool, 0) && takes_data(&pool));
    pool.protect_data().unwrap();
    assert!(takes_stores(&pool, 0) && takes_stores(&pool, pool.layout().zones - 1));
    assert!(!takes_data(&pool));
}

#[test]
fn stores_are_permitted_until_the_last_window_closes() {
    let (_directory, pool) = pool();
    pool.protect_data().unwrap();
    for _ in 0..2 {
        let [one, two] = [pool.0.peers.allow_stores(), pool.0.peers.allow_stores()];
        assert!(takes_data(&pool));
        drop(one);
        assert!(takes_data(&pool), "one still needs them");
        drop(two);
        assert!(!takes_data(&pool));
    }
}

#[test]
fn protecting_again_keeps_an_open_write_window() {
    let (_directory, pool) = pool();
    pool.protect_data().unwrap();
    let window = pool.0.peers.allow_stores();
    pool.protect_data().unwrap();
    assert!(takes_data(&pool));
    drop(window);
    assert!(!takes_data(&pool));
}

#[test]
fn unprotected_pool_always_takes_stores() {
    let (_directory, pool) = pool();
    drop(pool.0.peers.allow_stores());
    assert!(takes_data(&pool));
}
