//! Values that belong to the caller.

use crate::{Entry, Token, Value};
use std::fmt;
use std::ops::Deref;

/// A copy of a value, with its expiry and version. Unlike a [`Value`] it may move to another thread
/// or be held across an await, for any time: it does not delay the reuse of memory.
///
/// ```
/// use terrace::{OwnedValue, Store};
///
/// let store = Store::options().anonymous().create()?;
/// store.put(b"name", b"Ada")?;
/// let name: OwnedValue = store.get(b"name")?.unwrap().into();
/// let thread = std::thread::spawn(move || name.len());
/// assert_eq!(thread.join().unwrap(), 3);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, PartialEq, Eq)]
pub struct OwnedValue {
    bytes: Box<[u8]>,
    expires_at: Option<u64>,
    token: Token,
}

impl OwnedValue {
    /// Unix milliseconds at which it expires, if it does.
    pub fn expires_at(&self) -> Option<u64> {
        self.expires_at
    }

    /// Its version.
    pub fn token(&self) -> Token {
        self.token
    }

    /// The bytes.
    pub fn into_bytes(self) -> Box<[u8]> {
        self.bytes
    }
}

impl From<Entry<'_>> for OwnedValue {
    fn from(entry: Entry<'_>) -> Self {
        Self { bytes: entry.value.into(), expires_at: entry.expires_at, token: entry.token }
    }
}

impl From<Value<'_>> for OwnedValue {
    fn from(value: Value<'_>) -> Self {
        value.entry().into()
    }
}

impl Deref for OwnedValue {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes
    }
}

impl AsRef<[u8]> for OwnedValue {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl<T: AsRef<[u8]> + ?Sized> PartialEq<&T> for OwnedValue {
    fn eq(&self, other: &&T) -> bool {
        **self == *other.as_ref()
    }
}

impl fmt::Debug for OwnedValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OwnedValue").field("bytes", &&**self).field("expires_at", &self.expires_at).finish()
    }
}
