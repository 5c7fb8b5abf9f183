//! Reads of a process while others write. The process itself checks what it reads: that a value is
//! intact and belongs to its key, and that a snapshot is consistent.
#![allow(unreachable_pub, reason = "of the test that uses it")]

use super::accounts::{PREFIX, TOTAL, total};
use super::writes::{key, value};
use super::{Draws, contents};
use std::time::Duration;
use terrace::Store;
use terrace_testkit::process::acknowledge;

/// Reads until the process is killed, while threads `0..writers` of other processes write: one
/// thread gets and scans, one takes snapshots and watches. Both acknowledge progress.
pub fn read_until_killed(store: &Store, writers: u64, seed: impl Fn(u64) -> Draws) {
    let (mut gets, mut snapshots) = (seed(0), seed(1));
    std::thread::scope(|scope| {
        scope.spawn(move || {
            for n in 1..u64::MAX {
                read_some(store, writers, &mut gets);
                acknowledge(0, n);
            }
        });
        scope.spawn(move || {
            for n in 1..u64::MAX {
                take_snapshots(store, &mut snapshots);
                acknowledge(1, n);
            }
        });
    });
}

fn read_some(store: &Store, writers: u64, draws: &mut Draws) {
    let keys: Vec<Vec<u8>> = (0..8).map(|_| key(draws.below(writers), draws)).collect();
    for key in &keys {
        if let Some(found) = store.get(key).unwrap() {
            assert_valid(key, &found);
        }
    }
    let asked: Vec<&[u8]> = keys.iter().map(Vec::as_slice).collect();
    store.get_many(&asked, &mut |nth, entry| {
        entry.unwrap().iter().for_each(|entry| assert_valid(asked[nth], entry.value));
    });
    if draws.below(4) == 0 {
        contents(store).iter().for_each(|(key, (found, _))| assert_valid(key, found));
    }
}

fn take_snapshots(store: &Store, draws: &mut Draws) {
    for _ in 0..8 {
        assert_eq!(total(store), TOTAL, "money was created or lost");
    }
    if draws.below(4) == 0 {
        // There may be no change: all writers may be stopped.
        store.watch(PREFIX).unwrap().wait(Duration::from_millis(20));
    }
}

/// Fails if `found` can never have been the value of `key`.
fn assert_valid(key: &[u8], found: &[u8]) {
    let is_number = || std::str::from_utf8(found).is_ok_and(|text| text.parse::<i64>().is_ok());
    let is_its_own = match key.starts_with(b"thread") && !key.ends_with(b"counter") {
        true => found.first().is_some_and(|&version| found == value(key, version, found.len())),
        false => is_number(),
    };
    assert!(
        is_its_own,
        "{} is {} bytes {:?}",
        key.escape_ascii(),
        found.len(),
        &found[..found.len().min(64)]
    );
}
