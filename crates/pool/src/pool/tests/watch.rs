//! Tests of `watch`.

use super::*;
use crate::format::layout::Geometry;
use crate::open::options::PoolOptions;
use crate::sharing::liveness::tests::FixedLiveness;
use crate::sharing::process::field;
use crate::tests::fixtures::participants;
use rustix::thread::{Pid, gettid};
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, mpsc};
use terrace_medium::{Dram, Mapping, Shm};

const LONG: Duration = Duration::from_secs(60);

fn pool() -> Pool<Dram> {
    Pool::anonymous_with(128 << 10, Geometry::tiny()).unwrap()
}

#[test]
fn watch_reports_only_keys_with_its_prefix() {
    let pool = pool();
    let (mut all, mut some) = (pool.watch(b"").unwrap(), pool.watch(b"job:").unwrap());
    let mut asked = |key: &[u8]| {
        pool.notify_watches(key);
        (all.has_changed(), some.has_changed())
    };
    assert_eq!(asked(b"job:"), (true, true));
    assert_eq!(asked(b"job:7"), (true, true));
    assert_eq!(asked(b"job"), (true, false));
    assert_eq!(asked(b""), (true, false));
    assert_eq!(asked(b"other"), (true, false));
    assert!(!all.has_changed() && !some.has_changed());
}

#[test]
fn long_prefix_is_cut_to_its_first_bytes() {
    let (pool, long) = (pool(), [7; PREFIX_BYTES + 5]);
    let mut watch = pool.watch(&long).unwrap();
    pool.notify_watches(&long[..PREFIX_BYTES - 1]);
    assert!(!watch.has_changed());
    pool.notify_watches(&long[..PREFIX_BYTES]);
    assert!(watch.has_changed());
}

#[test]
fn watches_are_limited_and_dropped_ones_reusable() {
    let pool = pool();
    let count = pool.layout().watch_count();
    let mut watches: Vec<_> = (0..count).map(|_| pool.watch(b"a").unwrap()).collect();
    assert_eq!(pool.watch(b"a").err(), Some(WatchError::TooMany(count)));
    watches.pop();
    // The previous watch had another prefix, and was notified of a change that the next one
    // does not match.
    pool.notify_watches(b"a");
    let mut watch = pool.watch(b"b").unwrap();
    assert!(!watch.has_changed());
    pool.notify_watches(b"a");
    assert!(!watch.has_changed() && watches.iter_mut().all(Watch::has_changed));
    drop((watch, watches));
    assert_eq!(pool.0.base().watches_set(), 0);
}

#[test]
fn waiting_ends_with_the_change_or_with_the_time() {
    let pool = pool();
    let mut watch = pool.watch(b"k").unwrap();
    assert!(!watch.wait(Duration::ZERO) && !watch.wait(Duration::from_millis(2)));
    pool.notify_watches(b"k");
    assert!(watch.wait(LONG));
    std::thread::scope(|threads| {
        threads.spawn(|| pool.notify_watches(b"k"));
        assert!(watch.wait(LONG));
    });
    assert!(!watch.wait(Duration::ZERO));
}

/// The number of times that this thread has gone to sleep.
fn sleeps() -> u64 {
    let status = std::fs::read_to_string("/proc/thread-self/status").unwrap();
    let count = status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
    count.unwrap().trim().parse().unwrap()
}

#[test]
fn waiting_watch_sleeps() {
    const WAITS: u64 = 20;
    let pool = pool();
    let mut watch = pool.watch(b"k").unwrap();
    let before = sleeps();
    for _ in 0..WAITS {
        assert!(!watch.wait(Duration::from_millis(2)));
    }
    // In some rounds the time may be over before the wait begins.
    assert!(sleeps() - before >= WAITS / 2);
}

/// Whether a thread of this process sleeps or has ended.
fn is_at_rest(thread: Pid) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/self/task/{}/stat", thread.as_raw_nonzero()));
    stat.map_or(true, |stat| field(&stat, 3) == Some("S"))
}

#[test]
fn other_participant_wakes_a_sleeping_watch_of_any_prefix() {
    let (_directory, [mine, other]) = participants::<Shm, 2>(Geometry::tiny());
    let key = [b'k'; PREFIX_BYTES];
    for prefix in [&key[..0], &key[..1], &key] {
        let mut watch = mine.watch(prefix).unwrap();
        let ((send_thread, thread), (send_end, end)) = (mpsc::channel(), mpsc::channel());
        std::thread::scope(|threads| {
            threads.spawn(move || {
                send_thread.send(gettid()).unwrap();
                send_end.send(watch.wait(2 * LONG)).unwrap();
            });
            let thread = thread.recv().unwrap();
            while !is_at_rest(thread) {
                std::thread::yield_now();
            }
            other.notify_watches(&key);
            assert_eq!(end.recv_timeout(LONG), Ok(true));
        });
    }
}

#[test]
fn watch_without_common_kernel_polls_for_changes() {
    let mapping = Mapping::anonymous(128 << 10, 0).unwrap();
    let options = PoolOptions::anonymous().geometry(Geometry::tiny());
    let pool = options.create_shared_on(Shm::new(mapping), Arc::new(FixedLiveness(&[]))).unwrap();
    let mut watch = pool.watch(b"k").unwrap();
    let (pool, index) = (watch.pool.clone(), watch.index);
    let ((send_thread, thread), (send_end, end)) = (mpsc::channel(), mpsc::channel());
    std::thread::scope(|threads| {
        threads.spawn(move || {
            send_thread.send(gettid()).unwrap();
            send_end.send(watch.wait(2 * LONG)).unwrap();
        });
        let thread = thread.recv().unwrap();
        while !is_at_rest(thread) {
            std::thread::yield_now();
        }
        // As by another host, whose kernel does not know this sleeper.
        pool.0.base().watch(index).changes.fetch_add(pool.medium(), 1, Relaxed);
        assert_eq!(end.recv_timeout(LONG), Ok(true));
    });
}

/// Each thread waits only for the other: one missed change would block both.
#[test]
fn no_change_is_missed() {
    let (pool, rounds) = (pool(), [AtomicU64::new(0), AtomicU64::new(0)]);
    std::thread::scope(|threads| {
        let watches = [pool.watch(b"1").unwrap(), pool.watch(b"0").unwrap()];
        for (own, mut watch) in watches.into_iter().enumerate() {
            let (pool, rounds) = (&pool, &rounds);
            threads.spawn(move || {
                for round in 1..=2000 {
                    rounds[own].store(round, Release);
                    pool.notify_watches(&[b'0' + own as u8]);
                    while rounds[1 - own].load(Acquire) < round {
                        assert!(watch.wait(LONG), "round {round}");
                    }
                }
            });
        }
    });
}
