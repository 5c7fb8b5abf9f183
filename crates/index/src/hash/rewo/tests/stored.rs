//! Tests of `stored.rs`.

use super::super::super::test_pools::{Power, pool};
use super::*;
use crate::U64;
use std::sync::atomic::Ordering::Relaxed;
use terrace_medium::Dram;

#[test]
fn size_depends_on_expected_keys_and_pool() {
    // Bytes of the pool, expected keys, stripes, buckets.
    let cases =
        [(1 << 20, 0, 16, 16), (4 << 20, 0, 64, 64), (64 << 20, 0, 1024, 64), (256 << 20, 0, 1024, 64)];
    let expecting =
        [(1 << 20, 12, 16, 1), (1 << 20, 13, 16, 2), (4 << 20, 806, 64, 64), (4 << 20, 807, 64, 128)];
    for (bytes, keys, stripes, buckets) in cases.into_iter().chain(expecting) {
        let pool = pool::<Dram>(bytes);
        let map = Rewo::<Dram, U64>::create(&pool, "map", keys).unwrap();
        let made = (map.base().stripes(), map.base().view().directory().buckets());
        assert_eq!(made, (stripes, buckets), "{bytes} bytes, {keys} keys");
    }
}

/// A view may have the place of one that was durable before the crash; that does not make it
/// durable.
#[test]
fn recovery_forgets_the_durable_view_unless_shared() {
    let power = Power::new();
    let map = Rewo::<_, U64>::with_shape(&power.pool, "map", 1, 2).unwrap();
    map.insert(&power.pool.pin(), &1, 1).unwrap();
    let durable_view =
        |map: &Rewo<_, U64>| map.base().root[2].0[DURABLE_VIEW].load(map.base().pool.medium(), Relaxed);
    let view = map.base().view_offset().raw();
    assert_eq!(durable_view(&map), view);
    power.pool.initialize().done();
    let beside = Rewo::<_, U64>::recover(&power.pool, "map").unwrap().unwrap();
    assert_eq!(durable_view(&beside), view);
    // A cache may write a line back at any time.
    power.pool.region().persist(&map.base().root[2]);
    let pool = power.after_power_loss();
    let after = Rewo::<_, U64>::recover(&pool, "map").unwrap().unwrap();
    assert_eq!((durable_view(&after), after.base().view_offset().raw()), (0, view));
    drop(after);
    pool.abandon();
}

#[test]
fn root_with_impossible_stripes_is_refused() {
    let pool = pool::<Dram>(1 << 20);
    drop(Rewo::<Dram, U64>::with_shape(&pool, "map", 4, 2).unwrap());
    let root = pool.root("map", "rewo").unwrap().unwrap();
    let line = &pool.region().at(Offset::<Root>::new(root))[0].0;
    let most = u64::from(STRIPES_LOG2_MAX);
    // The pool has no room for the most, which take 2 MiB.
    let lost = "the stripes lie outside";
    for (stripes, says) in [(0, "impossible number"), (most, lost), (most + 1, "impossible number")] {
        line[ROOT_STRIPES_LOG2].store(pool.medium(), stripes, Relaxed);
        let words: [u64; ROOT_CHECK] = std::array::from_fn(|at| line[at].load(pool.medium(), Relaxed));
        line[ROOT_CHECK].store(pool.medium(), check_of(&words), Relaxed);
        let Err(error) = Rewo::<Dram, U64>::recover(&pool, "map") else { panic!("not refused") };
        assert!(error.to_string().contains(says), "{stripes}: {error}");
    }
}
