//! When operations begin: one after the other, or at moments that do not wait for answers.

use std::time::{Duration, Instant};

/// When a thread's operations are due.
///
/// **Closed**: an operation begins when the one before it has ended. A store that stalls is then asked less, and its stall counts once, whatever number of requests
/// would have come meanwhile: coordinated omission.
///
/// **Open**: the nth operation is due at a moment that is known before, and its latency counts from that moment, late or not.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Pace {
    /// One after the other.
    Closed,
    /// At `first` and then every `interval`, after the start.
    Open {
        /// The first operation.
        first: Duration,
        /// From one to the next.
        interval: Duration,
    },
}

impl Pace {
    /// The part of thread `thread` of `threads` in `rate` operations a second of all; without a rate, closed.
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

/// Waits until `moment`: asleep as long as the system's clock is good enough, then awake.
pub(crate) fn wait_until(moment: Instant) {
    const AWAKE: Duration = Duration::from_micros(100);
    loop {
        let left = moment.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return;
        }
        if left > AWAKE {
            std::thread::sleep(left - AWAKE);
        } else {
            std::hint::spin_loop();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_take_turns_at_the_rate_asked_for() {
        let due = |thread, nth| Pace::of(Some(1000.0), thread, 4).due(nth);
        let mut all: Vec<_> = (0..4).flat_map(|t| (0..25).map(move |n| due(t, n).unwrap())).collect();
        all.sort();
        assert!(all.windows(2).all(|pair| pair[1] - pair[0] == Duration::from_millis(1)), "{all:?}");
        assert_eq!(Pace::of(None, 0, 4).due(1000), None);
    }
}
