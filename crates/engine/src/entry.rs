//! What reads return and writes take.

use std::fmt;
use std::sync::Arc;
use terrace_pool::PinnedBytes;

/// Identifies one version of a key's entry. It changes with each write, even of the same value, but
/// not when the store moves the entry. Valid while the store stays open.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Token {
    /// A checksum of the entry. Stamps wrap around after billions of writes; the checksum then
    /// still tells different entries apart.
    pub sum: u64,
    /// The number of the write.
    pub stamp: u32,
}

impl Token {
    /// The version of an entry with this checksum, made by the write with this number.
    pub fn new(sum: u64, stamp: u32) -> Self {
        Self { sum, stamp }
    }

    /// The token of an entry that a transaction has yet to write: no entry of a store has it.
    pub fn unwritten() -> Self {
        Self { sum: u64::MAX, stamp: 0 }
    }
}

impl From<u64> for Token {
    /// Of the version with this sequence number.
    fn from(seq: u64) -> Self {
        Self { sum: seq, stamp: seq as u32 }
    }
}

/// The state of a key when it was read: the version of its entry, or its absence. As an
/// [`Expected`](crate::Expected) version, an absence must have lasted all along: a key that was
/// added and removed in between does not meet it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Version {
    #[doc(hidden)]
    pub token: Option<Token>,
    #[doc(hidden)]
    pub absence: Option<Absence>,
}

/// What changes when a key that has no entry gets one and loses it again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Absence {
    /// Removals so far of the keys that share a counter with this one.
    pub removals: u64,
    /// The token of an entry that has expired and was not removed yet.
    pub expired: Option<Token>,
}

impl Version {
    /// The version of its entry, if it had one.
    pub fn token(&self) -> Option<Token> {
        self.token
    }

    /// The state of a key with this version, which may have expired, or with none. `removals` is
    /// the count from before it was looked up.
    pub fn seen(removals: u64, found: Option<(Token, bool)>) -> Self {
        match found {
            Some((token, false)) => Self { token: Some(token), absence: None },
            found => {
                let expired = found.map(|(token, _)| token);
                Self { token: None, absence: Some(Absence { removals, expired }) }
            }
        }
    }

    /// Whether a key in this state is as `expected`.
    pub fn meets(&self, expected: &Self) -> bool {
        self.token == expected.token && (expected.absence.is_none() || self.absence == expected.absence)
    }
}

impl From<Option<Token>> for Version {
    /// Without a token: the key has no entry now, whatever its history.
    fn from(token: Option<Token>) -> Self {
        Self { token, absence: None }
    }
}

/// A key's value and expiry, as a reader sees them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry<'a> {
    /// The value.
    pub value: &'a [u8],
    /// Unix milliseconds at which it expires, if it does.
    pub expires_at: Option<u64>,
    /// Its version.
    pub token: Token,
}

/// A version of a key that has a value, and was copied.
pub struct Live {
    /// The number of its write.
    pub seq: u64,
    /// The value.
    pub value: Vec<u8>,
    /// Unix milliseconds at which it expires, if it does.
    pub expires_at: Option<u64>,
}

impl Live {
    /// The entry that a reader sees.
    pub fn entry(&self) -> Entry<'_> {
        Entry { value: &self.value, expires_at: self.expires_at, token: self.seq.into() }
    }

    /// The same as a value.
    pub fn into_value<'a>(self) -> Value<'a> {
        Value { bytes: Bytes::Owned(self.value), expires_at: self.expires_at, token: self.seq.into() }
    }
}

/// A write of one key without a condition.
#[derive(Clone, Copy, Debug)]
pub struct Put<'a> {
    /// Up to 64 KiB; may be empty.
    pub key: &'a [u8],
    /// Up to 512 MiB.
    pub value: &'a [u8],
    /// Unix milliseconds at which it expires, if it does.
    pub expires_at: Option<u64>,
}

/// What a modification does to a key's entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// Leaves it.
    Keep,
    /// Replaces it.
    Put {
        /// The value.
        value: Vec<u8>,
        /// Unix milliseconds at which it expires, if it does.
        expires_at: Option<u64>,
    },
    /// Keeps the value and changes its expiry, `None` for never. Does nothing if there is no entry.
    Expire(Option<u64>),
    /// Removes it.
    Remove,
}

/// A value that was read: in a pool without a copy.
///
/// It stays as it was read, whatever happens to its key. Meanwhile no memory that a store in a pool
/// frees can be reused: drop it soon, and copy what you keep for longer. It stays with the thread
/// that read it.
pub struct Value<'a> {
    #[doc(hidden)]
    pub bytes: Bytes<'a>,
    #[doc(hidden)]
    pub expires_at: Option<u64>,
    #[doc(hidden)]
    pub token: Token,
}

/// The bytes of a [`Value`].
pub enum Bytes<'a> {
    /// Of a record in a pool.
    Pinned(PinnedBytes<'a>),
    /// Of something that outlives the value.
    Borrowed(&'a [u8]),
    /// A copy.
    Owned(Vec<u8>),
    /// From a byte on.
    Shared(Arc<[u8]>, usize),
}

impl<'a> Value<'a> {
    /// An entry whose bytes are borrowed from elsewhere.
    pub fn borrowed(entry: Entry<'a>) -> Self {
        Self { bytes: Bytes::Borrowed(entry.value), expires_at: entry.expires_at, token: entry.token }
    }

    /// An entry whose bytes were copied.
    pub fn owned(bytes: Vec<u8>, expires_at: Option<u64>, token: Token) -> Self {
        Self { bytes: Bytes::Owned(bytes), expires_at, token }
    }

    /// An entry whose value is the bytes from `begin` on, which are shared with others, such as a
    /// cache.
    ///
    /// # Panics
    /// If there are fewer bytes.
    pub fn shared(bytes: Arc<[u8]>, begin: usize, expires_at: Option<u64>, token: Token) -> Self {
        assert!(begin <= bytes.len(), "the value begins within the bytes");
        Self { bytes: Bytes::Shared(bytes, begin), expires_at, token }
    }

    /// Unix milliseconds at which it expires, if it does.
    pub fn expires_at(&self) -> Option<u64> {
        self.expires_at
    }

    /// Its version.
    pub fn token(&self) -> Token {
        self.token
    }

    /// Value, expiry and version together.
    pub fn entry(&self) -> Entry<'_> {
        Entry { value: self, expires_at: self.expires_at, token: self.token }
    }

    /// The same value with another expiry, for a transaction that has changed only that.
    pub fn with_expiry(mut self, expires_at: Option<u64>) -> Self {
        self.expires_at = expires_at;
        self
    }
}

impl std::ops::Deref for Value<'_> {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        match &self.bytes {
            Bytes::Pinned(bytes) => bytes,
            Bytes::Borrowed(bytes) => bytes,
            Bytes::Owned(bytes) => bytes,
            Bytes::Shared(bytes, begin) => &bytes[*begin..],
        }
    }
}

impl AsRef<[u8]> for Value<'_> {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl PartialEq for Value<'_> {
    /// Compares the bytes.
    fn eq(&self, other: &Self) -> bool {
        **self == **other
    }
}

impl<T: AsRef<[u8]> + ?Sized> PartialEq<&T> for Value<'_> {
    fn eq(&self, other: &&T) -> bool {
        **self == *other.as_ref()
    }
}

impl fmt::Debug for Value<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Value").field("bytes", &&**self).field("expires_at", &self.expires_at).finish()
    }
}
