//! Counters of the event loops, in addition to [`ServerStats`](crate::state::stats::ServerStats).

use std::sync::atomic::{AtomicU64, Ordering};

use crate::state::stats::{BOUNDS, BUCKETS};

/// Counters since start.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    /// Connections closed because a command panicked. Anything but 0 is a bug in Terrace.
    pub(crate) panics: AtomicU64,
    /// Failures to accept a connection, usually because no file descriptor was free.
    pub(crate) accept_failures: AtomicU64,
    /// Connections closed by `timeout` or `auth-timeout`, or while being closed.
    pub(crate) timeouts: AtomicU64,
    latency: Latency,
}

/// Time from reading requests to having written their replies, of one in [`Counters::SAMPLE`]
/// turns.
#[derive(Debug)]
struct Latency {
    counts: [AtomicU64; BUCKETS + 1],
    sum_ns: AtomicU64,
    max_ns: AtomicU64,
}

/// A snapshot of the latency histogram.
#[derive(Clone, Debug)]
pub(crate) struct Latencies {
    /// Samples up to each of [`BOUNDS`], and those above.
    pub(crate) counts: [u64; BUCKETS + 1],
    /// Sum of all samples, ns.
    pub(crate) sum_ns: u64,
    /// The longest sample, ns.
    pub(crate) max_ns: u64,
}

impl Counters {
    /// One in this many turns is timed, which makes the cost of timing negligible.
    pub(super) const SAMPLE: u32 = 64;

    /// Adds one sample.
    pub(super) fn record_latency(&self, ns: u64) {
        let bucket = BOUNDS.partition_point(|&bound| bound < ns);
        // ORDER: Relaxed, here and in `latencies`: statistics that publish nothing else.
        self.latency.counts[bucket].fetch_add(1, Ordering::Relaxed);
        self.latency.sum_ns.fetch_add(ns, Ordering::Relaxed);
        self.latency.max_ns.fetch_max(ns, Ordering::Relaxed);
    }

    /// The samples so far.
    pub(super) fn latencies(&self) -> Latencies {
        Latencies {
            counts: std::array::from_fn(|bucket| self.latency.counts[bucket].load(Ordering::Relaxed)),
            sum_ns: self.latency.sum_ns.load(Ordering::Relaxed),
            max_ns: self.latency.max_ns.load(Ordering::Relaxed),
        }
    }
}

impl Default for Latency {
    fn default() -> Self {
        Latency {
            counts: [const { AtomicU64::new(0) }; BUCKETS + 1],
            sum_ns: AtomicU64::new(0),
            max_ns: AtomicU64::new(0),
        }
    }
}

/// Adds one to a counter; returns its previous value.
pub(super) fn count(counter: &AtomicU64) -> u64 {
    // ORDER: Relaxed: a statistic.
    counter.fetch_add(1, Ordering::Relaxed)
}

/// Adds `n` to a counter.
pub(super) fn add(counter: &AtomicU64, n: u64) {
    // ORDER: Relaxed: a statistic.
    counter.fetch_add(n, Ordering::Relaxed);
}

/// A counter's value.
pub(super) fn read(counter: &AtomicU64) -> u64 {
    // ORDER: Relaxed: a statistic.
    counter.load(Ordering::Relaxed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sample_counts_in_first_bucket_with_bound_not_below_it() {
        let counters = Counters::default();
        for ns in [1, 256, 257, 384, 385, u64::MAX / 2] {
            counters.record_latency(ns);
        }
        let seen = counters.latencies();
        assert_eq!(seen.counts[..3], [2, 2, 1]);
        assert_eq!(seen.counts[BUCKETS], 1);
        assert_eq!(seen.max_ns, u64::MAX / 2);
    }
}
