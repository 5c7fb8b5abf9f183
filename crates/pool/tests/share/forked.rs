//! Tests: a forked child's access to its parent's pool.

use super::{SIZE, directory, open, options, words};
use crate::common::{argument, child, expect, say};
use rustix::process::{Pid, WaitOptions, waitpid};
use std::sync::atomic::Ordering::{Acquire, Release};
use terrace_medium::{MappedMedium, Shm};
use terrace_pool::{Lock, WatchError};

/// Forks with the pool open twice. The child tries to use it, closes one of the two, and opens the
/// pool itself. Then the parent dies and the child lives on.
#[test]
#[ignore = "a child of the other tests"]
fn forks() {
    let path = argument();
    // In total, more than can be registered at a time.
    (0..200).for_each(|_| drop(open::<Shm>(&path)));
    let pool = open::<Shm>(&path);
    let kept = open::<Shm>(&path);
    let parents = [(&pool, words(&pool)), (&kept, words(&kept))];
    let guard = pool.pin();
    let held = Lock::of(&words(&pool)[0]).acquire(&guard);
    // SAFETY: this process has one more thread, which only waits for this one; the child's calls
    // are safe after that.
    match unsafe { libc::fork() } {
        0 => {
            let refused = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| drop(pool.pin())));
            assert!(refused.is_err() && pool.try_pin().is_err(), "the pool is the parent's");
            assert_eq!(pool.watch(b"").err(), Some(WatchError::Forked));
            // The words that it held in the parent are now private memory of the child, and accept
            // stores.
            for (pool, words) in parents {
                assert!(words.iter().all(|word| word.load(pool.medium(), Acquire) == 0));
                words[2].store(pool.medium(), 9, Release);
            }
            let own = open::<Shm>(&path);
            assert_eq!(own.owner().participant, 3);
            words(&own)[1].store(own.medium(), 5, Release);
            std::mem::forget(held);
            std::mem::forget(guard);
            drop(pool);
            say("forked");
            // Until the other end of the pipe is closed.
            std::io::stdin().read_line(&mut String::new()).unwrap();
            drop(kept);
            std::process::exit(0);
        }
        // The child ends if it fails, and has been killed otherwise.
        child => _ = waitpid(Pid::from_raw(child), WaitOptions::empty()),
    }
}

#[test]
fn forked_child_has_no_access_and_holds_no_locks() {
    let (_directory, path) = directory();
    let pool = open::<Shm>(&path);
    words(&pool);
    let (mut process, mut lines) = child("forked::forks", &path);
    expect(&mut lines, "forked");
    assert_eq!(words(&pool)[1].load(pool.medium(), Acquire), 5);
    assert_eq!(words(&pool)[2].load(pool.medium(), Acquire), 0, "a store of the child has reached the pool");
    assert_eq!(pool.recover_dead(), 0);
    // The child lives as long as this end of the pipe is open; waiting would close it.
    let _open = process.stdin.take();
    process.kill().unwrap();
    process.wait().unwrap();
    assert_eq!(pool.recover_dead(), 2, "the parent is dead, though its child lives");
    Lock::of(&words(&pool)[0]).try_acquire(&pool.pin()).unwrap().release();
}

fn open_handles() -> usize {
    std::fs::read_dir("/proc/self/fd").unwrap().count()
}

/// Forks after it closed a pool and opened files, one of which reuses the pool's handle.
#[test]
#[ignore = "a child of the other tests"]
fn forks_after_closing() {
    let path = argument();
    drop(open::<Shm>(&path));
    let before = open_handles();
    let files: Vec<_> = (0..4).map(|_| std::fs::File::open(&path).unwrap()).collect();
    assert_eq!(open_handles(), before + files.len());
    // SAFETY: as above.
    match unsafe { libc::fork() } {
        0 => {
            assert_eq!(open_handles(), before + files.len());
            let sizes = files.iter().map(|file| file.metadata().unwrap().len());
            assert_eq!(sizes.collect::<Vec<_>>(), vec![SIZE; files.len()]);
            say("has its files");
            std::process::exit(0);
        }
        child => _ = waitpid(Pid::from_raw(child), WaitOptions::empty()).unwrap(),
    }
}

#[test]
fn forked_child_keeps_handles_that_are_no_longer_a_pools() {
    let (_directory, path) = directory();
    let _pool = open::<Shm>(&path);
    let (mut process, mut lines) = child("forked::forks_after_closing", &path);
    expect(&mut lines, "has its files");
    assert!(process.wait().unwrap().success());
}

#[test]
fn closed_pool_is_free_despite_an_inherited_handle() {
    let (_directory, path) = directory();
    let pool = open::<Shm>(&path);
    let copy = pool.medium().mapping().as_file().unwrap().try_clone().unwrap();
    drop(pool);
    let exclusive = options(&path).shared(false).open::<Shm>().unwrap();
    drop((copy, exclusive));
}
