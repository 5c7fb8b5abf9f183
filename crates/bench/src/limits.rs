//! The machine's limits, measured in the same run as the figures that they bound.

use crate::keys::Random;
use crate::machine::touch;
use crate::steady::fixed_loop_ns;
use crate::workers::run_on;
use std::hint::black_box;
use std::sync::atomic::Ordering::Relaxed;
use terrace_medium::{Dram, LINE, MapError, MappedMedium, Mapping, Medium, Offset, Pmem, Region, Word};

/// How much memory and how many accesses the limits are measured over.
#[derive(Clone, Copy, Debug)]
pub struct LimitsSize {
    /// Bytes of memory; a power of two, far larger than the caches.
    pub bytes: usize,
    /// Accesses of one measurement.
    pub accesses: u64,
}

impl LimitsSize {
    /// For reliable figures.
    pub const FULL: Self = Self { bytes: 1 << 30, accesses: 4_000_000 };
    /// To see that it runs.
    pub const QUICK: Self = Self { bytes: 64 << 20, accesses: 100_000 };
}

/// The machine's limits, with one thread unless stated otherwise.
#[derive(Clone, Debug)]
pub struct Limits {
    /// A random read on 4 KiB pages whose address depends on the previous read.
    pub dependent_read_4k_ns: f64,
    /// The same on huge pages.
    pub dependent_read_huge_ns: f64,
    /// Random reads prefetched by 16, on 4 KiB pages.
    pub prefetched_reads_4k_per_us: f64,
    /// The same on huge pages.
    pub prefetched_reads_huge_per_us: f64,
    /// The same with two threads.
    pub prefetched_reads_huge_two_threads_per_us: f64,
    /// A store to a random line that is written back and fenced, on huge pages.
    pub persist_ns: f64,
    /// A store to a line that was just read, written back and fenced: the cost without the read.
    pub persist_cached_ns: f64,
    /// A store to a random line that is written back, with one fence for 64 of them.
    pub write_back_ns: f64,
    /// A random line stored past the cache and fenced.
    pub streamed_line_ns: f64,
    /// Sequential reads.
    pub read_gb_per_s: f64,
    /// Sequential writes.
    pub write_gb_per_s: f64,
    /// The fixed loop.
    pub fixed_loop_ns: f64,
}

impl Limits {
    /// Measures the limits; takes 10 seconds at full size.
    pub fn measure(size: LimitsSize) -> Result<Self, MapError> {
        let small = memory::<Dram>(size, false)?;
        let dependent_read_4k_ns = dependent_read_ns(&small, size);
        let prefetched_reads_4k_per_us = prefetched_reads_per_us(&small, size, 1);
        drop(small);
        let huge = memory::<Dram>(size, true)?;
        let dependent_read_huge_ns = dependent_read_ns(&huge, size);
        let prefetched_reads_huge_per_us = prefetched_reads_per_us(&huge, size, 1);
        let prefetched_reads_huge_two_threads_per_us = prefetched_reads_per_us(&huge, size, 2);
        drop(huge);
        let pmem = memory::<Pmem>(size, true)?;
        let (read_gb_per_s, write_gb_per_s) = bandwidth(size);
        Ok(Self {
            dependent_read_4k_ns,
            dependent_read_huge_ns,
            prefetched_reads_4k_per_us,
            prefetched_reads_huge_per_us,
            prefetched_reads_huge_two_threads_per_us,
            persist_ns: persist_ns(&pmem, size, size.bytes),
            persist_cached_ns: persist_ns(&pmem, size, CACHED),
            write_back_ns: write_back_ns(&pmem, size),
            streamed_line_ns: streamed_line_ns(&pmem, size),
            read_gb_per_s,
            write_gb_per_s,
            fixed_loop_ns: fixed_loop_ns(),
        })
    }

    /// The figures with their names, the unit last.
    pub fn figures(&self) -> [(&'static str, f64); 12] {
        [
            ("dependent_read_4k_ns", self.dependent_read_4k_ns),
            ("dependent_read_huge_ns", self.dependent_read_huge_ns),
            ("prefetched_reads_4k_per_us", self.prefetched_reads_4k_per_us),
            ("prefetched_reads_huge_per_us", self.prefetched_reads_huge_per_us),
            ("prefetched_reads_huge_two_threads_per_us", self.prefetched_reads_huge_two_threads_per_us),
            ("persist_ns", self.persist_ns),
            ("persist_cached_ns", self.persist_cached_ns),
            ("write_back_ns", self.write_back_ns),
            ("streamed_line_ns", self.streamed_line_ns),
            ("read_gb_per_s", self.read_gb_per_s),
            ("write_gb_per_s", self.write_gb_per_s),
            ("fixed_loop_ns", self.fixed_loop_ns),
        ]
    }
}

/// Two of the limits, for measuring again beside a figure that they bound. On huge pages.
pub struct Probe {
    dram: Region<Dram>,
    pmem: Region<Pmem>,
    size: LimitsSize,
}

impl Probe {
    /// Allocates the memory and touches it.
    pub fn new(size: LimitsSize) -> Result<Self, MapError> {
        let size = LimitsSize { accesses: size.accesses / 4, ..size };
        let small = LimitsSize { bytes: 2 << 20, ..size };
        Ok(Self { dram: memory(size, true)?, pmem: memory(small, true)?, size })
    }

