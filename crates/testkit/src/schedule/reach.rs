//! How many of the stale values that a thread may load it actually loads.

use crate::crash::RandomSource;

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
    /// Loads at a named point, of values that all orderings together would rule out.
    At(&'static str),
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
}

/// The values that a load may return.
#[derive(Clone, Copy)]
pub(super) struct Choice {
    pub(super) word: u64,
    pub(super) point: Option<&'static str>,
    /// The oldest possible value.
    pub(super) oldest: Number,
    /// The oldest possible value with all orderings.
    pub(super) first_sound: Number,
    /// The current value of the word.
    pub(super) last: Number,
}

impl Chooser {
    pub(super) fn new(seed: u64) -> Self {
        Self { dice: RandomSource::new(seed) }
    }

    /// The stale value that a load returns, if any.
    pub(super) fn choose(&mut self, reach: &Reach, choice: Choice) -> Option<Number> {
        let Choice { word, oldest, first_sound, last, .. } = choice;
        let beyond = match reach.aim {
            Aim::None | Aim::Cued => return None,
            Aim::At(point) if choice.point != Some(point) => return None,
            Aim::Drawn { only_missing: false, .. } => last,
            Aim::Drawn { .. } | Aim::At(_) => first_sound,
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

    #[test]
    fn values_stale_with_all_orderings_are_drawn_only_if_wanted() {
        let mut chooser = Chooser::new(1);
        let same = Choice { word: 5, point: None, oldest: 4, first_sound: 4, last: 7 };
        let drawn = |only_missing| Reach::at(Aim::Drawn { one_in: 1, by_word: false, only_missing }, true);
        assert_eq!(chooser.choose(&drawn(true), same), None);
        assert_eq!(chooser.choose(&drawn(false), same), Some(4));
    }
}
