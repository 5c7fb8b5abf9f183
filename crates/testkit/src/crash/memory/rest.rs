//! Runs that converge. The rest of a run depends only on the content of the memory when it begins.
//! So of several runs with equal content at that point, one continues, and the others count as
//! having read what its rest read.

use super::{Bits, Memory, WORDS, Words, hash};
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicU64};

/// Words that the rest of a run read before it wrote them, one bit each.
#[derive(Debug)]
pub(in crate::crash) struct Reads {
    words: Box<[u64]>,
    /// A hash of those words and their values.
    fingerprint: u64,
}

pub(super) struct Rest {
    /// Whether a run is in its rest.
    pub(super) is_on: AtomicBool,
    /// Words that the run read or wrote before its rest.
    before: Bits,
    /// Words that the rest read before it wrote them.
    read: Bits,
    fingerprint: AtomicU64,
}

impl Rest {
    pub(super) fn new(lines: usize) -> Self {
        let [before, read] = [Bits::new(lines), Bits::new(lines)];
        Self { is_on: AtomicBool::new(false), before, read, fingerprint: AtomicU64::new(0) }
    }

    /// If the run is in its rest, records a word that the rest reads for the first time. Returns
    /// whether the run accessed it earlier, so that the read is no news.
    #[inline(always)]
    pub(super) fn record_read(&self, word: usize, value: u64) -> bool {
        if !self.is_on.load(Relaxed) {
            return false;
        }
        self.read.set(word);
        self.fingerprint.store(self.fingerprint.load(Relaxed) ^ hash(word as u64, value), Relaxed);
        self.before.has(word)
    }
}

/// How the hash of the content changes with a line.
pub(super) fn change(line: usize, from: &Words, to: &Words) -> u64 {
    // Zeros are the most frequent words; they do not contribute.
    let of = |word: usize, value: u64| if value == 0 { 0 } else { hash((line * WORDS + word) as u64, value) };
    let changed = (0..WORDS).filter(|&word| from[word] != to[word]);
    changed.fold(0, |changes, word| changes ^ of(word, from[word]) ^ of(word, to[word]))
}

impl<const VOLATILE: bool> Memory<VOLATILE> {
    /// A hash of the whole content at this moment of a run.
    pub(in crate::crash) fn holds(&self) -> u64 {
        let arena = &*self.arena;
        arena.kept.iter().fold(arena.held.load(Relaxed), |all, line| {
            let old = std::array::from_fn(|word| arena.old[line][word].load(Relaxed));
            all ^ change(line, &old, &self.line(line))
        })
    }

    /// Begins the rest of a run.
    pub(in crate::crash) fn begin_rest(&self) {
        let (rest, seen) = (&self.arena.rest, &self.arena.seen);
        rest.before.copy_from(seen);
        [&rest.read, seen].into_iter().for_each(Bits::clear);
        rest.fingerprint.store(0, Relaxed);
        rest.is_on.store(true, Relaxed);
    }

    /// What the rest of the run has read so far.
    pub(in crate::crash) fn read_in_rest(&self) -> Reads {
        let rest = &self.arena.rest;
        let words = rest.read.0.iter().map(|bits| bits.load(Relaxed)).collect();
        Reads { words, fingerprint: rest.fingerprint.load(Relaxed) }
    }

    /// Whether all these words have the same values now, so that the run would continue as the
    /// recorded one did.
    pub(in crate::crash) fn would_read(&self, reads: &Reads) -> bool {
        let mut fingerprint = 0;
        for (group, &words) in reads.words.iter().enumerate() {
            let mut left = words;
            while left != 0 {
                let word = group * 64 + left.trailing_zeros() as usize;
                fingerprint ^= hash(word as u64, self.word(word).load(Relaxed));
                left &= left - 1;
            }
        }
        fingerprint == reads.fingerprint
    }

