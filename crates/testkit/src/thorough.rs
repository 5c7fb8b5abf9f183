//! How thorough a run of the tests is: by day a sample, at night many times as much.

use std::sync::LazyLock;

/// The variable that says how many times the usual number of runs the tests do.
pub const TIMES: &str = "TERRACE_MODEL_TIMES";

/// How many times the usual number of runs a test does: 1, unless [`TIMES`] is set, as at night.
pub fn times() -> u64 {
    static OF_THE_ENVIRONMENT: LazyLock<u64> =
        LazyLock::new(|| std::env::var(TIMES).map_or(1, |times| times.parse().expect("a number of times")));
    *OF_THE_ENVIRONMENT
}

/// The distance of the cases that a test tries, of all that there are: `by_day`, and 1 at night.
pub fn stride(by_day: usize) -> usize {
    assert!(by_day > 0, "a distance");
    if times() > 1 { 1 } else { by_day }
}
