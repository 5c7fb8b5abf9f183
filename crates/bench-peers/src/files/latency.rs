//! Latencies: their percentiles, in µs.

use hdrhistogram::Histogram;

/// An empty histogram of ns, up to ten minutes.
pub(crate) fn histogram() -> Histogram<u64> {
    Histogram::new_with_bounds(1, 600_000_000_000, 3).expect("constant bounds that the library takes")
}

/// The percentile, in µs.
pub(crate) fn micros(seen: &Histogram<u64>, percentile: f64) -> f64 {
    seen.value_at_percentile(percentile) as f64 / 1e3
}
