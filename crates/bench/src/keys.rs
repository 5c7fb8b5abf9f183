//! Which keys a workload touches, and in what order. Every generator is a pure function of its
//! seed.

/// A bijection of 64-bit numbers that spreads consecutive ones over the whole range: any number of
/// distinct keys that look random. (The finaliser of SplitMix64; G. Steele, D. Lea, C. Flood,
/// OOPSLA 2014.)
#[inline(always)]
pub const fn spread(i: u64) -> u64 {
    let z = (i ^ i >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ z >> 31
}

/// YCSB's key of a record, 24 bytes: `user` and 20 decimal digits of its spread number.
pub fn ycsb_key(record: u64) -> [u8; 24] {
    let (mut key, mut rest) = (*b"user00000000000000000000", spread(record));
    for digit in key[4..].iter_mut().rev() {
        *digit += (rest % 10) as u8;
        rest /= 10;
    }
    key
}

/// Random numbers: SplitMix64.
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// A generator whose numbers depend on `seed` alone.
    pub const fn new(seed: u64) -> Self {
        Self(spread(seed ^ 0x5eed_0000_7e44_ace0))
    }

    /// Any 64-bit number.
    #[inline(always)]
    #[allow(clippy::should_implement_trait, reason = "the numbers never end")]
    pub const fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        spread(self.0)
    }

    /// A number below `end`, all equally likely (but for 1 in 2^64 / `end`).
    #[inline(always)]
    pub const fn below(&mut self, end: u64) -> u64 {
        ((self.next() as u128 * end as u128) >> 64) as u64
    }

    /// A number from 0 up to but excluding 1.
    #[inline(always)]
    pub fn fraction(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// Fills `bytes` with random bytes.
    pub fn fill(&mut self, bytes: &mut [u8]) {
        for chunk in bytes.chunks_mut(8) {
            chunk.copy_from_slice(&self.next().to_le_bytes()[..chunk.len()]);
        }
    }
}

/// YCSB's scrambled zipfian: a few items, scattered among the others, are asked for again and
/// again.
///
/// Ranks are drawn from a zipfian over 10^10 items with exponent 0.99 (J. Gray et al., SIGMOD
/// 1994), whatever the number of items. A hash of the rank (FNV-1 over its 8 bytes) chooses the
/// item.
#[derive(Clone, Debug)]
pub struct ScrambledZipfian {
    items: u64,
    alpha: f64,
    eta: f64,
}

impl ScrambledZipfian {
    const RANKS: f64 = 10_000_000_000.0;
    const THETA: f64 = 0.99;
    /// The sum of 1 / i^0.99 for i from 1 to 10^10, as YCSB has it.
    const ZETA: f64 = 26.469_028_201_783_02;

    /// A generator of numbers below `items`.
    pub fn new(items: u64) -> Self {
        let zeta_of_two = 1.0 + 0.5f64.powf(Self::THETA);
        let eta = (1.0 - (2.0 / Self::RANKS).powf(1.0 - Self::THETA)) / (1.0 - zeta_of_two / Self::ZETA);
        Self { items, alpha: 1.0 / (1.0 - Self::THETA), eta }
    }

    /// The next item.
    pub fn next(&self, random: &mut Random) -> u64 {
        fnv(self.rank(random.fraction())) % self.items
    }

    fn rank(&self, u: f64) -> u64 {
        let uz = u * Self::ZETA;
        if uz < 1.0 {
            0
        } else if uz < 1.0 + 0.5f64.powf(Self::THETA) {
            1
        } else {
            (Self::RANKS * (self.eta * u - self.eta + 1.0).powf(self.alpha)) as u64
        }
    }
}

/// 64-bit FNV-1 over the number's bytes, lowest first; the absolute value, as in Java's YCSB.
fn fnv(mut number: u64) -> u64 {
    let mut hash = 0xcbf2_9ce4_8422_2325_u64;
    for _ in 0..8 {
        hash = (hash ^ number & 0xff).wrapping_mul(1_099_511_628_211);
        number >>= 8;
    }
    (hash as i64).unsigned_abs()
}

/// One item after the other, starting over after the last.
#[derive(Clone, Debug)]
pub struct Sequence {
    items: u64,
    next: u64,
}

impl Sequence {
    /// Numbers below `items`, from `first` on.
    pub const fn new(items: u64, first: u64) -> Self {
        Self { items, next: first % items }
    }

    /// The next item.
    #[allow(clippy::should_implement_trait, reason = "the numbers never end")]
    pub const fn next(&mut self) -> u64 {
        let item = self.next;
        self.next = (item + 1) % self.items;
        item
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::{HashMap, HashSet};

    #[test]
    fn spread_is_injective_and_generators_repeat() {
        let keys: HashSet<u64> = (0..100_000).map(spread).collect();
        assert_eq!(keys.len(), 100_000);
        let draw = |seed| {
            let mut random = Random::new(seed);
            (0..100).map(|_| random.below(1000)).collect::<Vec<_>>()
        };
        assert_eq!(draw(1), draw(1));
        assert_ne!(draw(1), draw(2));
        assert!(draw(3).iter().all(|&n| n < 1000));
    }

    #[test]
    fn scrambled_ranks_have_zipfian_frequencies() {
        let zipfian = ScrambledZipfian::new(1_000_000);
        let (mut random, mut drawn) = (Random::new(7), HashMap::new());
        let draws = 1_000_000;
        for _ in 0..draws {
            *drawn.entry(zipfian.next(&mut random)).or_insert(0u64) += 1;
        }
        for rank in 0..2 {
            let expected = 1.0 / (rank as f64 + 1.0).powf(ScrambledZipfian::THETA) / ScrambledZipfian::ZETA;
            let found = drawn[&(fnv(rank) % 1_000_000)] as f64 / draws as f64;
            assert!((found / expected - 1.0).abs() < 0.03, "rank {rank}: {found} of {expected}");
        }
        let mut often: Vec<u64> = drawn.into_values().collect();
        often.sort_unstable_by(|a, b| b.cmp(a));
        let hottest: u64 = often[..1000].iter().sum();
        let share = hottest as f64 / draws as f64;
        assert!(
            (0.25..0.40).contains(&share),
            "the 1000 hottest of a million items get {share} of the draws"
        );
    }

    #[test]
    fn fnv_equals_the_published_hash() {
        // FNV-1a of eight zero bytes: the offset basis times the prime, eight times.
        let expected = (0..8).fold(0xcbf2_9ce4_8422_2325_u64, |h, _| h.wrapping_mul(0x100_0000_01b3)) as i64;
        assert_eq!(fnv(0), expected.unsigned_abs());
        assert_ne!(fnv(1), fnv(256));
    }

    #[test]
    fn sequence_wraps_around() {
        let mut sequence = Sequence::new(3, 2);
        assert_eq!([0; 5].map(|_| sequence.next()), [2, 0, 1, 2, 0]);
    }
}
