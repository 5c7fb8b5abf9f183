//! The memory of a MemTable: chunks of words, filled from their beginning and freed together.
//!
//! Items lie in atomic words, so that readers need no lock while one writer adds: the writer stores
//! an item's words, and then publishes its place elsewhere with Release.

use std::sync::OnceLock;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

/// Words of the first chunk; the next ones are twice as large each, up to [`CHUNK_MAX`].
const CHUNK_MIN: usize = (4 << 10) / 8;
/// Words of a chunk at most. An item of a quarter of that has a chunk of its own.
const CHUNK_MAX: usize = (64 << 10) / 8;
/// Chunks of an arena.
const CHUNKS: usize = 1 << 6;
/// Bits of a place that count words within a chunk: 1 GiB.
const WORD_BITS: u32 = 27;

/// Where an item lies: never 0, and below 2^40.
pub(super) type At = u64;

type Chunk = Box<[AtomicU64]>;

/// Memory for items.
pub(super) struct Arena {
    chunks: Box<[OnceLock<Chunk>]>,
}

/// Where the writer is.
#[derive(Default)]
pub(super) struct End {
    /// Chunks that there are.
    chunks: usize,
    /// The chunk that items share: its number, its used words, and all its words.
    shared: Option<(usize, usize, usize)>,
    /// Bytes of all chunks.
    pub(super) bytes: usize,
}

impl Arena {
    pub(super) fn new() -> Self {
        Self { chunks: (0..CHUNKS).map(|_| OnceLock::new()).collect() }
    }

    /// Bytes that it takes without chunks.
    pub(super) fn own_bytes(&self) -> usize {
        size_of_val(&self.chunks[..])
    }

    /// Room for `words` words; `None` if all chunks are used.
    pub(super) fn take(&self, end: &mut End, words: usize) -> Option<At> {
        if words > CHUNK_MAX / 4 {
            let chunk = self.add_chunk(end, words)?;
            return Some(at(chunk, 0));
        }
        let (chunk, used, all) = match end.shared {
            Some((chunk, used, all)) if used + words <= all => (chunk, used, all),
            last => {
                let all = last.map_or(CHUNK_MIN, |(_, _, all)| (2 * all).min(CHUNK_MAX));
                let all = all.max(words.next_power_of_two());
                (self.add_chunk(end, all)?, 0, all)
            }
        };
        end.shared = Some((chunk, used + words, all));
        Some(at(chunk, used))
    }

    fn add_chunk(&self, end: &mut End, words: usize) -> Option<usize> {
        let chunk = end.chunks;
        let place = self.chunks.get(chunk)?;
        let fresh = place.set((0..words).map(|_| AtomicU64::new(0)).collect());
        assert!(fresh.is_ok(), "a chunk is added once, by the one writer");
        end.chunks += 1;
        end.bytes += words * 8;
        Some(chunk)
    }

    /// The words from `at` to the end of their chunk.
    #[inline]
    pub(super) fn words(&self, at: At) -> &[AtomicU64] {
        let chunk = (at >> WORD_BITS) as usize - 1;
        let words = self.chunks[chunk].get().expect("an item lies in a chunk that exists");
        &words[at as usize & ((1 << WORD_BITS) - 1)..]
    }
}

fn at(chunk: usize, word: usize) -> At {
    debug_assert!(word < 1 << WORD_BITS);
    (chunk as u64 + 1) << WORD_BITS | word as u64
}

/// Stores bytes, padded with zeros to whole words. The first byte is the highest of its word, so
/// that words compare as the bytes do.
pub(super) fn store_bytes(words: &[AtomicU64], bytes: &[u8]) {
    let mut chunks = bytes.chunks_exact(8);
    let mut place = words.iter();
    for (chunk, word) in chunks.by_ref().zip(place.by_ref()) {
        // ORDER: Relaxed: the item is published by a Release store of its place.
        word.store(u64::from_be_bytes(chunk.try_into().expect("eight bytes")), Relaxed);
    }
    let rest = chunks.remainder();
    if !rest.is_empty() {
        // `zip` takes a word more than it has chunks for.
        words[bytes.len() / 8].store(padded(rest), Relaxed);
    }
}

/// Up to eight bytes as a word, with zeros behind them.
#[inline]
pub(super) fn padded(bytes: &[u8]) -> u64 {
    let mut word = [0; 8];
    word[..bytes.len()].copy_from_slice(bytes);
    u64::from_be_bytes(word)
}

/// Appends `len` bytes that [`store_bytes`] has stored.
pub(super) fn load_bytes(words: &[AtomicU64], len: usize, out: &mut Vec<u8>) {
    out.reserve(len.next_multiple_of(8));
    let end = out.len() + len;
    for word in &words[..len.div_ceil(8)] {
        out.extend_from_slice(&word.load(Relaxed).to_be_bytes());
    }
    out.truncate(end);
}

#[cfg(test)]
#[path = "tests/arena.rs"]
mod tests;
