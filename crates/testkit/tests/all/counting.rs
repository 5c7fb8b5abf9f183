//! Tests of the counting medium.

use std::sync::atomic::Ordering::Relaxed;
use terrace_medium::{MappedMedium, Mapping, Medium, Offset, Region, Word};
use terrace_testkit::{Counts, Tapped};

fn region<const V: bool>() -> Region<Tapped<V>> {
    Region::new(Tapped::new(Mapping::anonymous(1 << 20, 1 << 20).unwrap()))
}

fn word<M: Medium>(region: &Region<M>, at: u64) -> &Word {
    region.at(Offset::new(at))
}

fn load<M: Medium>(region: &Region<M>, at: u64) -> u64 {
    word(region, at).load(region.medium(), Relaxed)
}

fn during<const V: bool>(region: &Region<Tapped<V>>, work: impl FnOnce()) -> Counts {
    region.medium().during(work).0
}

#[test]
fn persist_costs_a_write_back_and_a_fence_on_pmem_only() {
    let (pmem, dram) = (region::<true>(), region::<false>());
    let counts = during(&pmem, || {
        word(&pmem, 4096).store(pmem.medium(), 1, Relaxed);
        pmem.persist(word(&pmem, 4096));
    });
    let expected = Counts {
        write_backs: 1,
        fences: 1,
        stores: 1,
        bytes_stored: 8,
        lines_written: 1,
        blocks_written: 1,
        ..Counts::default()
    };
    assert_eq!(counts, expected);
    let counts = during(&dram, || {
        word(&dram, 4096).store(dram.medium(), 1, Relaxed);
        dram.persist(word(&dram, 4096));
    });
    assert_eq!(counts, Counts { write_backs: 0, fences: 0, blocks_written: 0, ..expected });
}

#[test]
fn block_counts_once_until_a_fence_or_another_block() {
    let pmem = region::<true>();
    let blocks = |lines: &[u64]| {
        let work = || lines.iter().for_each(|line| pmem.write_back(word(&pmem, line * 64)));
        during(&pmem, work).blocks_written
    };
    assert_eq!(blocks(&[0, 1, 2, 3]), 1);
    assert_eq!(blocks(&[3, 4]), 2);
    assert_eq!(blocks(&[0, 4, 1]), 3, "another block came between");
    let fenced = during(&pmem, || {
        pmem.persist(word(&pmem, 0));
        pmem.persist(word(&pmem, 64));
    });
    assert_eq!((fenced.write_backs, fenced.blocks_written), (2, 2));
}

#[test]
fn line_counts_once_while_among_the_last_eight() {
    let dram = region::<false>();
    let read = |lines: &[u64]| {
        let counts = during(&dram, || {
            lines.iter().for_each(|line| _ = load(&dram, line * 64 + 8));
        });
        (counts.loads, counts.lines_read, counts.blocks_read)
    };
    assert_eq!(read(&[0, 0, 1, 0, 1]), (5, 2, 1));
    assert_eq!(read(&[0, 4, 0, 4]), (4, 2, 2));
    let far: Vec<u64> = (0..9).map(|i| i * 4).chain([0]).collect();
    assert_eq!(read(&far), (10, 10, 10));
}

#[test]
fn streamed_lines_count_their_bytes_lines_and_blocks() {
    let pmem = region::<true>();
    let counts = during(&pmem, || {
        pmem.stream_lines(128, &[[7; 8]; 4]);
        pmem.fence();
    });
    assert_eq!((counts.bytes_stored, counts.lines_written, counts.blocks_written), (256, 4, 2));
    assert_eq!((counts.write_backs, counts.fences), (0, 1));
}

#[test]
fn failed_swap_reads_but_does_not_write() {
    let dram = region::<false>();
    let swap = |expected, new| {
        during(&dram, || {
            let _ = word(&dram, 0).compare_exchange(dram.medium(), expected, new, Relaxed, Relaxed);
        })
    };
    let failed = swap(5, 6);
    assert_eq!((failed.rmws, failed.lines_read, failed.bytes_stored), (1, 1, 0));
    let done = swap(0, 6);
    assert_eq!((done.rmws, done.lines_written, done.bytes_stored), (1, 1, 8));
}

#[test]
fn touched_lines_are_exact() {
    let dram = region::<false>();
    let (touched, ()) = dram.medium().touched(|| {
        for _ in 0..2 {
            (0..100).for_each(|line| _ = load(&dram, line * 64));
        }
        word(&dram, 0).store(dram.medium(), 1, Relaxed);
        word(&dram, 6400).store(dram.medium(), 1, Relaxed);
    });
    assert_eq!((touched.lines_read.len(), touched.lines_written.len()), (100, 2));
    assert_eq!((touched.lines(), touched.blocks()), (101, 26));
}

#[test]
fn threads_lose_no_count() {
    let pmem = region::<true>();
    let counts = during(&pmem, || {
        std::thread::scope(|scope| {
            for thread in 0..4 {
                let pmem = &pmem;
                scope.spawn(move || {
                    for _ in 0..10_000 {
                        word(pmem, thread * 64).fetch_add(pmem.medium(), 1, Relaxed);
                        pmem.persist(word(pmem, thread * 64));
                    }
                });
            }
        });
    });
    assert_eq!((counts.rmws, counts.write_backs, counts.fences), (40_000, 40_000, 40_000));
    assert_eq!(counts.lines_written, 4);
}
