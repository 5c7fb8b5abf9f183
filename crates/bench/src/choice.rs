//! Which record an operation asks for.

use crate::{Random, ScrambledZipfian, Zipfian};

/// How the records are chosen.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Choice {
    /// All alike likely.
    Uniform,
    /// A few anywhere among them again and again (YCSB's scrambled zipfian, exponent 0.99).
    Zipfian,
    /// The newest most of all (YCSB's latest: a zipfian over the age, exponent 0.99).
    Latest,
    /// `operations` of all operations ask for the same `records` of all records, both as shares.
    HotSet {
        /// Share of the operations.
        operations: f64,
        /// Share of the records.
        records: f64,
    },
}

/// Chooses records. What comes depends on its random numbers and on what was inserted through it, nothing else.
#[derive(Clone, Debug)]
pub(crate) struct Chooser {
    choice: Choice,
    /// Records that were there at first.
    loaded: u64,
    /// Records that this thread has added.
    added: u64,
    scrambled: ScrambledZipfian,
    ages: Zipfian,
}

/// A record: one of those that were there at first, or the nth that this thread has added.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Chosen {
    Loaded(u64),
    Added(u64),
}

impl Chooser {
    pub(crate) fn new(choice: Choice, loaded: u64) -> Self {
        let ages = if choice == Choice::Latest { loaded } else { 1 };
        Self {
            choice,
            loaded,
            added: 0,
            scrambled: ScrambledZipfian::new(loaded.max(1)),
            ages: Zipfian::new(ages, Zipfian::THETA),
        }
    }

    /// Notes that the thread has added a record.
    pub(crate) fn added(&mut self) {
        self.added += 1;
        if self.choice == Choice::Latest && self.loaded + self.added > 1 {
            self.ages.grow();
        }
    }

    /// A record that is there; `None` if there is none yet.
    pub(crate) fn next(&self, random: &mut Random) -> Option<Chosen> {
        let all = self.loaded + self.added;
        if all == 0 {
            return None;
        }
        let place = match self.choice {
            Choice::Uniform => random.below(all),
            // YCSB's chooses among what was loaded; with nothing loaded, among what was added.
            Choice::Zipfian if self.loaded > 0 => self.scrambled.next(random),
            Choice::Zipfian => random.below(all),
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

#[cfg(test)]
mod tests {
    use super::*;

    /// How often each of `records` records is chosen.
    fn drawn(choice: Choice, records: u64, draws: u32) -> Vec<f64> {
        let (chooser, mut random) = (Chooser::new(choice, records), Random::new(11));
        let mut drawn = vec![0.0; records as usize];
        for _ in 0..draws {
            match chooser.next(&mut random) {
                Some(Chosen::Loaded(record)) => drawn[record as usize] += 1.0 / f64::from(draws),
                other => panic!("{other:?}"),
            }
        }
        drawn
    }

    #[test]
    fn uniform_is_flat() {
        let drawn = drawn(Choice::Uniform, 50, 500_000);
        assert!(drawn.iter().all(|share| (share * 50.0 - 1.0).abs() < 0.05), "{drawn:?}");
    }

    #[test]
    fn the_newest_is_asked_for_most_and_the_one_before_it_next() {
        let drawn = drawn(Choice::Latest, 1000, 500_000);
        let law = Zipfian::new(1000, Zipfian::THETA);
        for age in [0, 1] {
            let (found, expected) = (drawn[999 - age], law.share(age as u64));
            assert!((found / expected - 1.0).abs() < 0.03, "age {age}: {found} for {expected}");
        }
        let newest: f64 = drawn[900..].iter().sum();
        let expected: f64 = (0..100).map(|age| law.share(age)).sum();
        assert!((newest / expected - 1.0).abs() < 0.05, "{newest} for {expected}");
    }

    #[test]
    fn the_newest_is_the_one_just_added() {
        let (mut chooser, mut random) = (Chooser::new(Choice::Latest, 100), Random::new(5));
        (0..10).for_each(|_| chooser.added());
        let law = Zipfian::new(110, Zipfian::THETA);
        let drawn = (0..100_000).filter(|_| chooser.next(&mut random) == Some(Chosen::Added(9))).count();
        assert!((drawn as f64 / 100_000.0 / law.share(0) - 1.0).abs() < 0.05, "{drawn}");
    }

    #[test]
    fn a_hot_set_gets_its_share_and_is_flat_within() {
        let drawn = drawn(Choice::HotSet { operations: 0.8, records: 0.2 }, 100, 500_000);
        let hot: f64 = drawn[..20].iter().sum();
        assert!((hot - 0.8).abs() < 0.005, "{hot}");
        assert!(drawn[..20].iter().all(|share| (share / 0.04 - 1.0).abs() < 0.06));
        assert!(drawn[20..].iter().all(|share| (share / 0.0025 - 1.0).abs() < 0.15));
    }

    #[test]
    fn from_nothing_only_what_was_added_is_chosen() {
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
