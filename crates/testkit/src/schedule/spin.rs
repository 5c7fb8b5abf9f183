//! Detects a waiting thread: it reads the same words again and again, and changes nothing.

/// Maximum number of words in a round. A thread that waits for a thread slot of a pool reads all of
/// them.
const ROUND_MAX: u32 = 64;

/// The loads of a thread since its last other step.
#[derive(Clone, Copy, Default)]
pub(super) struct Spin {
    last: Option<u64>,
    in_a_row: u32,
    /// A word at which rounds begin, and the number and hash of the loads since.
    begin: Option<u64>,
    loads: u32,
    words: u64,
    /// The same for the previous round.
    before: Option<(u32, u64)>,
    rounds: u32,
}

impl Spin {
    /// Number of repeated loads of one word, or of rounds through the same words, after which a
    /// thread counts as waiting.
    pub(super) const ROUNDS: u32 = 3;

    /// Records a step, a load of this word or something else. Returns whether the thread waits.
    pub(super) fn record(&mut self, load: Option<u64>) -> bool {
        let Some(word) = load else {
            *self = Self::default();
            return false;
        };
        self.in_a_row = if self.last == Some(word) { self.in_a_row + 1 } else { 1 };
        self.last = Some(word);
        self.record_round(word);
        self.in_a_row > Self::ROUNDS || self.rounds >= Self::ROUNDS
    }

    fn record_round(&mut self, word: u64) {
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

    /// The number of these loads after which the thread counts as waiting.
    fn waits_after(loads: impl Iterator<Item = u64>) -> Option<usize> {
        let mut spin = Spin::default();
        loads.map(|word| spin.record(Some(word))).position(|waits| waits)
    }

    #[test]
    fn repeated_reads_are_a_wait() {
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
    fn progress_is_no_wait() {
        let walk = (0..1000).flat_map(|line: u64| [1, 64 * line, 64 * line + 8, 64 * line, 2]);
        assert_eq!(waits_after(walk), None);
        let mut spin = Spin::default();
        assert!((0..1000).all(|step| !spin.record((step % 3 != 2).then_some(8))));
    }
}
