//! Changes of one key's entry that depend on the present one.

use super::Store;
use crate::clock::later;
use crate::transaction::appended;
use crate::{Change, Entry, IncrementError, WriteError};
use std::time::Duration;

impl Store {
    /// Changes `key`'s entry to what `change` returns for the present one (`None` if absent).
    /// Returns the second value that `change` returned. No lock is held: if another writer was
    /// faster, `change` runs again, and its last answer counts.
    ///
    /// ```
    /// use terrace::{Change, Store};
    ///
    /// let store = Store::options().anonymous().create()?;
    /// let length = store.modify(b"log", |entry| {
    ///     let mut value = entry.map_or(Vec::new(), |entry| entry.value.to_vec());
    ///     value.extend(b"line\n");
    ///     let length = value.len();
    ///     (Change::Put { value, expires_at: None }, length)
    /// })?;
    /// assert_eq!(length, 5);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn modify<R>(
        &self,
        key: impl AsRef<[u8]>,
        mut change: impl FnMut(Option<Entry<'_>>) -> (Change, R),
    ) -> Result<R, WriteError> {
        let key = key.as_ref();
        let mut last = None;
        let mut step = |entry: Option<Entry<'_>>| {
            let (change, result) = change(entry);
            last = Some(result);
            change
        };
        self.inner.engine.modify(key, &mut step, self.how)?;
        Ok(last.expect("the engine has called `change`"))
    }

    /// Appends to the value of `key`, or creates it, unless it would have more than `longest`
    /// bytes. Returns how long it then is.
    pub fn append(
        &self,
        key: impl AsRef<[u8]>,
        tail: impl AsRef<[u8]>,
        longest: usize,
    ) -> Result<Option<usize>, WriteError> {
        self.modify(key, |entry| appended(entry, tail.as_ref(), longest))
    }

    /// Makes `key` expire `after` this time. Returns whether it was present.
    pub fn expire(&self, key: impl AsRef<[u8]>, after: Duration) -> Result<bool, WriteError> {
        let key = key.as_ref();
        let at = Some(later(self.inner.engine.now_ms(), after));
        self.modify(key, |entry| (Change::Expire(at), entry.is_some()))
    }

    /// Gives `key` the value `new` if it has the value `expected` (`None`: if it is absent).
    /// Returns whether it did. The entry's expiry stays.
    ///
    /// ```
    /// let store = terrace::Store::options().anonymous().create()?;
    /// assert!(store.compare_and_swap(b"leader", None, b"me")?);
    /// assert!(!store.compare_and_swap(b"leader", Some(b"you"), b"me")?);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn compare_and_swap(
        &self,
        key: impl AsRef<[u8]>,
        expected: Option<&[u8]>,
        new: impl AsRef<[u8]>,
    ) -> Result<bool, WriteError> {
        let (key, new) = (key.as_ref(), new.as_ref());
        self.modify(key, |entry| match entry {
            entry if entry.map(|entry| entry.value) != expected => (Change::Keep, false),
            entry => {
                let expires_at = entry.and_then(|entry| entry.expires_at);
                (Change::Put { value: new.to_vec(), expires_at }, true)
            }
        })
    }

    /// Adds `by` to the decimal integer at `key` (0 if it is absent) and returns the sum. The
    /// entry's expiry stays.
    ///
    /// ```
    /// let store = terrace::Store::options().anonymous().create()?;
    /// assert_eq!(store.increment(b"hits", 2)?, 2);
    /// assert_eq!(store.increment(b"hits", -3)?, -1);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn increment(&self, key: impl AsRef<[u8]>, by: i64) -> Result<i64, IncrementError> {
        let key = key.as_ref();
        self.modify(key, |entry| {
            let Some(old) = entry.map_or(Some(0), |entry| integer(entry.value)) else {
                return (Change::Keep, Err(IncrementError::NotAnInteger));
            };
            let Some(sum) = old.checked_add(by) else {
                return (Change::Keep, Err(IncrementError::Overflow));
            };
            let expires_at = entry.and_then(|entry| entry.expires_at);
            (Change::Put { value: sum.to_string().into_bytes(), expires_at }, Ok(sum))
        })?
    }
}

/// Parses a decimal integer, in the canonical form only.
fn integer(text: &[u8]) -> Option<i64> {
    let text = std::str::from_utf8(text).ok()?;
    let number: i64 = text.parse().ok()?;
    (number.to_string() == text).then_some(number)
}
