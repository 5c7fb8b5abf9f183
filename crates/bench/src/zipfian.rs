//! Zipfian ranks: rank `i` of `n` has a probability proportional to 1 / (i + 1)^theta.
//!
//! J. Gray et al., Quickly Generating Billion-Record Synthetic Databases, SIGMOD 1994: the first
//! two ranks have exactly their share, the others approximately, by an integral.

use crate::Random;

/// Ranks below `items`, 0 the likeliest. Can grow.
#[derive(Clone, Debug)]
pub struct Zipfian {
    items: u64,
    theta: f64,
    zeta: f64,
}

/// The sum of 1 / i^theta for i from 1 to `items`: the first thousand terms directly, the others by
/// the Euler-Maclaurin formula, which is exact to twelve digits there.
pub fn zeta(items: u64, theta: f64) -> f64 {
    const EXACT: u64 = 1000;
    let term = |i: u64| (i as f64).powf(-theta);
    let exact: f64 = (1..=items.min(EXACT)).map(term).sum();
    if items <= EXACT {
        return exact;
    }
    let (a, b) = (EXACT as f64, items as f64);
    let integral = (b.powf(1.0 - theta) - a.powf(1.0 - theta)) / (1.0 - theta);
    let ends = (b.powf(-theta) - a.powf(-theta)) / 2.0;
    let slopes = theta / 12.0 * (a.powf(-theta - 1.0) - b.powf(-theta - 1.0));
    exact + integral + ends + slopes
}

impl Zipfian {
    /// The exponent that YCSB uses.
    pub const THETA: f64 = 0.99;

    /// Ranks below `items` (at least 1), with the exponent `theta`, which is not 1.
    pub fn new(items: u64, theta: f64) -> Self {
        let items = items.max(1);
        Self { items, theta, zeta: zeta(items, theta) }
    }

    /// Number of ranks.
    pub fn items(&self) -> u64 {
        self.items
    }

    /// Adds one rank.
    pub fn grow(&mut self) {
        self.items += 1;
        self.zeta += (self.items as f64).powf(-self.theta);
    }

    /// The probability of rank `rank`.
    pub fn share(&self, rank: u64) -> f64 {
        (rank as f64 + 1.0).powf(-self.theta) / self.zeta
    }

    /// The next rank.
    pub fn next(&self, random: &mut Random) -> u64 {
        let u = random.fraction();
        let (uz, second) = (u * self.zeta, 1.0 + 0.5f64.powf(self.theta));
        if uz < 1.0 {
            return 0;
        }
        if uz < second {
            return 1.min(self.items - 1);
        }
        let items = self.items as f64;
        let eta = (1.0 - (2.0 / items).powf(1.0 - self.theta)) / (1.0 - second / self.zeta);
        let rank = items * (eta * u - eta + 1.0).powf(1.0 / (1.0 - self.theta));
        (rank as u64).min(self.items - 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zeta_equals_the_sum_of_its_terms() {
        for theta in [0.5, 0.99, 2.0] {
            let exact: f64 = (1..=200_000u64).map(|i| (i as f64).powf(-theta)).sum();
            assert!((zeta(200_000, theta) / exact - 1.0).abs() < 1e-12, "{theta}");
        }
        // The constant in YCSB's source for 10^10 items and 0.99.
        assert!((zeta(10_000_000_000, 0.99) - 26.469_028_201_783_02).abs() < 1e-6);
    }

    #[test]
    fn grown_equals_constructed() {
        let mut grown = Zipfian::new(1000, 0.99);
        (0..500).for_each(|_| grown.grow());
        let made = Zipfian::new(1500, 0.99);
        assert_eq!(grown.items(), made.items());
        assert!((grown.zeta - made.zeta).abs() < 1e-9);
    }

    /// The shares of the first two ranks, and of the first ten and hundred together, beside the
    /// law's.
    #[test]
    fn ranks_have_their_shares() {
        for (items, theta) in [(100u64, 0.99), (10_000, 0.99), (10_000, 0.5), (10_000, 2.0)] {
            let zipfian = Zipfian::new(items, theta);
            let (mut random, mut drawn) = (Random::new(3), vec![0u64; items as usize]);
            let draws = 400_000;
            (0..draws).for_each(|_| drawn[zipfian.next(&mut random) as usize] += 1);
            let share = |ranks: std::ops::Range<u64>| {
                let found: u64 = drawn[ranks.start as usize..ranks.end as usize].iter().sum();
                let expected: f64 = ranks.map(|rank| zipfian.share(rank)).sum();
                (found as f64 / f64::from(draws), expected)
            };
            for (ranks, tolerance) in [(0..1, 0.05), (1..2, 0.05), (0..10, 0.1), (0..100, 0.1)] {
                let (found, expected) = share(ranks.clone());
                let off = (found / expected - 1.0).abs();
                assert!(off < tolerance, "{items} items, {theta}, ranks {ranks:?}: {found} for {expected}");
            }
        }
    }

    #[test]
    fn single_item_is_always_chosen() {
        let (zipfian, mut random) = (Zipfian::new(1, 0.99), Random::new(1));
        assert!((0..1000).all(|_| zipfian.next(&mut random) == 0));
    }
}
