//! One version of a key.

use std::cmp::Ordering;

/// One version of a key. Items are ordered by key, byte by byte, and the newest version of a key
/// comes first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Item<'a> {
    /// The key.
    pub key: &'a [u8],
    /// The sequence number of the write.
    pub seq: u64,
    /// What was written.
    pub content: Content<'a>,
}

/// What a version of a key says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Content<'a> {
    /// The key has this value.
    Put {
        /// The value.
        value: &'a [u8],
        /// Unix milliseconds at which it expires, if it does.
        expires_at: Option<u64>,
    },
    /// The key is absent.
    Tombstone,
}

impl<'a> Item<'a> {
    /// A key with a value that does not expire.
    pub fn put(key: &'a [u8], seq: u64, value: &'a [u8]) -> Self {
        Self { key, seq, content: Content::Put { value, expires_at: None } }
    }

    /// An absent key.
    pub fn tombstone(key: &'a [u8], seq: u64) -> Self {
        Self { key, seq, content: Content::Tombstone }
    }

    /// Its value; `None` of a tombstone.
    pub fn value(&self) -> Option<&'a [u8]> {
        match self.content {
            Content::Put { value, .. } => Some(value),
            Content::Tombstone => None,
        }
    }

    /// Bytes of the key and the value.
    pub fn bytes(&self) -> usize {
        let value = if let Content::Put { value, .. } = self.content { value.len() } else { 0 };
        self.key.len() + value
    }

    /// The order of items.
    pub fn order(&self, other: &Item<'_>) -> Ordering {
        order((self.key, self.seq), (other.key, other.seq))
    }
}

/// The order of versions of keys: a key, and a sequence number.
#[inline]
pub(crate) fn order(one: (&[u8], u64), other: (&[u8], u64)) -> Ordering {
    one.0.cmp(other.0).then(other.1.cmp(&one.1))
}
