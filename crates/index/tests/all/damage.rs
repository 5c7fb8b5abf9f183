//! Tests: damaged links and roots of P-CLHT.
#![allow(missing_docs, reason = "tests")]

use std::sync::atomic::Ordering::Relaxed;
use terrace_index::hash::Clht;
use terrace_index::{PointIndex, Stored, U64};
use terrace_medium::{Dram, Line, Offset};
use terrace_pool::Pool;

const BUCKETS: u64 = 8;
const LINK: usize = 7;

/// Every line of the pool's metadata before the first zone, except the thread slots, which change.
fn own_lines(pool: &Pool<Dram>) -> Vec<[u64; 8]> {
    let lines = (0..pool.layout().allocator).step_by(64);
    lines.map(|at| line(pool, at).0.each_ref().map(|word| word.load(pool.medium(), Relaxed))).collect()
}

fn line(pool: &Pool<Dram>, at: u64) -> &Line {
    pool.region().at(Offset::new(at))
}

#[test]
fn link_into_pool_metadata_is_refused() {
    for target in [64, 4096, 8192] {
        let pool = Pool::<Dram>::anonymous(4 << 20).unwrap();
        let map = Clht::<Dram, U64>::create(&pool, "map", 8).unwrap();
        assert!(target < pool.layout().zones, "a place of the pool's own");
        let guard = pool.pin();
        let root = pool.roots().into_iter().find(|root| root.name == "map").unwrap().offset.unwrap();
        let table = line(&pool, root).0[1].load(pool.medium(), Relaxed) & 0xffff_ffff_ffc0;
        for bucket in 0..BUCKETS {
            line(&pool, table + bucket * 64).0[LINK].store(pool.medium(), target >> 6, Relaxed);
        }
        let before = own_lines(&pool);
        assert_eq!(map.get(&guard, &7), None);
        assert!(map.damage().is_some(), "the damage is noted");
        for key in 0..200 {
            map.upsert(&guard, &key, key).unwrap();
        }
        assert!((0..200).all(|key| map.get(&guard, &key) == Some(key)));
        assert_eq!(own_lines(&pool), before, "a write went to {target:#x}");
    }
}

/// The words of the root's first line that no resize may change, and both tables.
#[test]
fn root_with_a_changed_word_is_refused() {
    let pool = Pool::<Dram>::anonymous(4 << 20).unwrap();
    drop(Clht::<Dram, U64>::create(&pool, "map", 8).unwrap());
    let root = pool.roots()[0].offset.unwrap();
    let words = [
        (1, "names no table"),
        (2, "names no table"),
        (3, "does not fit its check"),
        (4, "does not fit its check"),
        (5, "not of a hash table for this kind of keys"),
        (7, "does not fit its check"),
    ];
    for (word, says) in words {
        let word = &line(&pool, root).0[word];
        let sound = word.load(pool.medium(), Relaxed);
        word.store(pool.medium(), sound ^ 0x1000, Relaxed);
        let Err(error) = Clht::<Dram, U64>::recover(&pool, "map") else { panic!("not refused: {says}") };
        assert!(error.to_string().contains(says), "{error}");
        word.store(pool.medium(), sound, Relaxed);
    }
    assert!(Clht::<Dram, U64>::recover(&pool, "map").unwrap().is_some());
}
