//! Reads of keys, in no order.

use super::Store;
use crate::{Count, Cursor, Entry, ReadError, Token, Value, Version};
use terrace_engine::EntryCallback;

impl Store {
    /// The entry of `key`, without a copy.
    ///
    /// ```
    /// let store = terrace::Store::options().anonymous().create()?;
    /// store.put(b"name", b"Ada")?;
    /// assert_eq!(store.get(b"name")?.unwrap(), b"Ada");
    /// assert!(store.get(b"age")?.is_none());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// The record does not match its checksum.
    #[inline]
    pub fn get(&self, key: impl AsRef<[u8]>) -> Result<Option<Value<'_>>, ReadError> {
        let key = key.as_ref();
        self.inner.engine.get(key)
    }

    /// Reads the entries of `keys`; their cache misses overlap, so this is much faster than single
    /// reads. Calls `each` once per key, in order, with its position. A write may happen between
    /// two of the reads; [`Store::snapshot_many`] excludes that.
    ///
    /// ```
    /// let store = terrace::Store::options().anonymous().create()?;
    /// store.put(b"a", b"1")?;
    /// let mut found = Vec::new();
    /// store.get_many(&[b"a", b"b"], &mut |nth, entry| {
    ///     found.push((nth, entry.unwrap().map(|entry| entry.value.to_vec())));
    /// });
    /// assert_eq!(found, [(0, Some(b"1".to_vec())), (1, None)]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn get_many(&self, keys: &[&[u8]], each: &mut EntryCallback<'_>) {
        self.inner.engine.get_many(keys, each);
    }

    /// Reads the entries of `keys`, all as they were at one instant. Calls `each` once per key, in
    /// order.
    pub fn snapshot_many(&self, keys: &[&[u8]], each: &mut EntryCallback<'_>) {
        self.inner.engine.snapshot_many(keys, each);
    }

    /// Whether `key` is present.
    pub fn contains(&self, key: impl AsRef<[u8]>) -> Result<bool, ReadError> {
        let key = key.as_ref();
        Ok(self.token(key)?.is_some())
    }

    /// The version of `key`'s entry, to detect later changes; `None` if it is absent.
    pub fn token(&self, key: impl AsRef<[u8]>) -> Result<Option<Token>, ReadError> {
        let key = key.as_ref();
        self.inner.engine.token(key)
    }

    /// The present state of `key`, for [`Store::transaction_if`] to detect later changes. An absent
    /// key that was added and removed again has changed, too. Rarely, an absent key counts as
    /// changed because another key was removed meanwhile. A version is valid for this store while
    /// it is open.
    ///
    /// ```
    /// let store = terrace::Store::options().anonymous().create()?;
    /// let before = store.version(b"lock")?;
    /// assert!(store.version(b"lock")?.meets(&before));
    /// store.put(b"lock", b"mine")?;
    /// store.remove(b"lock")?;
    /// assert!(!store.version(b"lock")?.meets(&before));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn version(&self, key: impl AsRef<[u8]>) -> Result<Version, ReadError> {
        let key = key.as_ref();
        self.inner.engine.version(key)
    }

    /// Visits entries from `cursor` on, at least about `at_least` of them, and returns where to
    /// continue.
    ///
    /// A full scan, from the start to the end, visits every key that is present throughout, also
    /// while the store grows. It may or may not visit a key that is added, removed or changed
    /// meanwhile, and rarely visits a key twice. A cursor stays valid after the store was closed
    /// and opened again; a cursor of a store with another sort of index is
    /// [`ReadError::InvalidCursor`].
    ///
    /// A damaged record does not stop a scan: it fails with [`ReadError::Skipped`] at its end,
    /// which holds the number of skipped records and the cursor to continue with.
    ///
    /// ```
    /// let store = terrace::Store::options().anonymous().create()?;
    /// store.put(b"a", b"1")?;
    /// let (mut cursor, mut keys) = (terrace::Cursor::START, Vec::new());
    /// while !cursor.is_end() {
    ///     cursor = store.scan(&cursor, 100, &mut |key, _| keys.push(key.to_vec()))?;
    /// }
    /// assert_eq!(keys, [b"a"]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn scan(
        &self,
        cursor: &Cursor,
        at_least: usize,
        each: &mut dyn FnMut(&[u8], Entry<'_>),
    ) -> Result<Cursor, ReadError> {
        self.inner.engine.scan(cursor, at_least, each)
    }

    /// A random key; `None` if the store is empty.
    pub fn random_key(&self) -> Result<Option<Vec<u8>>, ReadError> {
        self.inner.engine.random_key()
    }

    /// Number of keys, including those that have expired but were not removed yet.
    pub fn len(&self) -> u64 {
        self.count().get()
    }

    /// Whether there is no key.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Number of keys, including expired ones that were not removed yet, and whether it is exact.
    pub fn count(&self) -> Count {
        self.inner.engine.len()
    }

    /// As [`Store::count`]. A node of a cluster fails if it cannot ask the memory node now, where
    /// `count` gives the last number.
    ///
    /// # Errors
    /// If the store cannot tell now.
    pub fn try_count(&self) -> Result<Count, ReadError> {
        self.inner.engine.count_keys()
    }
}
