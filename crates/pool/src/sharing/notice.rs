//! Notices: short texts of participants for processes that have not opened the pool, such as the
//! addresses of a server.
//!
//! They lie after superblock A, in the rest of its page, one for each of the first [`NOTICES`]
//! participants:
//!
//! ```text
//! word 0      XXH3 of words 1 to 31
//!      1      incarnation of the participant
//!      2      when it opened the pool, unix ms
//!      3..31  the notice, UTF-8, padded with zeros
//! ```
//!
//! A notice is valid while the table entry of its participant has that incarnation and time. A
//! later participant in the entry thus invalidates it without a store. Readers take notices from
//! the file, so a valid notice may be one of a dead participant.
//!
//! Notices are never written back: after a crash of the machine none is valid.

use crate::base::Base;
use crate::error::{OpenError, Problem};
use crate::format::layout::{Layout, PARTICIPANT_BYTES};
use crate::format::superblock::SUPERBLOCK_BYTES;
use crate::open::file::{self, Purpose};
use crate::sharing::participants;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::atomic::Ordering::{Relaxed, Release};
use terrace_medium::{Line, MappedMedium, Offset};
use xxhash_rust::xxh3::xxh3_64;

/// Number of participants that can have a notice; as many as fit the page.
const NOTICES: u32 = 14;
const NOTICE_BYTES: usize = 256;
const WORDS: usize = NOTICE_BYTES / 8;
const TEXT_WORD: usize = 3;
/// The longest notice, in bytes.
pub const NOTICE_MAX: usize = NOTICE_BYTES - 8 * TEXT_WORD;

const _: () = assert!(SUPERBLOCK_BYTES + NOTICES as usize * NOTICE_BYTES <= 4096);

fn place(participant: u32) -> u64 {
    SUPERBLOCK_BYTES as u64 + u64::from(participant) * NOTICE_BYTES as u64
}

/// Posts `text` as the notice of this participant, in place of an earlier one. Returns whether
/// there was room.
pub(crate) fn post<M: MappedMedium>(base: &Base<M>, text: &str) -> bool {
    let participant = u32::from(base.owner.participant);
    if participant >= NOTICES || text.len() > NOTICE_MAX || text.contains('\0') {
        return false;
    }
    let opened_ms = participants::opened_ms_of(&base.region, &base.layout, participant);
    let words = encode(base.owner.incarnation, opened_ms, text);
    let lines = base.region.at(Offset::<[Line; WORDS / 8]>::new(place(participant)));
    let mut slots = lines.iter().flat_map(|line| &line.0).zip(words);
    let Some((sum, value)) = slots.next() else { return false };
    // ORDER: Release: pairs with readers of the file, which check the sum. The old sum goes first,
    // the new one comes last.
    sum.store(base.medium(), 0, Release);
    slots.for_each(|(word, value)| word.store(base.medium(), value, Relaxed));
    sum.store(base.medium(), value, Release);
    true
}

fn encode(incarnation: u32, opened_ms: u64, text: &str) -> [u64; WORDS] {
    debug_assert!(text.len() <= NOTICE_MAX, "a notice that was refused");
    let mut bytes = [0; NOTICE_BYTES];
    bytes[8 * TEXT_WORD..][..text.len()].copy_from_slice(text.as_bytes());
    let mut words = [0; WORDS];
    for (word, piece) in words.iter_mut().zip(bytes.as_chunks().0) {
        *word = u64::from_le_bytes(*piece);
    }
    (words[1], words[2]) = (u64::from(incarnation), opened_ms);
    words[0] = sum(words.map(u64::to_le_bytes).as_flattened());
    words
}

/// The checksum of a notice's bytes; never 0, so that zeros are none.
fn sum(notice: &[u8]) -> u64 {
    xxh3_64(&notice[8..]).max(1)
}

/// The text of a notice, if it is valid for the participant whose table entry is `slot`.
fn decode(notice: &[u8], slot: &[u8]) -> Option<String> {
    let word = |i: usize| notice.as_chunks().0.get(i).map_or(0, |&piece| u64::from_le_bytes(piece));
    let (incarnation, opened_ms) = participants::incarnation_and_open_time(slot)?;
    let holds = word(0) == sum(notice) && word(1) == u64::from(incarnation) && word(2) == opened_ms;
    let text = notice.get(8 * TEXT_WORD..)?.split(|&byte| byte == 0).next()?;
    holds.then(|| String::from_utf8_lossy(text).into_owned())
}

/// The valid notices in the pool at `path`, read from its file without opening the pool. Dead
/// participants may have left some.
pub fn notices(path: impl AsRef<Path>) -> Result<Vec<String>, OpenError> {
    let path = path.as_ref();
    let read = || read(&file::open(path, Purpose::Read)?);
    read().map_err(|problem| OpenError { pool: path.into(), problem })
}

fn read(file: &File) -> Result<Vec<String>, Problem> {
    let geometry = file::read_superblock(file)?.superblock.geometry;
    if file::is_device_file(file)? {
        // Devices cannot be read.
        return Ok(Vec::new());
    }
    let layout = Layout::new(geometry).map_err(Problem::Damaged)?;
    let cannot = |error| Problem::Os("read", error);
    let mut found = Vec::new();
    for participant in 0..geometry.participants.min(NOTICES) {
        let (mut slot, mut notice) = ([0; PARTICIPANT_BYTES as usize], [0; NOTICE_BYTES]);
        file.read_exact_at(&mut slot, layout.participant(participant)).map_err(cannot)?;
        file.read_exact_at(&mut notice, place(participant)).map_err(cannot)?;
        found.extend(decode(&notice, &slot));
    }
    Ok(found)
}

#[cfg(test)]
#[path = "tests/notice.rs"]
mod tests;
