//! Tests: P-CLHT's accesses to its medium, counted.

use terrace_index::{PointIndex, Stored, U64, hash::Clht};
use terrace_medium::{Dram, MappedMedium, Pmem, Shm};
use terrace_pool::{Pool, PoolOptions};
use terrace_testkit::conformance::{costs_of_inserts, costs_of_single_changes};
use terrace_testkit::{Counting, Counts};

fn clht<M: MappedMedium>(capacity: u64) -> Clht<Counting<M>, U64> {
    let pool: Pool<Counting<M>> =
        PoolOptions::anonymous().size(512 << 20).hash_seed(11).create().expect("memory for a pool");
    Clht::create(&pool, "counts", capacity).expect("room for a table")
}

const NOTHING: Counts = Counts {
    write_backs: 0,
    fences: 0,
    loads: 0,
    stores: 0,
    rmws: 0,
    bytes_stored: 0,
    bytes_read: 0,
    lines_read: 0,
    lines_written: 0,
    blocks_read: 0,
    blocks_written: 0,
};

#[test]
fn change_costs_one_write_back_and_one_fence() {
    let index = clht::<Pmem>(50_000);
    let costs = costs_of_single_changes(&index, 50_000);
    let one = Counts { write_backs: 1, fences: 1, ..NOTHING };
    assert_eq!(costs.insert, (one, one), "inserts");
    assert_eq!(costs.update, (one, one), "updates");
    assert_eq!(costs.remove, (one, one), "removals");
}

#[test]
fn million_inserts_cost_at_most_1_3_write_backs_each() {
    const KEYS: u64 = 1_000_000;
    let index = clht::<Pmem>(0);
    let counts = costs_of_inserts(&index, KEYS);
    let each = |count: u64| count as f64 / KEYS as f64;
    let (write_backs, fences) = (each(counts.write_backs), each(counts.fences));
    // A resize streams its buckets on x86-64. On aarch64 each of these lines is also written back,
    // about one for each insert.
    let most = if cfg!(target_arch = "aarch64") { 2.3 } else { 1.3 };
    assert!(write_backs <= most && fences <= 1.3, "{write_backs} write-backs and {fences} fences an insert");
}

#[test]
fn gets_only_read() {
    let index = clht::<Pmem>(10_000);
    costs_of_inserts(&index, 10_000);
    let guard = index.pool().pin();
    let (counts, ()) =
        index.pool().medium().during(|| (0..20_000).for_each(|key| _ = index.get(&guard, &key)));
    let writes = Counts { loads: 0, bytes_read: 0, lines_read: 0, blocks_read: 0, ..counts };
    assert_eq!(writes, NOTHING);
}

fn costs_no_flush<M: MappedMedium>() {
    let index = clht::<M>(0);
    let counts = costs_of_inserts(&index, 100_000);
    assert_eq!((counts.write_backs, counts.fences, counts.blocks_written), (0, 0, 0));
    let removing = || (0..100_000).for_each(|key| _ = index.remove(&index.pool().pin(), &key));
    let (counts, ()) = index.pool().medium().during(removing);
    assert_eq!((counts.write_backs, counts.fences), (0, 0));
}

#[test]
fn dram_and_shm_never_flush_or_fence() {
    costs_no_flush::<Dram>();
    costs_no_flush::<Shm>();
}
