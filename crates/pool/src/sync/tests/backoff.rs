//! Tests of `backoff`.

use super::*;

#[test]
fn backoff_spins_then_yields_then_sleeps() {
    let mut backoff = Backoff::new();
    assert_eq!((1..).find(|_| backoff.spin()), Some((YIELDS + 1) * SPINS));
    assert_eq!((1..).find(|_| backoff.spin()), Some(SPINS));
    let mut backoff = Backoff::new();
    let slept: Vec<bool> = (0..8).map(|_| backoff.rest()).collect();
    assert_eq!(slept, [false, false, false, false, true, true, true, true]);
}

#[test]
fn sleeps_double_up_to_the_longest() {
    let lengths = [0, 1, 2, 3, 4, u32::MAX].map(|sleeps| length(sleeps).as_micros());
    assert_eq!(lengths, [50, 100, 200, 400, 500, 500]);
}

#[test]
fn sleeping_thread_uses_no_processor() {
    // The kernel's count of voluntary context switches of this thread.
    let waits = || {
        let status = std::fs::read_to_string("/proc/thread-self/status").unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
        line.unwrap().trim().parse::<u64>().unwrap()
    };
    let before = waits();
    // On a machine that is stopped for as long, a single sleep may be over before it begins.
    assert!((0..100).any(|_| (sleep(LONGEST), waits() > before).1));
}

#[test]
fn another_rest_takes_the_place_of_both() {
    thread_local!(static RESTS: Cell<u32> = const { Cell::new(0) });
    rest_with(|| RESTS.set(RESTS.get() + 1));
    let mut backoff = Backoff::new();
    assert_eq!((0..YIELDS + 3).filter(|_| backoff.rest()).count(), 3);
    assert_eq!(RESTS.get(), YIELDS + 3);
}
