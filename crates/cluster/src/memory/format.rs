//! The format of the log area: where its parts lie, and how its words are sealed.
//!
//! ```text
//!   0          magic  version  the pool's id [2]  segments  bytes of each  checksum
//!   4 KiB      the next session   the next segment   nanoseconds of the longest lease, or 1
//!                2 if a memory node has left all in the pool, else 1   the opens: see `age.rs`
//!   8 KiB      owner of each slot: a session, or 0
//!   136 KiB    sessions: rows of 16 words
//!                session, or 0   state   bytes of the node's name   the name, 6 bytes a word
//!   264 KiB    segments: rows of 8 words
//!                number, or 0   session   shard and order   first entry, or 0   merged entry
//!   then, from a page on, the segments
//! ```
//! Numbers are little-endian. Each word from 4 KiB on is *sealed*: a number of 48 bits, and a
//! checksum of it and of its place. Words are stored one by one, so after a crash each is old or
//! new. Serving nodes can write to the segments only.

use xxhash_rust::xxh3::xxh3_64_with_seed;

/// The version of the format.
pub(crate) const VERSION: u64 = 1;
pub(crate) const MAGIC: u64 = u64::from_le_bytes(*b"TRCELOGS");
pub(crate) const PAGE: u64 = 4096;
pub(crate) const COUNTERS: u64 = PAGE;
/// Where it stands whether a memory node has stopped in order since it used the area.
pub(crate) const USE: u64 = COUNTERS + 24;
/// The memory node has stopped: all is in the pool.
pub(crate) const CLOSED: u64 = 2;
/// As for an area of a program that did not note it: what is here may not be in the pool.
pub(crate) const IN_USE: u64 = 1;
/// The longest lease that a session may have. A new area has 1 here, as had those of before.
pub(crate) const LEASE: u64 = COUNTERS + 16;
pub(crate) const OWNERS: u64 = 2 * PAGE;
pub(crate) const SESSIONS: u64 = OWNERS + 8 * crate::slot::SLOTS as u64;
/// Sessions that the table has room for.
pub(crate) const SESSIONS_MAX: u64 = 1024;
pub(crate) const SESSION_BYTES: u64 = 128;
pub(crate) const SEGMENTS: u64 = SESSIONS + SESSIONS_MAX * SESSION_BYTES;
pub(crate) const SEGMENT_ROW: u64 = 64;
/// Most segments of an area.
pub(crate) const SEGMENTS_MAX: u64 = 1 << 20;
/// Words of the header that its checksum covers.
pub(crate) const HEADER_WORDS: usize = 6;
/// The numbers that a sealed word can hold.
pub(crate) const NUMBER: u64 = (1 << 48) - 1;

/// Where the segments begin.
pub(crate) fn bodies(segments: u64) -> u64 {
    (SEGMENTS + segments * SEGMENT_ROW).next_multiple_of(PAGE)
}

/// The sealed word of a number at a place.
pub(crate) fn seal(number: u64, offset: u64) -> u64 {
    assert!(number <= NUMBER, "numbers of 48 bits");
    number | xxh3_64_with_seed(&number.to_le_bytes(), offset) & !NUMBER
}

/// Bytes of the file with so many segments; `None` if there is no such area.
pub(crate) fn size(segments: u64, bytes: u64) -> Option<u64> {
    let is_sound = (1..=SEGMENTS_MAX).contains(&segments) && bytes.is_multiple_of(PAGE);
    let sound = is_sound && bytes >= (crate::entry::ENTRY_MAX + 2 * crate::entry::HEADER) as u64;
    segments.checked_mul(bytes).filter(|_| sound)?.checked_add(bodies(segments))
}

/// The checksum of the header.
pub(crate) fn header_sum(words: &[u64]) -> u64 {
    let bytes: Vec<u8> = words[..HEADER_WORDS].iter().flat_map(|word| word.to_le_bytes()).collect();
    xxh3_64_with_seed(&bytes, MAGIC)
}
