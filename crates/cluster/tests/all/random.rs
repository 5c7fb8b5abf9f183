//! Random numbers from a seed.

use std::ops::Range;
use std::time::Duration;

/// A generator; its field is the seed.
pub(crate) struct Random(pub(crate) u64);

impl Random {
    /// A number below `end`.
    pub(crate) fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % end
    }

    /// A time in microseconds.
    pub(crate) fn micros(&mut self, range: Range<u64>) -> Duration {
        Duration::from_micros(range.start + self.below(range.end - range.start))
    }
}
