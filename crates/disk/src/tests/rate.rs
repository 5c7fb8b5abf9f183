//! Tests of `rate.rs`.

use super::*;

fn ms(count: u64) -> Duration {
    Duration::from_millis(count)
}

#[test]
fn burst_goes_without_waiting() {
    let rate = Rate::new(1000, 500);
    assert_eq!(rate.grant(500, ms(7)), ms(0));
    assert_eq!(rate.grant(1, ms(7)), ms(1));
    // A long rest fills no more than the burst.
    assert_eq!(rate.grant(600, ms(100_000)), ms(100));
}

#[test]
fn callers_keep_the_rate_together() {
    let rate = Rate::new(1 << 20, 1 << 10);
    let (mut now, mut bytes) = (Duration::ZERO, 0);
    while now < Duration::from_secs(10) {
        // Two callers at the same time: the later one waits for both.
        let first = rate.grant(4096, now);
        let second = rate.grant(4096, now);
        assert!(second >= first);
        now += second;
        bytes += 8192;
    }
    assert!((10 << 20..=(10 << 20) + 10_000).contains(&bytes), "{bytes} in 10 seconds");
}

#[test]
fn time_that_goes_back_grants_nothing() {
    let rate = Rate::new(1000, 0);
    assert_eq!(rate.grant(1000, ms(5000)), ms(1000));
    assert_eq!(rate.grant(0, ms(10)), ms(1000));
    assert_eq!(rate.grant(0, ms(5400)), ms(600));
}

#[test]
fn change_of_the_rate_keeps_the_debt() {
    let rate = Rate::new(1000, 0);
    assert_eq!(rate.grant(1000, ms(0)), ms(1000));
    rate.set(Some(10_000), 0);
    assert_eq!(rate.grant(0, ms(0)), ms(100));
    rate.set(None, 0);
    assert_eq!(rate.grant(u64::MAX, ms(0)), ms(0));
    rate.set(Some(1000), 7);
    assert_eq!(rate.grant(8, ms(0)), ms(1), "no debt of the time without a limit");
}

#[test]
fn greatest_numbers_do_not_overflow() {
    let rate = Rate::new(1, u64::MAX);
    (0..4).for_each(|_| {
        rate.grant(u64::MAX, Duration::MAX);
    });
    assert!(rate.grant(u64::MAX, Duration::ZERO) > Duration::from_secs(1 << 30));
    let fast = Rate::new(u64::MAX, u64::MAX);
    assert_eq!(fast.grant(u64::MAX, Duration::MAX), Duration::ZERO);
    assert!(Rate::unlimited().grant(u64::MAX, Duration::ZERO).is_zero());
}

#[test]
#[should_panic(expected = "a rate of 0")]
fn rate_of_nothing_is_refused() {
    let _ = Rate::new(0, 1);
}
