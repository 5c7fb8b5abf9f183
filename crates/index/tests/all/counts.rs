//! Tests: P-CLHT's accesses to its medium, counted.

use terrace_conformance::{costs_of_inserts, costs_of_single_changes, gets_only_read, never_flushes};
use terrace_index::{Stored, U64, hash::Clht};
use terrace_pool::{Pool, PoolOptions};
use terrace_testkit::{Counts, Tapped};

fn clht<const V: bool>(capacity: u64) -> Clht<Tapped<V>, U64> {
    let pool: Pool<Tapped<V>> =
        PoolOptions::anonymous().size(512 << 20).hash_seed(11).create().expect("memory for a pool");
    Clht::create(&pool, "counts", capacity).expect("room for a table")
}

#[test]
fn change_costs_one_write_back_and_one_fence() {
    let index = clht::<true>(50_000);
    let costs = costs_of_single_changes(&index, 50_000);
    let one = Counts { write_backs: 1, fences: 1, ..Counts::default() };
    assert_eq!(costs.insert, (one, one), "inserts");
    assert_eq!(costs.update, (one, one), "updates");
    assert_eq!(costs.remove, (one, one), "removals");
}

#[test]
fn million_inserts_cost_at_most_1_3_write_backs_each() {
    const KEYS: u64 = 1_000_000;
    let index = clht::<true>(0);
    let counts = costs_of_inserts(&index, KEYS);
    let each = |count: u64| count as f64 / KEYS as f64;
    let (write_backs, fences) = (each(counts.write_backs), each(counts.fences));
    // A resize streams its buckets on x86-64. On aarch64 each of these lines is also written back,
    // about one for each insert.
    let most = if cfg!(target_arch = "aarch64") { 2.3 } else { 1.3 };
    assert!(write_backs <= most && fences <= 1.3, "{write_backs} write-backs and {fences} fences an insert");
}

#[test]
fn gets_of_present_and_absent_keys_only_read() {
    gets_only_read(&clht::<true>(10_000), 10_000);
}

#[test]
fn dram_and_shm_never_flush_or_fence() {
    never_flushes(&clht::<false>(0), 100_000);
    never_flushes(&clht::<false>(0), 100_000);
}
