//! Reads of a pool's bytes from elsewhere: only single words are read atomically.

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
