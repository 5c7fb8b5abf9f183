//! Changes of several keys at one instant.

use super::Store;
use crate::{Batch, Transaction, Version, WriteError};
use terrace_engine::Commit;
use terrace_pool::Backoff;

impl Store {
    /// A batch, to collect writes that happen all at one instant or not at all.
    pub fn batch(&self) -> Batch<'_> {
        Batch::new(&*self.inner.engine, self.how)
    }

    /// Runs `body`, then makes all its writes at one instant, for every reader and through a crash.
    /// At that instant everything that it read is unchanged, absent keys too: transactions are
    /// serializable. If something that it read has changed, it runs again.
    ///
    /// If `body` returns an error, or has called [`Transaction::abort`], none of its writes
    /// happens. It still runs again if its reads were not all true at one instant, so an error
    /// never comes from a mixture of two states of the store.
    ///
    /// ```
    /// use std::error::Error;
    ///
    /// let store = terrace::Store::options().anonymous().create()?;
    /// store.put(b"from", b"10")?;
    /// let take = |amount: u32| {
    ///     store.transaction(|transaction| -> Result<u32, Box<dyn Error>> {
    ///         transaction.put(b"to", amount.to_string().as_bytes())?;
    ///         let has: u32 = match transaction.get(b"from")? {
    ///             Some(value) => std::str::from_utf8(&value)?.parse()?,
    ///             None => 0,
    ///         };
    ///         let left = has.checked_sub(amount).ok_or("there is too little")?;
    ///         transaction.put(b"from", left.to_string().as_bytes())?;
    ///         Ok(left)
    ///     })
    /// };
    /// // An error rolls back what the closure has written before it.
    /// assert_eq!(take(11).unwrap_err().to_string(), "there is too little");
    /// assert!(!store.contains(b"to")?);
    /// assert_eq!(take(4)?, 6);
    /// assert_eq!(store.get(b"from")?.unwrap(), b"6");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// The error of `body`, or the reason why the store could not be written. Nothing has changed.
    pub fn transaction<R, E: From<WriteError>>(
        &self,
        body: impl FnMut(&mut Transaction<'_>) -> Result<R, E>,
    ) -> Result<R, E> {
        Ok(self.transaction_if(&[], body)?.expect("a transaction that watches no key runs until it commits"))
    }

    /// As [`Store::transaction`], but returns `None` and does nothing if one of the `watched` keys
    /// has changed since its [`Store::version`] was read.
    ///
    /// ```
    /// use terrace::{Store, Transaction, WriteError};
    ///
    /// let store = Store::options().anonymous().create()?;
    /// let watched = [(b"lock".to_vec(), store.version(b"lock")?)];
    /// let take = |transaction: &mut Transaction<'_>| transaction.put(b"lock", b"mine");
    /// assert_eq!(store.transaction_if(&watched, take), Ok(Some(())));
    /// assert_eq!(store.transaction_if(&watched, take), Ok(None));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// As [`Store::transaction`]. In that case, the watched keys have not changed either.
    pub fn transaction_if<R, E: From<WriteError>>(
        &self,
        watched: &[(Vec<u8>, Version)],
        mut body: impl FnMut(&mut Transaction<'_>) -> Result<R, E>,
    ) -> Result<Option<R>, E> {
        for (key, version) in watched {
            if !self.version(key).map_err(WriteError::from)?.meets(version) {
                return Ok(None);
            }
        }
        let mut backoff = Backoff::new();
        loop {
            let mut transaction = Transaction::new(&*self.inner.engine, self.how);
            let result = body(&mut transaction);
            match transaction.end(watched, result.is_err()) {
                Ok(Commit::Done) => {
                    transaction.give_uses();
                    return result.map(Some);
                }
                Ok(Commit::Changed(nth)) if nth < watched.len() => return Ok(None),
                Ok(Commit::Changed(_)) => _ = backoff.spin(),
                Err(error) => return Err(result.err().unwrap_or_else(|| error.into())),
            }
        }
    }
}
