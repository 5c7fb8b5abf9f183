//! How many of the stale values that a thread may load it actually loads.

use crate::crash::RandomSource;
use std::collections::HashMap;
use std::panic::Location;

/// The number of a value in the history of a word.
pub(super) type Number = u32;

/// How many of the stale values that a thread may load it actually loads.
#[derive(Clone, Copy, Debug)]
pub struct Reach {
    /// Maximum number of stale loads in a call. It is limited because a thread that waits for a
    /// store must see it eventually.
    pub old: u32,
    /// Which loads are stale.
    pub aim: Aim,
    /// Whether a stale load returns the oldest possible value, or any.
    pub oldest: bool,
    /// The seed of the random choices.
    pub seed: u64,
}

/// Which loads are stale.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Aim {
    /// None: the model only records which could be.
    None,
    /// Randomly chosen loads.
    Drawn {
        /// One in this many possible loads is stale.
        one_in: u64,
        /// Whether the choice is per word for the whole run, not per load. To detect a thread that
        /// sees an announcement in one word but not the data in another, the choice must be per
        /// word.
        by_word: bool,
        /// Whether only values are loaded that all orderings together would rule out.
        only_missing: bool,
    },
    /// Of loads that all orderings together would rule out: those of these words, one bit each,
    /// numbered as they occur.
    Words(u64),
    /// Of loads that all orderings together would rule out: those at one place in the source.
    Place(&'static Location<'static>),
    /// All possible loads, while a script makes the thread see stale values: see
    /// [`Breakpoint`](super::Breakpoint).
    Cued,
}

impl Reach {
    /// No stale loads.
    pub const NONE: Self = Self { old: 0, aim: Aim::None, oldest: true, seed: 0 };

    /// The setting of a run, by its number.
    pub fn of_run(run: u64) -> Self {
        const DRAWS: [(bool, bool, u64); 6] = [
            (true, false, 1),
            (true, false, 2),
            (false, true, 2),
            (true, true, 2),
            (false, false, 3),
            (false, true, 5),
        ];
        const OLD: [u32; 3] = [64, 8, 1];
        let kind = run as usize / 6;
        let (only_missing, by_word, one_in) = DRAWS[kind % DRAWS.len()];
        let rest = kind / DRAWS.len();
        Self {
            old: OLD[rest % 3],
            aim: Aim::Drawn { one_in, by_word, only_missing },
            oldest: (rest / 3).is_multiple_of(2),
            seed: run,
        }
    }

    /// A setting that shows what a weakening makes stale.
    pub fn at(aim: Aim, oldest: bool) -> Self {
        Self { old: 64, aim, oldest, seed: 0 }
    }
}

/// Makes the choices of a [`Reach`].
#[derive(Default)]
pub(super) struct Chooser {
    dice: RandomSource,
    words: HashMap<u64, u32>,
}

/// The values that a load may return.
#[derive(Clone, Copy)]
pub(super) struct Choice {
    pub(super) word: u64,
    /// Its place in the source.
    pub(super) site: &'static Location<'static>,
    pub(super) point: Option<&'static str>,
    /// The oldest possible value.
    pub(super) oldest: Number,
    /// The oldest possible value with all orderings.
    pub(super) first_sound: Number,
    /// The current value of the word.
    pub(super) last: Number,
    /// Whether one of the values before `first_sound` is different.
    pub(super) differs: bool,
}

impl Chooser {
    pub(super) fn new(seed: u64) -> Self {
        Self { dice: RandomSource::new(seed), ..Self::default() }
    }

    /// The stale value that a load returns, if any.
    pub(super) fn choose(&mut self, reach: &Reach, choice: Choice) -> Option<Number> {
        let Choice { word, site, oldest, first_sound, last, differs, .. } = choice;
        let beyond = match reach.aim {
            Aim::None | Aim::Cued => return None,
            Aim::Drawn { only_missing: false, .. } => last,
            Aim::Drawn { .. } => first_sound,
            Aim::Words(_) | Aim::Place(_) if !differs => return None,
            Aim::Place(place) if place != site => return None,
            Aim::Place(_) => first_sound,
            Aim::Words(words) => {
                let next = self.words.len() as u32;
                let place = *self.words.entry(word).or_insert(next);
                if words >> place.min(63) & 1 == 0 {
                    return None;
                }
                first_sound
            }
        };
        if oldest >= beyond {
            return None;
        }
        if let Aim::Drawn { one_in, by_word, .. } = reach.aim {
            let mut of_word = RandomSource::new(reach.seed ^ word << 32);
            if (if by_word { &mut of_word } else { &mut self.dice }).roll(one_in) != 0 {
                return None;
            }
        }
        let rolled = if reach.oldest { 0 } else { self.dice.roll(u64::from(beyond - oldest)) as Number };
        Some(oldest + rolled)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn choice() -> Choice {
        let site = Location::caller();
        Choice { word: 5, site, point: None, oldest: 2, first_sound: 4, last: 7, differs: true }
    }

    #[test]
    fn aim_selects_words() {
        let shown = |aim, words: &[u64]| {
            let mut chooser = Chooser::new(1);
            let reach = Reach::at(aim, true);
            words.iter().map(|&word| chooser.choose(&reach, Choice { word, ..choice() })).collect::<Vec<_>>()
        };
        assert_eq!(shown(Aim::None, &[5, 6]), [None, None]);
        assert_eq!(shown(Aim::Words(0b10), &[5, 6, 5, 6]), [None, Some(2), None, Some(2)]);
    }

    #[test]
    fn aim_selects_places() {
        let (here, there) = (choice().site, Location::caller());
        let shown = |aim| {
            let mut chooser = Chooser::new(1);
            let each = [here, there, here, here].map(|site| Choice { site, ..choice() });
            each.map(|choice| chooser.choose(&Reach::at(aim, true), choice).is_some())
        };
        assert_eq!(shown(Aim::Place(here)), [true, false, true, true]);
        assert_eq!(shown(Aim::Place(there)), [false, true, false, false]);
    }

    #[test]
    fn values_stale_with_all_orderings_are_no_difference() {
        let mut chooser = Chooser::new(1);
        let same = Choice { oldest: 4, differs: false, ..choice() };
        assert_eq!(chooser.choose(&Reach::at(Aim::Words(u64::MAX), true), same), None);
        let any = Aim::Drawn { one_in: 1, by_word: false, only_missing: false };
        assert_eq!(chooser.choose(&Reach::at(any, true), same), Some(4));
    }
}
