//! Tests of the slow medium in counted time; they do not depend on a clock.

use std::sync::atomic::Ordering::Relaxed;
use terrace_index::hash::Clht;
use terrace_index::{PointIndex, Stored, U64};
use terrace_medium::{Line, MappedMedium, Mapping, Medium, Offset, Pmem, Region, Shm};
use terrace_pool::PoolOptions;
use terrace_testkit::{Calibration, Profile, Slow, Traffic};

const BYTES: usize = 16 << 20;
const LINES: u64 = BYTES as u64 / 64;

fn region<M: MappedMedium>(profile: Profile) -> Region<Slow<M>> {
    Region::new(Slow::counted(M::new(Mapping::anonymous(BYTES, BYTES).unwrap()), profile))
}

fn load<M: Medium>(region: &Region<Slow<M>>, line: u64) {
    region.at(Offset::<Line>::new(line * 64)).0[0].load(region.medium(), Relaxed);
}

fn store<M: Medium>(region: &Region<Slow<M>>, line: u64) {
    region.at(Offset::<Line>::new(line * 64)).0[0].store(region.medium(), 1, Relaxed);
}

/// Lines far apart.
fn scattered(n: u64) -> impl Iterator<Item = u64> {
    (0..n).map(|i| (i * 2_654_435_761) % LINES / 64 * 64)
}

#[test]
fn line_costs_its_latency_once_while_it_is_cached() {
    for profile in Profile::ALL {
        let region = region::<Pmem>(profile);
        let medium = region.medium();
        let first = medium.during(|| load(&region, 7000));
        assert_eq!(first.1, profile.random_read_ns, "{}", profile.name);
        let again = medium.during(|| load(&region, 7000));
        assert_eq!((again.0, again.1), (Traffic::default(), 0), "{}", profile.name);
    }
}

#[test]
fn optane_reads_blocks_of_256_bytes() {
    let region = region::<Pmem>(Profile::OPTANE_100);
    let (traffic, ns, ()) = region.medium().during(|| (4000..4016).for_each(|line| load(&region, line)));
    assert_eq!((traffic.lines_read, traffic.blocks_read, traffic.random_reads), (16, 4, 1));
    assert_eq!(ns, 350 + 3 * 100 + 12 * 30);
}

#[test]
fn sequential_reads_on_optane_are_4_to_7_times_faster() {
    let region = region::<Pmem>(Profile::OPTANE_100);
    let row = region.medium().during(|| (4000..4016).for_each(|line| load(&region, line))).1;
    let scattered = region.medium().during(|| scattered(16).for_each(|line| load(&region, line))).1;
    assert!((4.0..=7.0).contains(&(scattered as f64 / row as f64)), "{scattered} ns to {row} ns");
}

#[test]
fn fence_waits_only_for_write_backs() {
    for profile in [Profile::OPTANE_100, Profile::PCM] {
        let region = region::<Pmem>(profile);
        let medium = region.medium();
        load(&region, 9);
        assert_eq!(medium.during(|| region.fence()).1, 0, "nothing was written");
        store(&region, 9);
        assert_eq!(medium.during(|| region.write_back_bytes(9 * 64, 8)).1, 0, "a write-back only starts");
        assert_eq!(medium.during(|| region.fence()).1, profile.write_back_ns);
        assert_eq!(
            medium.during(|| region.persist(region.at(Offset::<Line>::new(9 * 64)))).1,
            0,
            "memory has it already"
        );
    }
}

#[test]
fn write_backs_before_one_fence_overlap() {
    let region = region::<Pmem>(Profile::PCM);
    (0..64).for_each(|line| load(&region, line));
    (0..64).for_each(|line| store(&region, line));
    region.write_back_bytes(0, 64 * 64);
    assert_eq!(region.medium().during(|| region.fence()).1, Profile::PCM.write_back_ns);
}

#[test]
fn without_a_volatile_cache_nothing_is_written_back() {
    let region = region::<Shm>(Profile::CXL);
    load(&region, 9);
    store(&region, 9);
    let (traffic, ns, ()) = region.medium().during(|| region.persist(region.at(Offset::<Line>::new(9 * 64))));
    assert_eq!((traffic, ns), (Traffic::default(), 0));
}

#[test]
fn evicted_lines_are_written() {
    let region = region::<Shm>(Profile::CXL);
    (0..LINES).for_each(|line| store(&region, line));
    let cached = (512 << 10) / 64;
    assert_eq!(region.medium().traffic().lines_written, LINES - cached);
}