    /// Ends the run early, as if its rest had read this. Later reads are not recorded.
    pub(in crate::crash) fn read_as(&self, reads: &Reads) {
        reads.words.iter().enumerate().for_each(|(group, &words)| self.all_of(group, words, false));
        self.arena.seen.0.iter().for_each(|bits| bits.store(!0, Relaxed));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BYTES: usize = 4096;
    const HELD: [u64; 9] = [1, 2, 3, 4, 5, 6, 7, 8, 9];

    /// A memory whose first two lines are undecided.
    fn memory() -> Memory<true> {
        let memory = Memory::zeroed(BYTES, BYTES).unwrap();
        memory.set_all(&HELD);
        [0, 1].into_iter().for_each(|line| memory.set_undecided(line, true));
        memory
    }

    fn load(memory: &Memory<true>, index: usize) -> u64 {
        memory.at(index).load(memory, Relaxed)
    }

    #[test]
    fn hash_depends_only_on_the_content() {
        let (one, other) = (memory(), Memory::<true>::zeroed(BYTES, BYTES).unwrap());
        assert_ne!(one.holds(), other.holds());
        other.set_line(0, &[1, 2, 3, 4, 5, 6, 7, 8]);
        other.begin();
        other.at(8).store(&other, 10, Relaxed);
        assert_ne!(one.holds(), other.holds());
        other.at(8).store(&other, 9, Relaxed);
        assert_eq!(one.holds(), other.holds());
        other.end();
        assert_ne!(one.holds(), other.holds(), "the word was there for the run only");
        one.set_all(&HELD[..8]);
        assert_eq!(one.holds(), other.holds());
        other.begin();
        other.place(1, &[9, 0, 0, 0, 0, 0, 0, 0]);
        one.set_all(&HELD);
        assert_eq!(one.holds(), other.holds());
    }

    /// A run that reads words 0 and 1 and writes words 1 and 2. Its rest reads words 0, 2, 4 and 8,
    /// and writes and reads word 5.
    fn run(memory: &Memory<true>, old: Option<&Reads>) -> (Vec<(usize, u8)>, u64, Option<Reads>) {
        memory.begin();
        let _ = (load(memory, 0), load(memory, 1));
        [1, 2].into_iter().for_each(|index| memory.at(index).store(memory, 7, Relaxed));
        let reads = if let Some(reads) = old {
            memory.read_as(reads);
            None
        } else {
            memory.begin_rest();
            memory.at(5).store(memory, 7, Relaxed);
            [0, 2, 4, 5, 8].into_iter().for_each(|index| _ = load(memory, index));
            Some(memory.read_in_rest())
        };
        let read = (memory.undecided_reads().collect(), memory.fingerprint(), reads);
        memory.end();
        read
    }

    #[test]
    fn converged_run_counts_the_reads_of_the_other() {
        let memory = memory();
        let (undecided, fingerprint, reads) = run(&memory, None);
        assert_eq!(undecided, [(0, 0b1_0011), (1, 0b1)]);
        let reads = reads.unwrap();
        let (same, print, _) = run(&memory, Some(&reads));
        assert_eq!((same, print), (undecided, fingerprint));
        // A run that reads word 4 before its rest.
        memory.begin();
        let _ = (load(&memory, 4), load(&memory, 1), load(&memory, 0));
        memory.read_as(&reads);
        let _ = load(&memory, 7);
        assert_eq!(
            memory.undecided_reads().collect::<Vec<_>>(),
            [(0, 0b1_0111), (1, 0b1)],
            "word 2 was not written, word 7 is read after the end"
        );
    }

    #[test]
    fn run_converges_if_all_later_reads_are_equal() {
        let memory = memory();
        let reads = run(&memory, None).2.unwrap();
        for index in 0..16 {
            memory.begin();
            let _ = (load(&memory, 0), load(&memory, 1));
            [1, 2].into_iter().for_each(|index| memory.at(index).store(&memory, 7, Relaxed));
            assert!(memory.would_read(&reads));
            memory.at(index).store(&memory, 70, Relaxed);
            assert_eq!(memory.would_read(&reads), ![0, 2, 4, 8].contains(&index), "word {index}");
            memory.end();
        }
    }
}
