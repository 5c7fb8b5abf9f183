//! A program whose instructions are counted: a hash table's access pattern on plain atomics and on
//! each medium, and the hash tables themselves. `crates/bench/cost-of-media` runs it
//! under callgrind and in a disassembler.
//!
//! `cost_of_media CASE` does each operation of CASE many times, always within a call of `counted`,
//! so that callgrind can count these alone. It prints a line for each: its name, and how often it
//! was done.
#![forbid(unsafe_code)]

use std::hint::black_box;
use std::process::ExitCode;
use std::sync::atomic::{AtomicU64, Ordering::Acquire, Ordering::Relaxed, Ordering::Release};
use terrace_bench::instructions::{count, from_a_page_on};
use terrace_bench::spread;
use terrace_index::hash::{Clht, Level, Rewo, Turbo};
use terrace_index::{PointIndex, Stored, U64};
use terrace_medium::{Dram, Line, MappedMedium, Mapping, Medium, Offset, Pmem, Region, Shm};
use terrace_pool::{Pool, PoolOptions};

const BUCKETS: usize = 1024;
const MASK: u64 = BUCKETS as u64 - 1;

/// A bucket as a program without media would write it.
#[repr(align(64))]
struct Plain([AtomicU64; 8]);

#[inline(never)]
fn plain_get(buckets: &[Plain; BUCKETS], key: u64) -> u64 {
    let bucket = &buckets[(key & MASK) as usize].0;
    let link = bucket[7].load(Acquire);
    for pair in 0..3 {
        if bucket[1 + pair].load(Acquire) == key {
            let word = bucket[4 + pair].load(Acquire);
            if bucket[7].load(Relaxed) == link {
                return word;
            }
        }
    }
    0
}

#[inline(never)]
fn plain_put(buckets: &[Plain; BUCKETS], key: u64, word: u64) {
    let bucket = &buckets[(key & MASK) as usize].0;
    bucket[4].store(word, Release);
    bucket[1].store(key, Release);
    bucket[7].store(bucket[7].load(Acquire) + 1, Release);
}

/// The same on a medium.
#[inline(always)]
fn get_on<M: Medium>(region: &Region<M>, buckets: &[Line; BUCKETS], key: u64) -> u64 {
    let (bucket, medium) = (&buckets[(key & MASK) as usize].0, region.medium());
    let link = bucket[7].load(medium, Acquire);
    for pair in 0..3 {
        if bucket[1 + pair].load(medium, Acquire) == key {
            let word = bucket[4 + pair].load(medium, Acquire);
            if bucket[7].load(medium, Relaxed) == link {
                return word;
            }
        }
    }
    0
}

#[inline(always)]
fn put_on<M: Medium>(region: &Region<M>, buckets: &[Line; BUCKETS], key: u64, word: u64) {
    let (line, medium) = (&buckets[(key & MASK) as usize], region.medium());
    let bucket = &line.0;
    bucket[4].store(medium, word, Release);
    bucket[1].store(medium, key, Release);
    bucket[7].store(medium, bucket[7].load(medium, Acquire) + 1, Release);
    // PERSIST: the pattern's one write-back and fence.
    region.persist(line);
}

// One function a medium, under names that a disassembler shows.
#[inline(never)]
fn dram_get(region: &Region<Dram>, buckets: &[Line; BUCKETS], key: u64) -> u64 {
    get_on(region, buckets, key)
}
#[inline(never)]
fn dram_put(region: &Region<Dram>, buckets: &[Line; BUCKETS], key: u64, word: u64) {
    put_on(region, buckets, key, word);
}
#[inline(never)]
fn shm_get(region: &Region<Shm>, buckets: &[Line; BUCKETS], key: u64) -> u64 {
    get_on(region, buckets, key)
}
#[inline(never)]
fn shm_put(region: &Region<Shm>, buckets: &[Line; BUCKETS], key: u64, word: u64) {
    put_on(region, buckets, key, word);
}
#[inline(never)]
fn pmem_get(region: &Region<Pmem>, buckets: &[Line; BUCKETS], key: u64) -> u64 {
    get_on(region, buckets, key)
}
#[inline(never)]
fn pmem_put(region: &Region<Pmem>, buckets: &[Line; BUCKETS], key: u64, word: u64) {
    put_on(region, buckets, key, word);
}