    /// See [`Limits::dependent_read_huge_ns`].
    pub fn dependent_read_ns(&self) -> f64 {
        dependent_read_ns(&self.dram, self.size)
    }

    /// See [`Limits::prefetched_reads_huge_per_us`].
    pub fn prefetched_reads_per_us(&self) -> f64 {
        prefetched_reads_per_us(&self.dram, self.size, 1)
    }

    /// See [`Limits::persist_cached_ns`].
    pub fn persist_cached_ns(&self) -> f64 {
        persist_ns(&self.pmem, self.size, CACHED)
    }
}

/// Bytes that fit the first-level cache.
const CACHED: usize = 16 << 10;

/// Touched memory, on huge pages if wanted and available.
fn memory<M: MappedMedium>(size: LimitsSize, huge: bool) -> Result<Region<M>, MapError> {
    let mapping = Mapping::anonymous(size.bytes, size.bytes)?;
    if huge {
        mapping.advise_huge_pages();
    }
    let region = Region::new(M::new(mapping));
    touch(&region);
    Ok(region)
}

fn word<M: Medium>(region: &Region<M>, at: u64) -> &Word {
    region.at(Offset::new(at))
}

/// The random line within the first `bytes` that `number` selects.
fn line(number: u64, bytes: usize) -> u64 {
    ((u128::from(number) * (bytes / LINE) as u128) >> 64) as u64 * LINE as u64
}

fn ns_each(accesses: u64, work: impl Fn() + Sync) -> f64 {
    run_on(1, |_| work()).0 * 1e9 / accesses as f64
}

fn dependent_read_ns<M: Medium>(region: &Region<M>, size: LimitsSize) -> f64 {
    ns_each(size.accesses, || {
        let mut at = 1u64;
        for _ in 0..size.accesses {
            let found = word(region, line(at, size.bytes)).load(region.medium(), Relaxed);
            // The memory holds zeros, but the processor cannot know that.
            at = at
                .wrapping_mul(0x5851_f42d_4c95_7f2d)
                .wrapping_add(0x1405_7b7e_f767_814f)
                .wrapping_add(found);
        }
        black_box(at);
    })
}

fn prefetched_reads_per_us<M: Medium>(region: &Region<M>, size: LimitsSize, threads: usize) -> f64 {
    let (seconds, _) = run_on(threads, |thread| {
        let (mut random, mut sum) = (Random::new(thread as u64), 0);
        for _ in 0..size.accesses / 16 {
            let lines = [0; 16].map(|_| line(random.next(), size.bytes));
            lines.iter().for_each(|&at| region.prefetch(at));
            sum += lines.iter().map(|&at| word(region, at).load(region.medium(), Relaxed)).sum::<u64>();
        }
        black_box(sum);
    });
    threads as f64 * size.accesses as f64 / seconds / 1e6
}

fn persist_ns<M: Medium>(region: &Region<M>, size: LimitsSize, bytes: usize) -> f64 {
    ns_each(size.accesses, || {
        let mut random = Random::new(3);
        for i in 0..size.accesses {
            let word = word(region, line(random.next(), bytes));
            word.store(region.medium(), i, Relaxed);
            // PERSIST: nothing depends on it; its cost is measured.
            region.persist(word);
        }
    })
}

fn write_back_ns<M: Medium>(region: &Region<M>, size: LimitsSize) -> f64 {
    ns_each(size.accesses, || {
        let mut random = Random::new(4);
        for i in 0..size.accesses {
            let word = word(region, line(random.next(), size.bytes));
            word.store(region.medium(), i, Relaxed);
            region.write_back(word);
            if i % 64 == 63 {
                region.fence();
            }
        }
    })
}

fn streamed_line_ns<M: Medium>(region: &Region<M>, size: LimitsSize) -> f64 {
    ns_each(size.accesses, || {
        let mut random = Random::new(5);
        for i in 0..size.accesses {
            region.stream_lines(line(random.next(), size.bytes), &[[i; 8]]);
            region.fence();
        }
    })
}

/// GB/s read and written, over plain vectors; the second pass is timed.
fn bandwidth(size: LimitsSize) -> (f64, f64) {
    let mut words = vec![1u64; size.bytes / 8];
    let (mut read, mut written) = (0.0, 0.0);
    for pass in 0..2u64 {
        written = run_once(|| black_box(&mut words).fill(pass));
        read = run_once(|| {
            black_box(words.iter().fold(0u64, |sum, word| sum.wrapping_add(*word)));
        });
    }
    (size.bytes as f64 / read / 1e9, size.bytes as f64 / written / 1e9)
}

fn run_once(work: impl FnOnce()) -> f64 {
    let start = std::time::Instant::now();
    work();
    start.elapsed().as_secs_f64()
}
