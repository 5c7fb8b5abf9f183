//! Writes of keys, and how they lie in a log.
//!
//! A record of the log is a write of one or several keys at one instant. It has the sequence
//! numbers of its items, in their order:
//!
//! ```text
//!   item   | flags u8 | [expires at, unix milliseconds] | bytes of the key | bytes of the value |
//!          | key | value |        all numbers are varints
//! ```

use crate::Put;
use crate::engine::{Write, WriteKind};
use terrace_disk::codec::put_varint;
use terrace_disk::{Content, DiskError, Log, Need};

/// A write of one key.
#[derive(Clone, Copy)]
pub struct Draft<'a> {
    /// The key.
    pub key: &'a [u8],
    /// What it gets.
    pub content: Content<'a>,
    /// Whether the value is none, but tells where the value lies.
    pub is_reference: bool,
}

impl<'a> From<Put<'a>> for Draft<'a> {
    fn from(put: Put<'a>) -> Self {
        Self::new(put.key, Content::Put { value: put.value, expires_at: put.expires_at })
    }
}

impl<'a> Draft<'a> {
    /// A draft of this content, with its value in place.
    pub fn new(key: &'a [u8], content: Content<'a>) -> Self {
        Self { key, content, is_reference: false }
    }

    /// A draft that removes a key.
    pub fn removal(key: &'a [u8]) -> Self {
        Self::new(key, Content::Tombstone)
    }

    /// Bytes of its key and value.
    pub fn bytes(&self) -> usize {
        let value = if let Content::Put { value, .. } = self.content { value.len() } else { 0 };
        self.key.len() + value
    }
}

/// Appends a record with these writes to the log, and returns the position behind it. `heads` is
/// kept for its memory. Where there is no room, removals get what is kept for them.
pub fn append_drafts(
    log: &Log,
    heads: &mut Vec<u8>,
    first: u64,
    drafts: &[Draft<'_>],
) -> Result<u64, DiskError> {
    heads.clear();
    let mut ends = Vec::with_capacity(drafts.len());
    for draft in drafts {
        put_head(heads, draft);
        ends.push(heads.len());
    }
    let mut parts = Vec::with_capacity(2 * drafts.len());
    let mut start = 0;
    for (draft, end) in drafts.iter().zip(ends) {
        parts.push(&heads[start..end]);
        if let Content::Put { value, .. } = draft.content {
            parts.push(value);
        }
        start = end;
    }
    log.append((first, drafts.len() as u64), &parts, need_of(drafts))
}

/// What a write may do where there is no room: removals make some.
pub fn need_of(drafts: &[Draft<'_>]) -> Need {
    let is_removal = drafts.iter().all(|draft| matches!(draft.content, Content::Tombstone));
    if is_removal { Need::Reserve } else { Need::Room }
}

/// The draft of a write of a commit; `kept` has the values of the keys whose expiry changes. `None`
/// if such a key is absent.
pub fn draft<'a>(write: &Write<'a>, kept: &mut std::slice::Iter<'a, Option<Vec<u8>>>) -> Option<Draft<'a>> {
    let content = match write.what {
        WriteKind::Put { value, expires_at } => Content::Put { value, expires_at },
        WriteKind::Remove => Content::Tombstone,
        WriteKind::Expire(expires_at) => {
            let value = kept.next().expect("one for each").as_deref()?;
            Content::Put { value, expires_at }
        }
    };
    Some(Draft::new(write.key, content))
}

/// Bytes of an item in the log beside its key and value, at most.
pub const HEAD_MAX: usize = 24;
const EXPIRES: u8 = 1;
const TOMBSTONE: u8 = 2;
const REFERENCE: u8 = 4;

/// Appends what comes before an item's value in the log: flags, expiry, lengths, key.
fn put_head(out: &mut Vec<u8>, draft: &Draft<'_>) {
    let (flags, expires_at, len) = match draft.content {
        Content::Tombstone => (TOMBSTONE, None, 0),
        Content::Put { value, expires_at: None } => (0, None, value.len()),
        Content::Put { value, expires_at } => (EXPIRES, expires_at, value.len()),
    };
    out.push(flags | if draft.is_reference { REFERENCE } else { 0 });
    expires_at.into_iter().for_each(|at| put_varint(out, at));
    put_varint(out, draft.key.len() as u64);
    put_varint(out, len as u64);
    out.extend_from_slice(draft.key);
}

/// The items of a record of the log, without their sequence numbers; `None` where the bytes are no
/// such record.
pub fn read_drafts(bytes: &[u8]) -> impl Iterator<Item = Option<Draft<'_>>> {
    let mut reader = terrace_disk::codec::Reader(bytes);
    let mut is_over = false;
    std::iter::from_fn(move || {
        if is_over || reader.is_empty() {
            return None;
        }
        let mut read = || {
            let flags = reader.u8()?;
            let expires_at = if flags & EXPIRES != 0 { Some(reader.varint()?) } else { None };
            let (key_len, value_len) = (reader.size()?, reader.size()?);
            let (key, value) = (reader.take(key_len)?, reader.take(value_len)?);
            let content = match flags & !REFERENCE {
                TOMBSTONE if value_len == 0 => Content::Tombstone,
                0 | EXPIRES => Content::Put { value, expires_at },
                _ => return None,
            };
            Some(Draft { key, content, is_reference: flags & REFERENCE != 0 })
        };
        let draft = read();
        is_over = draft.is_none();
        Some(draft)
    })
}
