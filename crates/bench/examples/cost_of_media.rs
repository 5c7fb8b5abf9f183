//! Something to count the instructions of: the access pattern of a hash table on plain atomics and on each medium, and the hash table itself.
//! `crates/bench/cost-of-media` runs it under callgrind and in a disassembler.
//!
//! `cost_of_media CASE N` does what CASE names N times. The instructions of one are those of 2N times less those of N times, over N.
#![forbid(unsafe_code)]

use std::hint::black_box;
use std::process::ExitCode;
use std::sync::atomic::{AtomicU64, Ordering::Acquire, Ordering::Relaxed, Ordering::Release};
use terrace_bench::spread;
use terrace_index::{PointIndex, Stored, U64, hash::Clht, hash::Turbo};
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

// One function a medium, with names that a disassembler shows.
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

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [case, n] = &arguments[..] else { return ExitCode::from(2) };
    let (Some((what, operation)), Ok(n)) = (case.split_once('-'), n.parse::<u64>()) else {
        return ExitCode::from(2);
    };
    match what {
        "atomics" => {
            let buckets = Box::new([const { Plain([const { AtomicU64::new(0) }; 8]) }; BUCKETS]);
            repeat(operation, n, |key| plain_get(&buckets, key), |key| plain_put(&buckets, key, key));
        }
        "dram" => pattern(operation, n, dram_get, dram_put),
        "shm" => pattern(operation, n, shm_get, shm_put),
        "pmem" => pattern(operation, n, pmem_get, pmem_put),
        "clht_dram" => index::<Clht<Dram, U64>>(operation, n),
        "clht_shm" => index::<Clht<Shm, U64>>(operation, n),
        "clht_pmem" => index::<Clht<Pmem, U64>>(operation, n),
        "turbo_dram" => index::<Turbo<Dram, U64>>(operation, n),
        "turbo_shm" => index::<Turbo<Shm, U64>>(operation, n),
        "turbo_pmem" => index::<Turbo<Pmem, U64>>(operation, n),
        "store_alone" => store(operation, n, false),
        "store_shared" => store(operation, n, true),
        _ => return ExitCode::from(2),
    }
    ExitCode::SUCCESS
}

fn repeat(operation: &str, n: u64, get: impl Fn(u64) -> u64, put: impl Fn(u64)) {
    for key in 0..n {
        match operation {
            "get" => _ = black_box(get(black_box(key))),
            _ => put(black_box(key)),
        }
    }
}

type Get<M> = fn(&Region<M>, &[Line; BUCKETS], u64) -> u64;
type Put<M> = fn(&Region<M>, &[Line; BUCKETS], u64, u64);

fn pattern<M: MappedMedium>(operation: &str, n: u64, get: Get<M>, put: Put<M>) {
    let mapping = Mapping::anonymous(1 << 20, 1 << 20).expect("memory");
    let region = Region::new(M::new(mapping));
    let buckets = region.at(Offset::<[Line; BUCKETS]>::new(0));
    repeat(operation, n, |key| get(&region, buckets, key), |key| put(&region, buckets, key, key));
}

/// The hash table: `n` operations, after `keys` inserts that are the same for every `n`.
fn index<I: PointIndex<Kind = U64> + Stored<Medium = <I as PointIndex>::Medium>>(operation: &str, n: u64)
where
    <I as PointIndex>::Medium: MappedMedium,
{
    const KEYS: u64 = 100_000;
    let pool: Pool<<I as PointIndex>::Medium> =
        PoolOptions::anonymous().size(64 << 20).max_size(64 << 20).hash_seed(7).create().expect("memory");
    let index = I::create(&pool, "index", KEYS).expect("room");
    let guard = pool.pin();
    if operation != "insert" {
        (0..KEYS).for_each(|i| _ = index.insert(&guard, &spread(i), i));
    }
    for i in 0..n {
        let key = black_box(spread(i));
        match operation {
            "get" => _ = black_box(index.get(&guard, &key)),
            "insert" => _ = black_box(index.insert(&guard, &key, i)),
            "update" => _ = black_box(index.update(&guard, &key, i)),
            _ => _ = black_box(index.remove(&guard, &key)),
        }
    }
}

/// The whole store, in a pool that this process has for itself or shares, with nothing in the background.
fn store(operation: &str, n: u64, shared: bool) {
    const KEYS: u64 = 50_000;
    let directory = tempfile::tempdir_in("/dev/shm").expect("a directory");
    let options = terrace::Store::options()
        .path(directory.path().join("pool"))
        .size(terrace::ByteSize::mib(64))
        .max_size(terrace::ByteSize::mib(64));
    let options = options.expected_keys(KEYS).huge_pages(false).expiry_thread(false).shared(shared);
    let store = options.create().expect("room");
    let key = |i: u64| spread(i % KEYS).to_le_bytes();
    (0..KEYS).for_each(|i| store.put(&key(i), &[7; 64]).expect("room"));
    for i in 0..n {
        match operation {
            "get" => drop(black_box(store.get(black_box(&key(i))))),
            _ => drop(black_box(store.put(black_box(&key(i)), &[8; 64]))),
        }
    }
}
