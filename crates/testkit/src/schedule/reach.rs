//! How much of what a thread may load that is old it does load.

use crate::crash::Dice;
use std::collections::HashMap;
use std::panic::Location;

/// The number of a value among those that a word has held.
pub(super) type Number = u32;

/// How much of what a thread may load that is old it does load.
#[derive(Clone, Copy, Debug)]
pub struct Reach {
    /// Loads of a call that are old, at most: who waits for a store is to see it in the end.
    pub old: u32,
    /// Which of them.
    pub aim: Aim,
    /// Whether such a load takes the oldest value that it may, or any.
    pub oldest: bool,
    /// What is drawn follows from it.
    pub seed: u64,
}

/// Which loads are of something old.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Aim {
    /// None: it is only noted which could be.
    None,
    /// Those that chance says.
    Drawn {
        /// One in so many loads that may be old is.
        one_in: u64,
        /// Whether it is drawn for a word, for the whole run, and not for each load: one who is told of something by one word and does not find it in another needs both.
        by_word: bool,
        /// Whether only that is loaded which could not be if no order were missing.
        only_missing: bool,
    },
    /// Of those that could not be if no order were missing, the ones of these words, which are counted as they come, a bit each.
    Words(u64),
    /// Of those that could not be if no order were missing, the ones at a place of the source.
    Place(&'static Location<'static>),
    /// All of those that may be, while a script has it that the thread sees what is old: see [`Cue`](super::Cue).
    Cued,
}

impl Reach {
    /// Nothing old is loaded.
    pub const NONE: Self = Self { old: 0, aim: Aim::None, oldest: true, seed: 0 };

    /// One that a run has, by its number.
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

    /// One that shows what an order that is missing makes older.
    pub fn at(aim: Aim, oldest: bool) -> Self {
        Self { old: 64, aim, oldest, seed: 0 }
    }
}

/// A reach at work.
#[derive(Default)]
pub(super) struct Chooser {
    dice: Dice,
    words: HashMap<u64, u32>,
}

/// The values that a load may be of.
#[derive(Clone, Copy)]
pub(super) struct Choice {
    pub(super) word: u64,
    /// Where in the source it is.
    pub(super) site: &'static Location<'static>,
    pub(super) point: Option<&'static str>,
    /// The oldest one.
    pub(super) oldest: Number,
    /// The oldest one if no order were missing.
    pub(super) first_sound: Number,
    /// What the word holds.
    pub(super) last: Number,
    /// Whether one of those before `first_sound` is another value.
    pub(super) differs: bool,
}

impl Chooser {
    pub(super) fn new(seed: u64) -> Self {
        Self { dice: Dice::new(seed), ..Self::default() }
    }

    /// The value that a load is of, if it is an old one.
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
            let mut of_word = Dice::new(reach.seed ^ word << 32);
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
    fn differences_are_shown_by_their_word() {
        let shown = |aim, words: &[u64]| {
            let mut chooser = Chooser::new(1);
            let reach = Reach::at(aim, true);
            words.iter().map(|&word| chooser.choose(&reach, Choice { word, ..choice() })).collect::<Vec<_>>()
        };
        assert_eq!(shown(Aim::None, &[5, 6]), [None, None]);
        assert_eq!(shown(Aim::Words(0b10), &[5, 6, 5, 6]), [None, Some(2), None, Some(2)]);
    }

    #[test]
    fn differences_are_shown_by_their_place() {
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
    fn what_would_be_old_with_all_orders_is_no_difference() {
        let mut chooser = Chooser::new(1);
        let same = Choice { oldest: 4, differs: false, ..choice() };
        assert_eq!(chooser.choose(&Reach::at(Aim::Words(u64::MAX), true), same), None);
        let any = Aim::Drawn { one_in: 1, by_word: false, only_missing: false };
        assert_eq!(chooser.choose(&Reach::at(any, true), same), Some(4));
    }
}
