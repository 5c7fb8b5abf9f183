//! Words of the pool that show when they are damaged, and copies into the pool.
//!
//! ```text
//!   | hash of the value and the word's place (20) | value (44) |     0 is no value
//! ```

use std::io::{self, ErrorKind};
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use terrace_medium::{LINE, MappedMedium, Offset, Word};
use terrace_pool::{MAX_POOL, Pool, PoolFull};
use xxhash_rust::xxh3::xxh3_64_with_seed;

/// Bytes from which on whole lines are written past the cache: nothing reads them soon.
const STREAMED_MIN: usize = 1024;
/// Lines that are streamed at once.
const LINES: usize = 16;

fn sealed(value: u64, place: u64) -> u64 {
    debug_assert!(value < MAX_POOL, "a value of 44 bits");
    let hash = xxh3_64_with_seed(&value.to_le_bytes(), place);
    if value == 0 { 0 } else { value | hash & !(MAX_POOL - 1) }
}

fn word<M: MappedMedium>(pool: &Pool<M>, at: u64) -> io::Result<&Word> {
    pool.region().get(Offset::new(at)).ok_or_else(|| damaged(at, "it points out of the pool"))
}

/// The error of a damaged word.
pub(crate) fn damaged(at: u64, what: &str) -> io::Error {
    let text = format!("the files of the pool are damaged at offset {at:#x}: {what}; restore a backup");
    io::Error::new(ErrorKind::InvalidData, text)
}

/// The error of a full pool.
pub(crate) fn full(full: PoolFull) -> io::Error {
    io::Error::new(ErrorKind::StorageFull, full)
}

/// The value of the word at `at`.
pub(crate) fn load<M: MappedMedium>(pool: &Pool<M>, at: u64) -> io::Result<u64> {
    let word = word(pool, at)?.load(pool.medium(), Acquire);
    let value = word & (MAX_POOL - 1);
    if sealed(value, at) == word { Ok(value) } else { Err(damaged(at, "a word does not fit its hash")) }
}

/// Stores the value of the word at `at`, which lies in the pool, and starts to write it back.
#[track_caller]
pub(crate) fn store<M: MappedMedium>(pool: &Pool<M>, at: u64, value: u64) {
    let word = pool.region().at(Offset::<Word>::new(at));
    word.store(pool.medium(), sealed(value, at), Release);
    pool.region().write_back(word);
}

/// Stores `bytes` at `at`. Returns whether some went past the cache: these are durable with the
/// next fence of this thread. The rest is durable once it was written back.
///
/// No other thread may access these bytes, or the words in which they begin and end.
pub(crate) fn store_bytes<M: MappedMedium>(pool: &Pool<M>, mut at: u64, mut bytes: &[u8]) -> bool {
    let (region, mut has_streamed) = (pool.region(), false);
    while !bytes.is_empty() {
        if at.is_multiple_of(LINE as u64) && bytes.len() >= STREAMED_MIN {
            let mut lines = [[0; LINE / 8]; LINES];
            let (now, rest) = bytes.split_at((bytes.len() / LINE).min(LINES) * LINE);
            for (word, piece) in lines.as_flattened_mut().iter_mut().zip(now.as_chunks().0) {
                *word = u64::from_le_bytes(*piece);
            }
            region.stream_lines(at, &lines[..now.len() / LINE]);
            (at, bytes, has_streamed) = (at + now.len() as u64, rest, true);
            continue;
        }
        let (begin, skipped) = (at & !7, (at & 7) as usize);
        let (now, rest) = bytes.split_at(bytes.len().min(8 - skipped));
        let word = region.at(Offset::<Word>::new(begin));
        let mut whole = if now.len() == 8 { [0; 8] } else { word.load(pool.medium(), Relaxed).to_le_bytes() };
        whole[skipped..skipped + now.len()].copy_from_slice(now);
        word.store(pool.medium(), u64::from_le_bytes(whole), Relaxed);
        (at, bytes) = (at + now.len() as u64, rest);
    }
    has_streamed
}
