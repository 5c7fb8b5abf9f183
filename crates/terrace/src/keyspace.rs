//! The common interface of a store and a transaction.

use crate::{Change, Entry, ReadError, Store, Transaction, Value, WriteError};

/// Keys that can be read and changed: the [`Store`] itself, or a [`Transaction`] on it. Code over
/// this trait behaves the same on both.
///
/// ```
/// use terrace::{Change, Keyspace, Store, WriteError};
///
/// fn swap(keys: &mut impl Keyspace, a: &[u8], b: &[u8]) -> Result<(), WriteError> {
///     let first = keys.get(a)?.map(|value| value.to_vec()).unwrap_or_default();
///     let second = keys.get(b)?.map(|value| value.to_vec()).unwrap_or_default();
///     keys.put(a, &second)?;
///     keys.put(b, &first)
/// }
///
/// let store = Store::options().anonymous().create()?;
/// store.put(b"a", b"1")?;
/// store.put(b"b", b"2")?;
/// store.transaction(|transaction| swap(transaction, b"a", b"b"))?;
/// assert_eq!(store.get(b"a")?.unwrap(), b"2");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub trait Keyspace {
    /// The entry of `key`.
    fn get(&mut self, key: &[u8]) -> Result<Option<Value<'_>>, ReadError>;

    /// Changes a key's entry to what `change` returns for the present one. May call `change` more
    /// than once; its last answer counts.
    fn modify<R>(
        &mut self,
        key: &[u8],
        change: impl FnMut(Option<Entry<'_>>) -> (Change, R),
    ) -> Result<R, WriteError>;

    /// Gives `key` this value, without expiry.
    fn put(&mut self, key: &[u8], value: &[u8]) -> Result<(), WriteError>;

    /// Removes `key` and returns whether it was present.
    fn remove(&mut self, key: &[u8]) -> Result<bool, WriteError>;

    /// Removes every key.
    fn clear(&mut self) -> Result<(), WriteError>;

    /// Number of keys.
    fn len(&mut self) -> u64;

    /// Whether there is no key.
    fn is_empty(&mut self) -> bool {
        self.len() == 0
    }
}

impl Keyspace for Store {
    fn get(&mut self, key: &[u8]) -> Result<Option<Value<'_>>, ReadError> {
        Store::get(self, key)
    }
    fn modify<R>(
        &mut self,
        key: &[u8],
        change: impl FnMut(Option<Entry<'_>>) -> (Change, R),
    ) -> Result<R, WriteError> {
        Store::modify(self, key, change)
    }
    fn put(&mut self, key: &[u8], value: &[u8]) -> Result<(), WriteError> {
        Store::put(self, key, value)
    }
    fn remove(&mut self, key: &[u8]) -> Result<bool, WriteError> {
        Store::remove(self, key)
    }
    fn clear(&mut self) -> Result<(), WriteError> {
        Store::clear(self)
    }
    fn len(&mut self) -> u64 {
        Store::len(self)
    }
}

impl Keyspace for Transaction<'_> {
    fn get(&mut self, key: &[u8]) -> Result<Option<Value<'_>>, ReadError> {
        Transaction::get(self, key)
    }
    fn modify<R>(
        &mut self,
        key: &[u8],
        change: impl FnMut(Option<Entry<'_>>) -> (Change, R),
    ) -> Result<R, WriteError> {
        Transaction::modify(self, key, change)
    }
    fn put(&mut self, key: &[u8], value: &[u8]) -> Result<(), WriteError> {
        Transaction::put(self, key, value)
    }
    fn remove(&mut self, key: &[u8]) -> Result<bool, WriteError> {
        Transaction::remove(self, key)
    }
    fn clear(&mut self) -> Result<(), WriteError> {
        Transaction::clear(self)
    }
    fn len(&mut self) -> u64 {
        Transaction::len(self)
    }
}
