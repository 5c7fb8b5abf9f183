//! Test: touched memory makes no page fault. It is alone in its program, because it counts all
//! faults of the process.
#![allow(missing_docs, reason = "a test")]

use std::sync::atomic::Ordering::Relaxed;
use terrace_bench::{page_faults, touch};
use terrace_medium::{Dram, MappedMedium, Mapping, Offset, Region, Word};

const PAGES: u64 = 4096;

fn faults_of(work: impl FnOnce()) -> u64 {
    let before = page_faults();
    work();
    page_faults() - before
}

#[test]
fn first_store_to_touched_memory_is_no_page_fault() {
    // A system that gives every mapping huge pages has hardly any faults to count.
    rustix::thread::disable_transparent_huge_pages(true).unwrap();
    let page_bytes = rustix::param::page_size() as u64;
    let region = Region::new(Dram::new(Mapping::anonymous((PAGES * page_bytes) as usize, 0).unwrap()));
    let words = || (0..PAGES).map(|page| region.at(Offset::<Word>::new(page * page_bytes)));
    // Reading the memory does not help.
    let read = faults_of(|| words().for_each(|word| assert_eq!(word.load(region.medium(), Relaxed), 0)));
    let touched = faults_of(|| touch(&region));
    assert!(read >= PAGES / 2 && touched >= PAGES / 2, "{read} faults to read, {touched} to touch");
    let stored = faults_of(|| words().for_each(|word| word.store(region.medium(), 1, Relaxed)));
    assert!(stored < PAGES / 16, "{stored} faults to store");
    touch(&region);
    assert!(words().all(|word| word.load(region.medium(), Relaxed) == 1), "nothing is changed");
}
