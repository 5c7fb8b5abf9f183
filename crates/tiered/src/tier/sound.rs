//! The sound records of a file that was a block, whatever else of it is damaged.
//!
//! Records check themselves, and their hash tells the store. So they are found without the fences,
//! the entries and the foot, and behind any damage: a record begins at a multiple of eight.

use super::format::{PAGE, PLACE};
use crate::space::record::{Record, Shape};
use terrace_medium::files::StoredFile;
use xxhash_rust::xxh3::xxh3_64_with_seed;

/// Bytes of the longest record: that of the largest page of DRAM.
const RECORD_MAX: usize = 1 << 20;
/// Bytes that are read at a time.
const PIECE: usize = 4 << 20;

/// A part of such a file.
pub(crate) enum Part<'b> {
    /// A record.
    Record(Record<'b>),
    /// Bytes that are neither a record nor the end of a page: from this offset on.
    Damage(u64),
}

/// The record of the store `store` that lies behind its place at the beginning of `bytes`, if there
/// is a sound one.
pub(crate) fn record_in(bytes: &[u8], store: u64) -> Option<Record<'_>> {
    let word = |at: usize| Some(u64::from_le_bytes(*bytes.get(at..)?.first_chunk()?));
    // Its length stands there twice. So one of both may be damaged, and most of what is no record
    // is told without a checksum.
    let words = Shape::decode(word(PLACE)?)?.size() as u64 / 8;
    if word(0)? >> 32 != words && word(PLACE + 16)? >> 32 != words {
        return None;
    }
    let record = Record::read(&bytes[PLACE..])?;
    (xxh3_64_with_seed(record.key(), store) == record.hash()).then_some(record)
}

/// A file that is read from its beginning to its end, in pieces.
struct Window<'f> {
    file: &'f dyn StoredFile,
    length: u64,
    bytes: Vec<u8>,
    at: u64,
}

impl Window<'_> {
    /// The bytes from `at` on: those of the longest record, or all that there are.
    fn from(&mut self, at: u64) -> &[u8] {
        let held = self.at + self.bytes.len() as u64;
        if held < self.length && held < at + (PLACE + RECORD_MAX) as u64 {
            self.at = at - at % PAGE as u64;
            self.bytes.resize((PIECE as u64).min(self.length - self.at) as usize, 0);
            if self.file.read_exact_at(&mut self.bytes, self.at).is_err() {
                self.read_pages();
            }
        }
        &self.bytes[(at - self.at) as usize..]
    }

    /// Reads page by page. One that cannot be read is as if it had only zeros.
    fn read_pages(&mut self) {
        for (nth, page) in self.bytes.chunks_mut(PAGE).enumerate() {
            if self.file.read_exact_at(page, self.at + (nth * PAGE) as u64).is_err() {
                page.fill(0);
            }
        }
    }
}

/// Visits all sound records of a store in the first `length` bytes of a file, and the damage
/// between them.
pub(crate) fn visit(file: &dyn StoredFile, length: u64, store: u64, each: &mut dyn FnMut(Part<'_>)) {
    let mut window = Window { file, length, bytes: Vec::new(), at: 0 };
    let (mut at, mut damage) = (0, None);
    while at < length {
        let bytes = window.from(at);
        let in_page = at as usize % PAGE;
        let rest = &bytes[..(PAGE - in_page).min(bytes.len())];
        if let Some(record) = record_in(bytes, store) {
            damage.take().into_iter().for_each(|from| each(Part::Damage(from)));
            each(Part::Record(record));
            let end = PLACE + record.shape.size();
            at +=
                if end > rest.len() { (in_page + end).next_multiple_of(PAGE) - in_page } else { end } as u64;
        } else if (in_page > 0 || damage.is_some()) && rest.iter().all(|&byte| byte == 0) {
            at += rest.len() as u64;
        } else {
            damage = damage.or(Some(at));
            at += 8;
        }
    }
    damage.into_iter().for_each(|from| each(Part::Damage(from)));
}
