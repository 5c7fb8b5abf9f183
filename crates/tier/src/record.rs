//! The record of a name: written once, and replaced as a whole.
//!
//! ```text
//!   word 0   checksum of the rest
//!        1   what has the name: a file's first node, or the number of a directory
//!        2   the number of the directory that has it
//!        3   sequence number: of two records with one name, the later one counts
//!        4   | 1 if it is a directory (32) | bytes of the name (32) |
//!        5.. the name, padded with zeros
//! ```

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use terrace_medium::MappedMedium;
use terrace_pool::Guard;
use xxhash_rust::xxh3::xxh3_64;

const HEAD: usize = 40;
/// Bytes of the longest name.
pub(crate) const NAME_MAX: usize = 255;

/// What has a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Target {
    /// A file, by the offset of its first node.
    File(u64),
    /// A directory, by its number.
    Directory(u64),
}

/// A name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Record {
    pub(crate) target: Target,
    /// The number of the directory that has it.
    pub(crate) parent: u64,
    pub(crate) seq: u64,
    pub(crate) name: OsString,
}

/// Bytes of the record of a name.
pub(crate) fn bytes_of(name: &OsStr) -> usize {
    HEAD + name.len().next_multiple_of(8)
}

impl Record {
    pub(crate) fn to_bytes(&self) -> Vec<u8> {
        let (target, is_directory) = match self.target {
            Target::File(node) => (node, 0),
            Target::Directory(number) => (number, 1),
        };
        let mut bytes = vec![0; 8];
        for word in [target, self.parent, self.seq, is_directory << 32 | self.name.len() as u64] {
            bytes.extend_from_slice(&word.to_le_bytes());
        }
        bytes.extend_from_slice(self.name.as_bytes());
        bytes.resize(bytes_of(&self.name), 0);
        let sum = xxh3_64(&bytes[8..]);
        bytes[..8].copy_from_slice(&sum.to_le_bytes());
        bytes
    }

    /// The record at an offset of the pool; `None` if there is no sound one.
    pub(crate) fn read<M: MappedMedium>(guard: &Guard<'_, M>, at: u64) -> Option<Self> {
        let word = |bytes: &[u8], nth: usize| {
            u64::from_le_bytes(bytes[8 * nth..8 * nth + 8].try_into().expect("eight bytes"))
        };
        let kind = word(guard.bytes(at, HEAD)?, 4);
        let len = (kind & 0xffff_ffff) as usize;
        let bytes = guard.bytes(at, HEAD + len.min(NAME_MAX).next_multiple_of(8))?;
        if len > NAME_MAX || xxh3_64(&bytes[8..]) != word(bytes, 0) {
            return None;
        }
        let target = match kind >> 32 {
            0 => Target::File(word(bytes, 1)),
            1 => Target::Directory(word(bytes, 1)),
            _ => return None,
        };
        let name = OsString::from_vec(bytes[HEAD..HEAD + len].to_vec());
        Some(Self { target, parent: word(bytes, 2), seq: word(bytes, 3), name })
    }
}
