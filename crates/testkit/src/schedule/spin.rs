//! Whether a thread waits: it reads the same words again and again, and changes nothing.

/// Words of a round at most. Who waits for a seat in a pool looks at all of them.
const ROUND_MAX: u32 = 64;

/// What a thread has loaded since it last did anything else.
#[derive(Clone, Copy, Default)]
pub(super) struct Spin {
    last: Option<u64>,
    in_a_row: u32,
    /// A word at which rounds begin, and the loads since it was loaded: how many, and a hash of which.
    begin: Option<u64>,
    loads: u32,
    words: u64,
    /// The same of the round before.
    before: Option<(u32, u64)>,
    rounds: u32,
}

impl Spin {
    /// Loads of one word in a row, and rounds through the same words, after which a thread waits.
    pub(super) const ROUNDS: u32 = 3;

    /// Notes a step, which is a load of this word or something else. Whether the thread waits.
    pub(super) fn note(&mut self, load: Option<u64>) -> bool {
        let Some(word) = load else {
            *self = Self::default();
            return false;
        };
        self.in_a_row = if self.last == Some(word) { self.in_a_row + 1 } else { 1 };
        self.last = Some(word);
        self.note_round(word);
        self.in_a_row > Self::ROUNDS || self.rounds >= Self::ROUNDS
    }

    fn note_round(&mut self, word: u64) {
        if self.begin == Some(word) {
            let round = Some((self.loads, self.words));
            self.rounds = if self.before == round { self.rounds + 1 } else { 0 };
            (self.before, self.loads, self.words) = (round, 0, 0);
        } else if self.begin.is_none() || self.loads == ROUND_MAX {
            let (last, in_a_row) = (self.last, self.in_a_row);
            *self = Self { last, in_a_row, begin: Some(word), ..Self::default() };
        } else {
            self.loads += 1;
            self.words = (self.words.rotate_left(5) ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// After how many of these loads the thread waits.
    fn waits_after(loads: impl Iterator<Item = u64>) -> Option<usize> {
        let mut spin = Spin::default();
        loads.map(|word| spin.note(Some(word))).position(|waits| waits)
    }

    #[test]
    fn who_reads_the_same_words_again_and_again_waits() {
        assert_eq!(waits_after([8; 100].into_iter()), Some(3));
        for words in [2, 5, 20, u64::from(ROUND_MAX)] {
            let rounds = (0..).flat_map(|_| (0..words).map(|word| 8 * word)).take(1000);
            let after = 5 * words as usize;
            assert!(
                waits_after((100..130).chain(rounds)).is_some_and(|at| at < after + 100),
                "{words} words"
            );
        }
    }

    #[test]
    fn who_reads_on_or_changes_anything_does_not_wait() {
        let walk = (0..1000).flat_map(|line: u64| [1, 64 * line, 64 * line + 8, 64 * line, 2]);
        assert_eq!(waits_after(walk), None);
        let mut spin = Spin::default();
        assert!((0..1000).all(|step| !spin.note((step % 3 != 2).then_some(8))));
    }
}