#[test]
fn random_small_writes_reach_a_quarter_of_the_bandwidth() {
    let time = |lines: &mut dyn Iterator<Item = u64>| {
        let region = region::<Pmem>(Profile::OPTANE_100);
        let (_, ns, written) = region.medium().during(|| {
            let mut written = 0;
            for line in lines {
                region.stream_lines(line * 64, &[[1; 8]]);
                written += 1;
            }
            region.fence();
            written
        });
        ns as f64 / f64::from(written)
    };
    // Distinct blocks in a scattered order.
    let blocks = LINES / 4;
    let ratio = time(&mut (0..20_000).map(|i| i * 40_503 % blocks * 4)) / time(&mut (0..20_000));
    assert!((3.5..4.6).contains(&ratio), "a scattered line costs {ratio:.2} of one in a row");
}

#[test]
fn bandwidth_is_shared_by_all_threads() {
    // 2.25 GB/s: 64 MB take 28.4 ms, whichever thread writes them.
    let region = region::<Pmem>(Profile::OPTANE_100);
    let threads = 4;
    let each = LINES / threads;
    let write = |thread: u64| {
        for line in thread * each..(thread + 1) * each {
            region.stream_lines(line * 64, &[[1; 8]]);
        }
        region.fence();
    };
    let longest = std::thread::scope(|scope| {
        let (region, write) = (&region, &write);
        let run = |thread| scope.spawn(move || region.medium().during(|| write(thread)).1);
        let running: Vec<_> = (0..threads).map(run).collect();
        running.into_iter().map(|thread| thread.join().unwrap()).max().unwrap()
    });
    let at_best = BYTES as f64 / 2.25;
    assert!((0.9..1.1).contains(&(longest as f64 / at_best)), "{longest} ns, {at_best} at best");
}

#[test]
fn prefetched_lines_arrive_together_sixteen_at_a_time() {
    let region = region::<Pmem>(Profile::PCM);
    let together = |n: u64| {
        let lines: Vec<u64> = scattered(n).map(|line| line + n % 61).collect();
        let fetch = || {
            lines.iter().for_each(|&line| region.prefetch(line * 64));
            lines.iter().for_each(|&line| load(&region, line));
        };
        region.medium().during(fetch).1
    };
    assert_eq!(together(16), 200, "all at once");
    assert_eq!(together(64), 4 * 200, "in fours");
    region.prefetch(u64::MAX / 2);
}

#[test]
fn line_arrives_with_its_block_not_before() {
    let region = region::<Pmem>(Profile::OPTANE_100);
    let (traffic, ns, ()) = region.medium().during(|| {
        region.prefetch(4 * 64);
        load(&region, 5);
    });
    assert_eq!((traffic.random_reads, ns), (1, 350), "another line of the block");
    let (traffic, ns, ()) = region.medium().during(|| {
        region.prefetch(4000 * 64);
        load(&region, 4004);
    });
    assert_eq!((traffic.random_reads, ns), (1, 350), "the next block, as if requested alone");
}

/// The cost of an index on a medium, by the model alone: the same on every machine.
#[test]
fn index_pays_for_cache_misses() {
    let mapping = Mapping::anonymous(64 << 20, 64 << 20).unwrap();
    let medium = Slow::counted(Pmem::new(mapping), Profile::OPTANE_100);
    let pool = PoolOptions::anonymous().hash_seed(1).create_on(medium).unwrap();
    let index = Clht::<_, U64>::create(&pool, "index", 400_000).unwrap();
    (0..300_000u64).for_each(|key| _ = index.insert(&pool.pin(), &key, key + 1).unwrap());
    let guard = pool.pin();
    let keys: Vec<u64> = (0..1600).map(|i| i * 180).collect();
    let medium = pool.medium();
    let single =
        medium.during(|| keys.iter().for_each(|key| assert_eq!(index.get(&guard, key), Some(key + 1)))).1;
    let keys: Vec<u64> = keys.iter().map(|key| key + 7).collect();
    let many = medium.during(|| {
        for keys in keys.chunks(16) {
            index.get_many(&guard, keys, |_, word| assert!(word.is_some()));
        }
    });
    assert!((300..500).contains(&(single / 1600)), "{} ns a get", single / 1600);
    assert!(many.1 * 4 < single, "prefetched together: {} ns a get", many.1 / 1600);
    let hot = medium.during(|| (0..1000).for_each(|_| _ = index.get(&guard, &7))).1;
    assert!(hot < 500, "{hot} ns for a thousand hot gets");
}

/// The figures themselves depend on the machine and its load.
#[test]
fn calibration_reports_requested_and_achieved_times() {
    let calibration = Calibration::measure(Profile::PCM).unwrap();
    assert_eq!(calibration.comparisons.len(), 4);
    let text = calibration.to_string();
    assert!(text.starts_with("pcm: a random read ") && text.contains("(200 asked)"), "{text}");
}
