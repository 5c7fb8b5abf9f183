//! Writes of keys: each for itself, or several at one instant.

use super::Store;
use crate::clock::later;
use crate::{Put, PutOptions, Version, WriteError};
use std::time::Duration;
use terrace_engine::{Commit, Write, WriteKind};

impl Store {
    /// Gives `key` this value, without expiry.
    ///
    /// # Errors
    /// The key or the value is too long, the pool is full, or the store cannot be written. The key
    /// is unchanged.
    pub fn put(&self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Result<(), WriteError> {
        let (key, value) = (key.as_ref(), value.as_ref());
        self.inner.engine.put(Put { key, value, expires_at: None }, self.how)
    }

    /// Gives `key` this value, which expires `after` this time.
    ///
    /// ```
    /// let store = terrace::Store::options().anonymous().create()?;
    /// store.put_expiring(b"session", b"42", std::time::Duration::from_secs(60))?;
    /// assert!(store.get(b"session")?.unwrap().expires_at().is_some());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn put_expiring(
        &self,
        key: impl AsRef<[u8]>,
        value: impl AsRef<[u8]>,
        after: Duration,
    ) -> Result<(), WriteError> {
        let (key, value) = (key.as_ref(), value.as_ref());
        self.inner
            .engine
            .put(Put { key, value, expires_at: Some(later(self.inner.engine.now_ms(), after)) }, self.how)
    }

    /// Gives `key` this value, with the expiry and durability of `options`.
    ///
    /// ```
    /// use terrace::{PutOptions, Store};
    ///
    /// let store = Store::options().anonymous().create()?;
    /// let hour = std::time::Duration::from_secs(3600);
    /// store.put_with("session", "42", PutOptions::new().expires_after(hour))?;
    /// assert!(store.get("session")?.unwrap().expires_at().is_some());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn put_with(
        &self,
        key: impl AsRef<[u8]>,
        value: impl AsRef<[u8]>,
        options: PutOptions,
    ) -> Result<(), WriteError> {
        let expires_at = options.expires_ms(|| self.inner.engine.now_ms());
        let put = Put { key: key.as_ref(), value: value.as_ref(), expires_at };
        self.inner.engine.put(put, options.how(self.how))
    }

    /// Makes several puts, each atomic by itself; they share the cost of making them durable.
    /// Returns a result for each, in order.
    ///
    /// ```
    /// use terrace::{Put, Store};
    ///
    /// let store = Store::options().anonymous().create()?;
    /// let put = |key, value| Put { key, value, expires_at: None };
    /// assert_eq!(store.put_many(&[put(b"a", b"1"), put(b"b", b"2")]), [Ok(()), Ok(())]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn put_many(&self, puts: &[Put<'_>]) -> Vec<Result<(), WriteError>> {
        self.inner.engine.put_many(puts, self.how)
    }

    /// Makes all of `puts` at one instant, for every reader and through a crash, or none of them.
    /// If several puts have the same key, the last one counts.
    ///
    /// # Errors
    /// As [`Store::put`]; nothing has changed.
    pub fn put_all(&self, puts: &[Put<'_>]) -> Result<(), WriteError> {
        self.inner.engine.commit(&writes(puts), &[], self.how).map(drop)
    }

    /// As [`Store::put_all`], but only if all of the keys are absent. Returns whether it wrote.
    ///
    /// ```
    /// use terrace::{Put, Store};
    ///
    /// let store = Store::options().anonymous().create()?;
    /// let put = |key, value| Put { key, value, expires_at: None };
    /// assert!(store.put_all_new(&[put(b"a", b"1"), put(b"b", b"2")])?);
    /// assert!(!store.put_all_new(&[put(b"b", b"3"), put(b"c", b"4")])?);
    /// assert_eq!(store.len(), 2);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn put_all_new(&self, puts: &[Put<'_>]) -> Result<bool, WriteError> {
        let absent: Vec<_> = puts.iter().map(|put| (put.key, Version::from(None))).collect();
        Ok(self.inner.engine.commit(&writes(puts), &absent, self.how)? == Commit::Done)
    }

    /// Removes `key` and returns whether it was present. Takes no memory, so it also works when the
    /// pool is full.
    pub fn remove(&self, key: impl AsRef<[u8]>) -> Result<bool, WriteError> {
        let key = key.as_ref();
        self.inner.engine.remove(key, self.how)
    }

    /// Removes `key` without reporting whether it was present. On an engine whose data lies on disk
    /// this reads nothing.
    pub fn delete(&self, key: impl AsRef<[u8]>) -> Result<(), WriteError> {
        self.inner.engine.delete(key.as_ref(), self.how)
    }

    /// Removes `keys` at one instant, for every reader and through a crash, and returns how many
    /// were present. Unlike [`Store::remove`] it takes memory while it runs: in a full pool, remove
    /// them one by one.
    ///
    /// ```
    /// let store = terrace::Store::options().anonymous().create()?;
    /// store.put(b"a", b"1")?;
    /// assert_eq!(store.remove_all(&[b"a", b"b"])?, 1);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn remove_all(&self, keys: &[&[u8]]) -> Result<u64, WriteError> {
        self.inner.engine.remove_all(keys, self.how)
    }

    /// Removes every key that is present now. A key written meanwhile may stay or go.
    pub fn clear(&self) -> Result<(), WriteError> {
        self.inner.engine.clear(self.how)
    }
}

fn writes<'a>(puts: &[Put<'a>]) -> Vec<Write<'a>> {
    let what = |put: &Put<'a>| WriteKind::Put { value: put.value, expires_at: put.expires_at };
    puts.iter().map(|put| Write { key: put.key, what: what(put) }).collect()
}
