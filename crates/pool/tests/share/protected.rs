//! Tests: a participant that only reads, and its description.

use super::{Kept, SIZE, directory, open, words};
use crate::common::{argument, child, expect, say};
use std::os::unix::process::ExitStatusExt;
use std::sync::atomic::Ordering::{Acquire, Release};
use terrace_medium::{Offset, Shm, Word};

/// Reads, then stores to the protected data.
#[test]
#[ignore = "a child of the other tests"]
fn only_reads() {
    let pool = open::<Shm>(&argument());
    let words = words(&pool);
    pool.protect_data().unwrap();
    assert_eq!(words[0].load(pool.medium(), Acquire), 7);
    // The second call does nothing. Dead participants are recovered nevertheless.
    pool.protect_data().unwrap();
    pool.recover_dead();
    drop(pool.pin());
    say("has read");
    words[0].store(pool.medium(), 8, Release);
    say("has stored");
}

#[test]
fn protected_participant_reads_and_faults_on_store() {
    let (_directory, path) = directory();
    let pool = open::<Shm>(&path);
    words(&pool)[0].store(pool.medium(), 7, Release);
    let (mut process, mut lines) = child("protected::only_reads", &path);
    expect(&mut lines, "has read");
    let status = process.wait().unwrap();
    assert_eq!(status.signal(), Some(libc::SIGSEGV));
    assert_eq!(words(&pool)[0].load(pool.medium(), Acquire), 7);
    assert_eq!(pool.recover_dead(), 1);
}

/// As [`only_reads`], but stores to memory that the pool has grown by since.
#[test]
#[ignore = "a child of the other tests"]
fn only_reads_what_is_new() {
    let pool = open::<Shm>(&argument());
    pool.protect_data().unwrap();
    say("protected");
    std::io::stdin().read_line(&mut String::new()).unwrap();
    let last = pool.region().at(Offset::<Word>::new(pool.size() - 8));
    assert_eq!((pool.size(), last.load(pool.medium(), Acquire)), (2 * SIZE, 7));
    say("has read");
    last.store(pool.medium(), 8, Release);
    say("has stored");
}

#[test]
fn growth_by_others_is_protected_too() {
    let (_directory, path) = directory();
    let pool = open::<Shm>(&path);
    let (process, mut lines) = child("protected::only_reads_what_is_new", &path);
    let mut process = Kept(process);
    expect(&mut lines, "protected");
    pool.grow(2 * SIZE).unwrap();
    let last = pool.region().at(Offset::<Word>::new(2 * SIZE - 8));
    last.store(pool.medium(), 7, Release);
    drop(process.0.stdin.take());
    expect(&mut lines, "has read");
    assert_eq!(process.0.wait().unwrap().signal(), Some(libc::SIGSEGV));
    assert_eq!(last.load(pool.medium(), Acquire), 7);
}

#[test]
fn holder_shows_read_only_and_held_up_memory() {
    let (_directory, path) = directory();
    let (one, two) = (open::<Shm>(&path), open::<Shm>(&path));
    let of_two = || {
        one.other_participants()
            .into_iter()
            .map(|holder| (holder.reads_only, holder.blocks_reclaim))
            .next()
            .unwrap()
    };
    assert_eq!(of_two(), (false, false));
    two.protect_data().unwrap();
    assert_eq!(of_two(), (true, false));
    let kept = words(&one);
    let guard = two.pin();
    assert_eq!(of_two(), (true, false), "nothing has been retired since");
    let mine = one.pin();
    mine.retire(mine.alloc(100).unwrap().persist().into_offset(), 100);
    drop(mine);
    one.reclaim_nonblocking();
    assert_eq!(of_two(), (true, true));
    assert!(
        one.other_participants()[0]
            .to_string()
            .ends_with(", which only reads and keeps freed memory from reuse")
    );
    drop(guard);
    assert_eq!((of_two(), kept[0].load(one.medium(), Acquire)), ((true, false), 0));
    // Only for that participant itself.
    assert!(two.other_participants().iter().all(|holder| !holder.reads_only && !holder.blocks_reclaim));
}
