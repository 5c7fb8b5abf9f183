//! When operations begin: one after the other, or at times that do not depend on answers.

use std::time::{Duration, Instant};

/// When a thread's operations are due.
///
/// **Closed**: an operation begins when the one before it has ended. A store that stalls then gets
/// fewer requests, and its stall counts once, however many requests would have come meanwhile:
/// coordinated omission.
///
/// **Open**: the nth operation is due at a time known in advance, and its latency counts from then,
/// even if it begins late.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Pace {
    /// One after the other.
    Closed,
    /// The first at `first` after the start, then one every `interval`.
    Open {
        /// The time of the first operation.
        first: Duration,
        /// The time between two operations.
        interval: Duration,
    },
}

impl Pace {
    /// The share of thread `thread` of `threads` in a total of `rate` operations a second; closed
    /// without a rate.
    pub fn of(rate: Option<f64>, thread: usize, threads: usize) -> Self {
        match rate {
            None => Self::Closed,
            Some(rate) => Self::Open {
                first: Duration::from_secs_f64(thread as f64 / rate),
                interval: Duration::from_secs_f64(threads as f64 / rate),
            },
        }
    }

    /// When the nth operation is due, after the start; `None`: at once.
    pub fn due(self, nth: u64) -> Option<Duration> {
        match self {
            Self::Closed => None,
            Self::Open { first, interval } => {
                Some(first + Duration::from_nanos((interval.as_nanos() * u128::from(nth)) as u64))
            }
        }
    }
}

/// Waits until `moment`: asleep while the system's clock is exact enough, then spinning.
pub(crate) fn wait_until(moment: Instant) {
    const SPIN: Duration = Duration::from_micros(100);
    loop {
        let left = moment.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return;
        }
        if left > SPIN {
            std::thread::sleep(left - SPIN);
        } else {
            std::hint::spin_loop();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_alternate_at_the_requested_rate() {
        let due = |thread, nth| Pace::of(Some(1000.0), thread, 4).due(nth);
        let mut all: Vec<_> = (0..4).flat_map(|t| (0..25).map(move |n| due(t, n).unwrap())).collect();
        all.sort();
        assert!(all.windows(2).all(|pair| pair[1] - pair[0] == Duration::from_millis(1)), "{all:?}");
        assert_eq!(Pace::of(None, 0, 4).due(1000), None);
    }
}
