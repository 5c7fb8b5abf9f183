//! What a transaction has written, and what undoes it.

use crate::{Entry, Token};
use std::collections::BTreeMap;
use terrace_engine::WriteKind;

/// Bytes that a key takes beside itself and its value, about.
pub(crate) const PER_KEY: usize = 64;

/// The writes of a transaction by key.
pub(crate) type Writes = BTreeMap<Vec<u8>, Written>;

/// The write of a transaction to a key.
#[derive(Clone)]
pub(crate) enum Written {
    Put {
        value: Vec<u8>,
        expires_at: Option<u64>,
    },
    /// The store's value with another expiry.
    Expire(Option<u64>),
    Removed,
}

/// What undoes a write of a transaction.
pub(crate) enum Undo {
    Key(Vec<u8>, Option<Written>),
    /// The value was so long before something was appended to it.
    Append(Vec<u8>, usize),
    Clear(Writes, bool),
}

/// Bytes of memory of writes, about.
pub(crate) fn bytes_of(writes: &Writes) -> usize {
    writes.iter().map(|(key, written)| written.bytes(key.len())).sum()
}

impl Undo {
    /// Bytes of memory that it keeps from being given back, about.
    pub(crate) fn bytes(&self) -> usize {
        match self {
            Undo::Key(key, before) => before.as_ref().map_or(0, |before| before.bytes(key.len())),
            Undo::Append(..) => 0,
            Undo::Clear(before, _) => bytes_of(before),
        }
    }
}

impl Written {
    /// What the transaction sees where the store has `entry`.
    pub(crate) fn seen_over<'a>(&'a self, entry: Option<Entry<'a>>) -> Option<Entry<'a>> {
        match self {
            Self::Put { value, expires_at } => {
                Some(Entry { value, expires_at: *expires_at, token: Token::unwritten() })
            }
            Self::Expire(at) => entry.map(|entry| Entry { expires_at: *at, ..entry }),
            Self::Removed => None,
        }
    }

    /// Bytes of memory of the write to a key of this length, about.
    pub(crate) fn bytes(&self, key: usize) -> usize {
        let value = if let Self::Put { value, .. } = self { value.len() } else { 0 };
        key + value + PER_KEY
    }

    pub(crate) fn what(&self) -> WriteKind<'_> {
        match self {
            Self::Put { value, expires_at } => WriteKind::Put { value, expires_at: *expires_at },
            Self::Expire(at) => WriteKind::Expire(*at),
            Self::Removed => WriteKind::Remove,
        }
    }
}
