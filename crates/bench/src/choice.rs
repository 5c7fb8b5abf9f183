//! Which record an operation asks for.

use crate::{Random, ScrambledZipfian, Zipfian};

/// How records are chosen.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Choice {
    /// All are equally likely.
    Uniform,
    /// A few, scattered among the others, again and again (YCSB's scrambled zipfian, exponent
    /// 0.99).
    Zipfian,
    /// As `Zipfian`, but ranks end with the number of records that existed at first, and have this
    /// exponent, which is not 1. YCSB's go on to 10^10, so that more than a third of its choices
    /// are as good as uniform.
    Skewed(f64),
    /// The newest most often (YCSB's latest: a zipfian over the age, exponent 0.99).
    Latest,
    /// A share of the operations asks for a share of the records.
    HotSet {
        /// Share of the operations.
        operations: f64,
        /// Share of the records.
        records: f64,
    },
}

/// Chooses records. The choice depends only on the random numbers and the inserts through it.
#[derive(Clone, Debug)]
pub(crate) struct Chooser {
    choice: Choice,
    /// Records that existed at first.
    loaded: u64,
    /// Records added by this thread.
    added: u64,
    scrambled: ScrambledZipfian,
    /// Ages, or ranks.
    ages: Zipfian,
}

/// A record that existed at first, or the nth that this thread added.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Chosen {
    Loaded(u64),
    Added(u64),
}

impl Chooser {
    pub(crate) fn new(choice: Choice, loaded: u64) -> Self {
        let ages = match choice {
            Choice::Skewed(theta) => Zipfian::new(loaded, theta),
            Choice::Latest => Zipfian::new(loaded, Zipfian::THETA),
            _ => Zipfian::new(1, Zipfian::THETA),
        };
        Self { choice, loaded, added: 0, scrambled: ScrambledZipfian::new(loaded.max(1)), ages }
    }

    /// Counts a record that the thread has added.
    pub(crate) fn added(&mut self) {
        self.added += 1;
        if self.choice == Choice::Latest && self.loaded + self.added > 1 {
            self.ages.grow();
        }
    }

    /// An existing record; `None` if there is none yet.
    pub(crate) fn next(&self, random: &mut Random) -> Option<Chosen> {
        let all = self.loaded + self.added;
        if all == 0 {
            return None;
        }
        let place = match self.choice {
            Choice::Uniform => random.below(all),
            // YCSB chooses among the loaded records; with nothing loaded, this chooses among the
            // added ones.
            Choice::Zipfian if self.loaded > 0 => self.scrambled.next(random),
            Choice::Skewed(_) if self.loaded > 0 => scattered(self.ages.next(random), self.loaded),
            Choice::Zipfian | Choice::Skewed(_) => random.below(all),
            Choice::Latest => all - 1 - self.ages.next(random).min(all - 1),
            Choice::HotSet { operations, records } => {
                let hot = ((all as f64 * records) as u64).clamp(1, all);
                if random.fraction() < operations || hot == all {
                    random.below(hot)
                } else {
                    hot + random.below(all - hot)
                }
            }
        };
        Some(if place < self.loaded { Chosen::Loaded(place) } else { Chosen::Added(place - self.loaded) })
    }
}

/// The record of a rank: another one for each, as long as there are fewer than 2^61 - 1, a prime.
fn scattered(rank: u64, records: u64) -> u64 {
    (u128::from(rank) * ((1 << 61) - 1) % u128::from(records)) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How often each of `records` records is chosen.
    fn shares(choice: Choice, records: u64, choices: u32) -> Vec<f64> {
        let (chooser, mut random) = (Chooser::new(choice, records), Random::new(11));
        let mut shares = vec![0.0; records as usize];
        for _ in 0..choices {
            match chooser.next(&mut random) {
                Some(Chosen::Loaded(record)) => shares[record as usize] += 1.0 / f64::from(choices),
                other => panic!("{other:?}"),
            }
        }
        shares
    }

    #[test]
    fn uniform_choice_is_flat() {
        let shares = shares(Choice::Uniform, 50, 500_000);
        assert!(shares.iter().all(|share| (share * 50.0 - 1.0).abs() < 0.05), "{shares:?}");
    }

    #[test]
    fn skewed_choice_gives_each_rank_a_record() {
        for theta in [0.5, 0.99, 1.5] {
            let mut shares = shares(Choice::Skewed(theta), 100, 500_000);
            assert!(shares[1] < shares[0] / 1.3, "the second rank has another place");
            shares.sort_by(|a, b| b.total_cmp(a));
            let law = Zipfian::new(100, theta);
            for rank in [0, 1] {
                let off = (shares[rank] / law.share(rank as u64) - 1.0).abs();
                assert!(off < 0.03, "{theta}, rank {rank}: {off}");
            }
            assert!(shares[99] > 0.0, "{theta}: a record has no rank");
        }
    }

    #[test]
    fn latest_prefers_newer_records() {
        let shares = shares(Choice::Latest, 1000, 500_000);
        let law = Zipfian::new(1000, Zipfian::THETA);
        for age in [0, 1] {
            let (found, expected) = (shares[999 - age], law.share(age as u64));
            assert!((found / expected - 1.0).abs() < 0.03, "age {age}: {found} for {expected}");
        }
        let newest: f64 = shares[900..].iter().sum();
        let expected: f64 = (0..100).map(|age| law.share(age)).sum();
        assert!((newest / expected - 1.0).abs() < 0.05, "{newest} for {expected}");
    }

    #[test]
    fn latest_knows_the_record_just_added() {
        let (mut chooser, mut random) = (Chooser::new(Choice::Latest, 100), Random::new(5));
        (0..10).for_each(|_| chooser.added());
        let law = Zipfian::new(110, Zipfian::THETA);
        let shares = (0..100_000).filter(|_| chooser.next(&mut random) == Some(Chosen::Added(9))).count();
        assert!((shares as f64 / 100_000.0 / law.share(0) - 1.0).abs() < 0.05, "{shares}");
    }

    #[test]
    fn hot_set_gets_its_share_and_is_flat_within() {
        let shares = shares(Choice::HotSet { operations: 0.8, records: 0.2 }, 100, 500_000);
        let hot: f64 = shares[..20].iter().sum();
        assert!((hot - 0.8).abs() < 0.005, "{hot}");
        assert!(shares[..20].iter().all(|share| (share / 0.04 - 1.0).abs() < 0.06));
        assert!(shares[20..].iter().all(|share| (share / 0.0025 - 1.0).abs() < 0.15));
    }

    #[test]
    fn only_added_records_are_chosen_from_nothing() {
        for choice in [Choice::Uniform, Choice::Zipfian, Choice::Latest] {
            let (mut chooser, mut random) = (Chooser::new(choice, 0), Random::new(1));
            assert_eq!(chooser.next(&mut random), None);
            chooser.added();
            assert_eq!(chooser.next(&mut random), Some(Chosen::Added(0)), "{choice:?}");
            chooser.added();
            assert!((0..100).all(|_| matches!(chooser.next(&mut random), Some(Chosen::Added(0..2)))));
        }
    }
}
