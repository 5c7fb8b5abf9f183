//! A key, and what it has, as every part of a serving node hands them on.

use std::sync::Arc;
use terrace_engine::{Token, Value};
use terrace_server::databases::slot_of;
use xxhash_rust::xxh3::xxh3_64;

/// A key, with what is computed from it once.
#[derive(Clone, Copy)]
pub(super) struct Key<'k> {
    pub(super) bytes: &'k [u8],
    pub(super) hash: u64,
    pub(super) slot: u16,
}

impl<'k> Key<'k> {
    pub(super) fn new(bytes: &'k [u8]) -> Self {
        Self { bytes, hash: xxh3_64(bytes), slot: slot_of(bytes) }
    }
}

/// A key with its value and expiry, copied together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Copied {
    /// The key, then the value.
    bytes: Arc<[u8]>,
    key_len: u32,
    pub(super) expires_at: Option<u64>,
}

impl Copied {
    pub(super) fn new(key: &[u8], value: &[u8], expires_at: Option<u64>) -> Self {
        Self { bytes: [key, value].concat().into(), key_len: key.len() as u32, expires_at }
    }

    pub(super) fn key(&self) -> &[u8] {
        &self.bytes[..self.key_len as usize]
    }

    pub(super) fn value(&self) -> &[u8] {
        &self.bytes[self.key_len as usize..]
    }

    /// Bytes of both.
    pub(super) fn bytes(&self) -> usize {
        self.bytes.len()
    }

    /// The value, without a copy.
    pub(super) fn into_value(self, token: Token) -> Value<'static> {
        Value::shared(self.bytes, self.key_len as usize, self.expires_at, token)
    }
}