/// How often an operation is counted. Then `counted` itself adds less than a thousandth of an
/// instruction to each.
const TIMES: u64 = 20_000;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [case] = &arguments[..] else { return ExitCode::from(2) };
    from_a_page_on(&|| run(case))
}

fn run(case: &str) -> ExitCode {
    match case {
        "atomics" => {
            let buckets = Box::new([const { Plain([const { AtomicU64::new(0) }; 8]) }; BUCKETS]);
            let buckets = &*buckets;
            count("get", TIMES, move |key| _ = black_box(plain_get(buckets, black_box(key))));
            count("put", TIMES, move |key| plain_put(buckets, black_box(key), key));
        }
        "dram" => pattern(dram_get, dram_put),
        "shm" => pattern(shm_get, shm_put),
        "pmem" => pattern(pmem_get, pmem_put),
        "clht_dram" => index::<Clht<Dram, U64>>(),
        "clht_shm" => index::<Clht<Shm, U64>>(),
        "clht_pmem" => index::<Clht<Pmem, U64>>(),
        "turbo_dram" => index::<Turbo<Dram, U64>>(),
        "turbo_shm" => index::<Turbo<Shm, U64>>(),
        "turbo_pmem" => index::<Turbo<Pmem, U64>>(),
        "rewo_dram" => index::<Rewo<Dram, U64>>(),
        "rewo_shm" => index::<Rewo<Shm, U64>>(),
        "rewo_pmem" => index::<Rewo<Pmem, U64>>(),
        "level_dram" => index::<Level<Dram, U64>>(),
        "level_shm" => index::<Level<Shm, U64>>(),
        "level_pmem" => index::<Level<Pmem, U64>>(),
        _ => return ExitCode::from(2),
    }
    ExitCode::SUCCESS
}

fn pattern<M: MappedMedium>(
    get: impl Fn(&Region<M>, &[Line; BUCKETS], u64) -> u64,
    put: impl Fn(&Region<M>, &[Line; BUCKETS], u64, u64),
) {
    let mapping = Mapping::anonymous(1 << 20, 1 << 20).expect("memory");
    let region = Region::new(M::new(mapping));
    let (region, buckets) = (&region, region.at(Offset::<[Line; BUCKETS]>::new(0)));
    count("get", TIMES, move |key| _ = black_box(get(region, buckets, black_box(key))));
    count("put", TIMES, move |key| put(region, buckets, black_box(key), key));
}

/// A hash table with room for all keys from the start: all are inserted; some are read, changed and
/// removed.
fn index<I: PointIndex<Kind = U64> + Stored<Medium = <I as PointIndex>::Medium>>()
where
    <I as PointIndex>::Medium: MappedMedium,
{
    const KEYS: u64 = 100_000;
    let pool: Pool<<I as PointIndex>::Medium> =
        PoolOptions::anonymous().size(64 << 20).max_size(64 << 20).hash_seed(7).create().expect("memory");
    let index = I::create(&pool, "index", KEYS).expect("room");
    let guard = pool.pin();
    let key = |i| black_box(spread(i));
    count("insert", KEYS, |i| _ = black_box(index.insert(&guard, &key(i), i)));
    count("get", TIMES, |i| _ = black_box(index.get(&guard, &key(i))));
    count("update", TIMES, |i| _ = black_box(index.update(&guard, &key(i), i)));
    count("remove", TIMES, |i| _ = black_box(index.remove(&guard, &key(i))));
}
