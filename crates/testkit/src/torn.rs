//! Reads of a pool's bytes from elsewhere: at best, single words are read atomically.

use std::collections::HashSet;
use std::sync::atomic::Ordering::Acquire;
use terrace_medium::{MappedMedium, Offset, Word};
use terrace_pool::Pool;

/// The `len` bytes at `offset`, a multiple of 8, or `None` if they do not lie in the pool. Each
/// word is as it was at one of two moments: before or after `between`, as the bits of `late` say.
/// The bits repeat from the 65th word on.
pub fn torn_read<M: MappedMedium>(
    pool: &Pool<M>,
    (offset, len): (u64, usize),
    late: u64,
    between: impl FnOnce(),
) -> Option<Vec<u8>> {
    let words: Option<Vec<&Word>> = (0..len.div_ceil(8))
        .map(|nth| pool.region().get(Offset::<Word>::new(offset + 8 * nth as u64)))
        .collect();
    let (words, mut bytes) = (words?, vec![0; len.next_multiple_of(8)]);
    let mut read = |is_late: bool| {
        for (nth, word) in
            words.iter().enumerate().filter(|(nth, _)| (late >> (nth % 64) & 1 == 1) == is_late)
        {
            // ORDER: Acquire: reads that begin after this one see at least as much.
            let word = word.load(pool.medium(), Acquire);
            bytes[8 * nth..8 * nth + 8].copy_from_slice(&word.to_le_bytes());
        }
    };
    read(false);
    between();
    read(true);
    bytes.truncate(len);
    Some(bytes)
}

/// A reader of a pool's bytes, some of whose words are torn.
#[derive(Default)]
pub struct Tearing {
    /// Where the words lie that the last reads of them have torn.
    torn: HashSet<u64>,
    draws: u64,
}

impl Tearing {
    /// A reader whose words are torn at places that depend on `seed`.
    pub fn new(seed: u64) -> Self {
        Self { torn: HashSet::new(), draws: seed }
    }

    /// As [`torn_read`], but each word that has changed meanwhile consists of some bytes as they
    /// were before `between`, and of the others as they were after it. No two reads of a word, one
    /// after the other, tear it.
    pub fn read<M: MappedMedium>(
        &mut self,
        pool: &Pool<M>,
        (offset, len): (u64, usize),
        between: impl FnOnce(),
    ) -> Option<Vec<u8>> {
        let before = torn_read(pool, (offset, len), 0, || ())?;
        between();
        let mut bytes = torn_read(pool, (offset, len), 0, || ())?;
        for (at, (new, old)) in (offset..).step_by(8).zip(bytes.chunks_mut(8).zip(before.chunks(8))) {
            if self.torn.remove(&at) || new == old {
                continue;
            }
            let late = self.draw();
            let is_early = |nth: &usize| late >> nth & 1 == 0;
            (0..new.len()).filter(is_early).for_each(|nth| new[nth] = old[nth]);
            self.torn.insert(at);
        }
        Some(bytes)
    }

    fn draw(&mut self) -> u64 {
        self.draws =
            self.draws.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        self.draws >> 33
    }
}
