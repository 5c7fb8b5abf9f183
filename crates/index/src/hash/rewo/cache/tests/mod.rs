//! Tests of `mod.rs`.

use super::super::super::test_pools::pool;
use super::super::ops::Rewo;
use super::*;
use crate::{Bytes, KeyKind, PointIndex, RecordKeys};
use std::collections::HashSet;
use terrace_medium::{Dram, MappedMedium};
use terrace_pool::Guard;

const BOUNDS: CacheBounds = CacheBounds { min: 1 << 12, max: 1 << 16 };

#[test]
fn marks_of_keys_are_spread() {
    let cache = Cache::new(BOUNDS, true).unwrap();
    let mark = |hash: u64| std::ptr::from_ref(cache.mark(CacheKey { hash, word: 0 }));
    let marks: HashSet<_> = (0..20_000u64).map(|n| mark(n.wrapping_mul(0x9e37_79b9_7f4a_7c15))).collect();
    assert_eq!(marks.len(), MARKS);
}

#[test]
fn resize_rounds_down_to_the_bytes() {
    let cache = Cache::new(BOUNDS, true).unwrap();
    for (bytes, made) in [(1 << 13, 1 << 13), ((1 << 13) - 1, 1 << 12), (1, 128)] {
        cache.resize(bytes);
        assert_eq!((cache.stats().bytes, cache.stats().slots), (made, made / 128 * 7));
    }
}

struct Records;
impl RecordKeys for Records {
    fn key<'g, M: MappedMedium>(_: &'g Guard<'_, M>, word: u64) -> Option<&'g [u8]> {
        Some(if word == 64 { b"one" } else { b"other" })
    }
}

/// No two byte strings with the same hash are known, so the cache is given one under the
/// other's hash.
#[test]
fn record_decides_between_keys_of_one_hash() {
    let pool = pool::<Dram>(1 << 20);
    let index = Rewo::<Dram, Bytes<Records>>::with_shape(&pool, "index", 1, 0).unwrap().with_cache(BOUNDS);
    let (guard, [one, other]) = (pool.pin(), [b"one".as_slice(), b"other"]);
    index.insert(&guard, one, 64).unwrap();
    let hash = Bytes::<Records>::hash(other, index.tables.seed);
    let cache = index.cache.as_ref().unwrap();
    cache.begin(0, CacheKey { hash, word: hash }, true).done(Some(64));
    assert_eq!((index.get(&guard, one), index.get(&guard, other)), (Some(64), None));
    index.insert(&guard, other, 128).unwrap();
    assert_eq!((index.get(&guard, one), index.get(&guard, other)), (Some(64), Some(128)));
}

/// A cache of 2^0 to 2^2 buckets, in which `keys` keys are looked up and cached, one after the
/// other.
fn look_up_and_fill(cache: &Cache, keys: u64, times: u64) {
    for n in (0..keys).cycle().take((keys * times) as usize) {
        // Other bits than those that choose the bucket.
        let key = CacheKey { hash: n << 20, word: n };
        if let Look::Unknown(ticket) = cache.look(0, key, |word| word == n) {
            cache.fill(0, key, &ticket, Some(n), 1);
        }
    }
}

fn sizes(cache: &Cache) -> (u64, u64, u64) {
    (cache.stats().bytes, cache.stats().grown, cache.stats().shrunk)
}

#[test]
fn cache_grows_and_shrinks_within_its_bounds() {
    let bounds = CacheBounds { min: 128, max: 512 };
    let cache = Cache::new(bounds, false).unwrap();
    assert_eq!(sizes(&cache), (128, 0, 0));
    // Ten keys for a bucket's seven slots: each is asked for when it has just been replaced.
    look_up_and_fill(&cache, 10, 3000);
    assert_eq!(sizes(&cache), (512, 2, 0));
    look_up_and_fill(&cache, 2, 30_000);
    assert_eq!(sizes(&cache), (128, 2, 2));
    let hits = cache.stats().hits;
    look_up_and_fill(&cache, 2, 100);
    assert_eq!(cache.stats().hits - hits, 200);
}

#[test]
fn cache_with_equal_bounds_keeps_its_size() {
    let cache = Cache::new(CacheBounds { min: 256, max: 256 }, false).unwrap();
    look_up_and_fill(&cache, 10, 3000);
    look_up_and_fill(&cache, 2, 30_000);
    assert_eq!(sizes(&cache), (256, 0, 0));
}

#[test]
fn cache_of_an_empty_index_is_complete() {
    let key = CacheKey { hash: 1 << 20, word: 1 };
    for is_empty in [true, false] {
        let cache = Cache::new(BOUNDS, is_empty).unwrap();
        let is_absent = matches!(cache.look(0, key, |_| true), Look::Absent);
        assert_eq!((is_absent, cache.stats().hits), (is_empty, u64::from(is_empty)));
    }
}

#[test]
fn filling_cache_is_judged_at_the_ninth_look() {
    let cache = Cache::new(CacheBounds { min: 128, max: 512 }, false).unwrap();
    cache.resize(512);
    // A search and a change are two operations; the size is judged after 3,584 of them, once in
    // 256 searches.
    let key = CacheKey { hash: 1 << 20, word: 1 };
    let mut keys = 0..;
    let shrunk_after = |searches: u64| {
        for _ in keys.by_ref().take_while(|&done| done < searches) {
            let Look::Unknown(ticket) = cache.look(0, key, |_| true) else { panic!("it was removed") };
            cache.fill(0, key, &ticket, Some(1), 1);
            cache.begin(0, key, false).done(None);
        }
        sizes(&cache).2
    };
    assert_eq!([16_300, 16_400, 32_500, 32_520].map(shrunk_after), [0, 1, 1, 2]);
}

#[test]
fn word_read_during_a_change_is_not_cached() {
    let cache = Cache::new(BOUNDS, false).unwrap();
    let key = CacheKey { hash: 1 << 20, word: 1 };
    let look = || match cache.look(0, key, |_| true) {
        Look::Word(word) => Ok(word),
        Look::Absent => panic!("nobody knows that"),
        Look::Unknown(ticket) => Err(ticket),
    };
    let before = look().expect_err("it is not cached");
    let shadow = cache.begin(0, key, false);
    let during = look().expect_err("it is not cached");
    for ticket in [&before, &during] {
        cache.fill(0, key, ticket, Some(1), 1);
        assert!(look().is_err());
    }
    shadow.done(Some(2));
    for ticket in [&before, &during] {
        cache.fill(0, key, ticket, Some(1), 1);
        assert_eq!(look().ok(), Some(2));
    }
}
