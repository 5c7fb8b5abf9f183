//! A program whose instructions are counted: the operations of a whole store, in a pool that one
//! process has or that several share. `crates/bench/cost-of-media` runs it under callgrind.
//!
//! `cost_of_store alone` or `cost_of_store shared` prints a line for each operation: its name, and
//! how often it was done.
#![forbid(unsafe_code)]

use std::hint::black_box;
use std::process::ExitCode;
use terrace_bench::instructions::{count, from_a_page_on};
use terrace_bench::spread;

/// How often an operation is counted.
const TIMES: u64 = 20_000;

fn main() -> ExitCode {
    let shared = match std::env::args().nth(1).as_deref() {
        Some("alone") => false,
        Some("shared") => true,
        _ => return ExitCode::from(2),
    };
    from_a_page_on(&|| {
        store(shared);
        ExitCode::SUCCESS
    })
}

/// A whole store, in an exclusive or a shared pool, without background work.
fn store(shared: bool) {
    const KEYS: u64 = 50_000;
    let directory = tempfile::tempdir_in("/dev/shm").expect("a directory");
    let options = terrace::Store::options()
        .path(directory.path().join("pool"))
        .size(terrace::ByteSize::mib(64))
        .max_size(terrace::ByteSize::mib(64));
    let options = options.expected_keys(KEYS).huge_pages(false).expiry_thread(false).shared(shared);
    let store = options.create().expect("room");
    let key = |i: u64| spread(i % KEYS).to_le_bytes();
    (0..KEYS).for_each(|i| store.put(key(i), [7; 64]).expect("room"));
    count("get", TIMES, |i| drop(black_box(store.get(black_box(&key(i))))));
    count("put", TIMES, |i| drop(black_box(store.put(black_box(&key(i)), [8; 64]))));
}
