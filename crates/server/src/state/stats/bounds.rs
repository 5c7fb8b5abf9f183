//! The bounds of the buckets in histograms of latencies.

/// Upper bounds of the latency histogram's buckets, ns: 256, 384, 512, 768 … up to 13 s.
pub(crate) const BOUNDS: [u64; BUCKETS] = bounds();

/// Number of the bounds.
pub(crate) const BUCKETS: usize = 52;
const FIRST: u64 = 256;

const fn bounds() -> [u64; BUCKETS] {
    let mut bounds = [0; BUCKETS];
    let mut at = 0;
    while at < BUCKETS {
        let octave = FIRST << (at / 2);
        bounds[at] = if at.is_multiple_of(2) { octave } else { octave + octave / 2 };
        at += 1;
    }
    bounds
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bounds_rise_from_256_ns() {
        assert!(BOUNDS.is_sorted() && BOUNDS[0] == FIRST);
    }
}
