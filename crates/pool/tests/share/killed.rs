//! Tests: recovery of a killed participant.

use super::{directory, open, pause, words};
use crate::common::{argument, child, expect, say};
use std::sync::atomic::Ordering::{Acquire, Relaxed};
use terrace_medium::Shm;
use terrace_pool::{Lock, Watch};

/// Holds the locks in words 0 to 3 until it is killed.
#[test]
#[ignore = "a child of the other tests"]
fn holds_locks() {
    let pool = open::<Shm>(&argument());
    let guard = pool.pin();
    let _held: Vec<_> = words(&pool)[..4].iter().map(|word| Lock::of(word).acquire(&guard)).collect();
    say("held");
    std::io::stdin().read_line(&mut String::new()).unwrap();
}

#[test]
fn waiting_thread_gets_the_lock_of_a_killed_holder() {
    let (_directory, path) = directory();
    let pool = open::<Shm>(&path);
    words(&pool);
    for round in 0..5 {
        let (mut process, mut lines) = child("killed::holds_locks", &path);
        expect(&mut lines, "held");
        let lock = Lock::of(&words(&pool)[1]);
        assert!(lock.try_acquire(&pool.pin()).is_none());
        assert_eq!(pool.recover_dead(), 0, "it is alive");
        std::thread::scope(|threads| {
            let waiting = threads.spawn(|| lock.acquire(&pool.pin()).release());
            pause(20);
            assert!(!waiting.is_finished());
            process.kill().unwrap();
            waiting.join().unwrap();
        });
        process.wait().unwrap();
        assert_eq!(pool.recover_dead(), 0, "already recovered, round {round}");
        assert!(words(&pool)[..4].iter().all(|word| !Lock::of(word).is_held(&pool)));
    }
    assert_eq!(pool.space().readers, 0);
}

/// Takes all free watches, and keeps them until it is killed.
#[test]
#[ignore = "a child of the other tests"]
fn watches() {
    let pool = open::<Shm>(&argument());
    let _watches: Vec<_> = std::iter::from_fn(|| pool.watch(b"dead").ok()).collect();
    say("watching");
    std::io::stdin().read_line(&mut String::new()).unwrap();
}

#[test]
fn watches_of_the_dead_are_released_and_others_kept() {
    let (_directory, path) = directory();
    let pool = open::<Shm>(&path);
    let mut mine = pool.watch(b"mine").unwrap();
    let (mut process, mut lines) = child("killed::watches", &path);
    expect(&mut lines, "watching");
    assert!(pool.watch(b"new").is_err(), "the child has all others");
    process.kill().unwrap();
    process.wait().unwrap();
    // Creating a watch recovers the dead participant.
    let count = pool.layout().watch_count();
    let mut new: Vec<_> = (1..count).map(|_| pool.watch(b"new").unwrap()).collect();
    assert_eq!(pool.recover_dead(), 0);
    mine.has_changed();
    pool.notify_watches(b"dead");
    assert!(!mine.has_changed() && !new.iter_mut().any(Watch::has_changed));
    pool.notify_watches(b"new");
    assert!(!mine.has_changed() && new.iter_mut().all(Watch::has_changed));
    pool.notify_watches(b"mine");
    assert!(mine.has_changed() && !new.iter_mut().any(Watch::has_changed));
}

#[test]
fn all_watches_are_notified_after_a_crash() {
    let (_directory, path) = directory();
    let (pool, dead) = (open::<Shm>(&path), open::<Shm>(&path));
    let mut watches = [&b""[..], b"a", b"b"].map(|prefix| pool.watch(prefix).unwrap());
    dead.abandon();
    assert!(!watches.iter_mut().any(Watch::has_changed));
    assert_eq!(pool.recover_dead(), 1);
    assert!(watches.iter_mut().all(Watch::has_changed));
}

/// Holds a lock, and so much memory that the kernel needs a while to release it.
#[test]
#[ignore = "a child of the other tests"]
fn holds_a_lock_and_much_memory() {
    let pool = open::<Shm>(&argument());
    let guard = pool.pin();
    let held = Lock::of(&words(&pool)[0]).acquire(&guard);
    let memory = vec![1_u8; 128 << 20];
    say("ready");
    std::io::stdin().read_line(&mut String::new()).unwrap();
    drop(memory);
    held.release();
}

/// Early or late: the kernel may still be releasing the memory of the dead process. (`ending.rs`
/// has tests of how early.)
#[test]
fn killed_process_with_much_memory_is_recovered_once() {
    let (_directory, path) = directory();
    let pool = open::<Shm>(&path);
    words(&pool);
    for _ in 0..3 {
        let (mut process, mut lines) = child("killed::holds_a_lock_and_much_memory", &path);
        expect(&mut lines, "ready");
        assert_eq!(pool.recover_dead(), 0);
        process.kill().unwrap();
        while pool.recover_dead() == 0 {}
        Lock::of(&words(&pool)[0]).try_acquire(&pool.pin()).unwrap().release();
        process.wait().unwrap();
        assert_eq!(pool.recover_dead(), 0, "already recovered");
    }
}

/// Increments words 8 to 15 under the locks in words 0 to 7, in turn, until it is killed;
/// allocates, links, unlinks and frees meanwhile.
#[test]
#[ignore = "a child of the other tests"]
fn works() {
    let pool = open::<Shm>(&argument());
    let words = words(&pool);
    say("working");
    for round in 0usize.. {
        let guard = pool.pin();
        let held = Lock::of(&words[round % 8]).acquire(&guard);
        let count = &words[8 + round % 8];
        count.store(pool.medium(), count.load(pool.medium(), Relaxed) + 1, Relaxed);
        held.release();
        if let Ok(block) = guard.alloc(64 + round % 2000) {
            let len = block.len();
            let offset = block.persist().into_offset();
            guard.retire(offset, len);
        }
    }
}

#[test]
fn others_continue_after_any_kill() {
    let (_directory, path) = directory();
    let pool = open::<Shm>(&path);
    let all = words(&pool);
    let mut processes: Vec<_> = (0..2).map(|_| child("killed::works", &path)).collect();
    for round in 0..30 {
        let (process, lines) = &mut processes[round % 2];
        expect(lines, "working");
        pause(7);
        process.kill().unwrap();
        // No lock is lost, and the other process continues.
        let guard = pool.pin();
        for word in &all[..8] {
            Lock::of(word).acquire(&guard).release();
        }
        drop(guard);
        process.wait().unwrap();
        pool.recover_dead();
        processes[round % 2] = child("killed::works", &path);
    }
    for (process, lines) in &mut processes {
        expect(lines, "working");
        process.kill().unwrap();
        process.wait().unwrap();
    }
    assert!(pool.recover_dead() <= 2);
    assert!(all[8..].iter().all(|count| count.load(pool.medium(), Acquire) > 0));
    assert_eq!((pool.faults(), pool.space().readers), (0, 0));
    // The blocks that the dead processes held are collected.
    let root = pool.root("words", "test").unwrap().unwrap();
    pool.collect(&mut |marker| marker.mark(root, 128));
    assert_eq!(pool.verify_memory(), []);
    pool.close().unwrap();
}
