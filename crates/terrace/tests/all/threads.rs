//! Tests: which threads a store has. No other test may run in this process, as it lists all of its
//! threads.

use crate::common::{Medium, directory, shared};
use std::collections::BTreeSet;
use std::time::Duration;
use terrace::Options;

/// The names of the store's threads. The thread that requests huge pages exists only while it
/// works.
fn threads() -> BTreeSet<String> {
    let tasks = std::fs::read_dir("/proc/self/task").unwrap().flatten();
    // A thread that has ended meanwhile has no name.
    let names = tasks.filter_map(|task| std::fs::read_to_string(task.path().join("comm")).ok());
    let names = names.map(|name| name.trim().to_string());
    names
        .filter_map(|name| Some(name.strip_prefix("terrace-")?.to_string()))
        .filter(|name| name != "pages")
        .collect()
}

/// Waits until the store has exactly these threads. A thread has its name once it has started.
fn wait_for(expected: &[&str]) {
    let expected = expected.iter().map(|name| name.to_string()).collect();
    while threads() != expected {
        std::thread::yield_now();
    }
}

#[test]
fn store_has_only_the_requested_threads() {
    let directory = directory();
    let path = directory.path().join("pool");
    let options = shared(&path, Medium::Shm).end_stopped_after(Duration::from_secs(3600));
    type With = fn(Options) -> Options;
    let asked: [(With, &[&str]); 7] = [
        (|options| options, &["collect", "others", "stopped", "sweep"]),
        (|options| options.expiry_thread(false), &["collect", "others", "stopped"]),
        (|options| options.read_only(true), &["stopped"]),
        (|options| options.read_only(true).huge_pages(true), &["stopped"]),
        // A store that is not shared has no other process to recover or to kill.
        (|options| options.shared(false), &["sweep"]),
        (|options| options.shared(false).expiry_thread(false), &[]),
        (|options| options.shared(false).expiry_thread(false).huge_pages(true), &["huge"]),
    ];
    options.create().unwrap().close().unwrap();
    for (with, expected) in asked {
        let store = with(options.clone()).open().unwrap();
        wait_for(expected);
        store.close().unwrap();
        wait_for(&[]);
    }
    // As a killed process leaves it.
    let store = options.open().unwrap();
    let left = path.with_extension("left");
    std::fs::copy(&path, &left).unwrap();
    store.close().unwrap();
    let image = std::fs::read(&left).unwrap();
    let options = options.shared(false).expiry_thread(false).path(&left);
    let store = options.clone().read_only(true).open().unwrap();
    wait_for(&[]);
    store.close().unwrap();
    assert!(std::fs::read(&left).unwrap() == image, "a read-only store has collected");
    let store = options.open().unwrap();
    store.upkeep().wait_until_collected();
    wait_for(&[]);
}
