//! Several writes as one.

use crate::{Change, Store, Transaction, WriteError};
use std::time::Duration;
use terrace_engine::Commit;

/// Writes that happen all at one instant or not at all: to every reader, and through a crash.
///
/// ```
/// use std::time::Duration;
/// use terrace::Store;
///
/// let store = Store::options().anonymous().create()?;
/// store.put(b"c", b"3")?;
/// let mut batch = store.batch();
/// batch.put(b"a", b"1").remove(b"b").expire(b"c", Duration::from_secs(60));
/// batch.commit()?;
/// assert_eq!(store.get(b"a")?.unwrap(), b"1");
/// assert!(store.get(b"c")?.unwrap().expires_at().is_some());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[must_use = "a batch does nothing before it is committed"]
pub struct Batch<'s> {
    store: &'s Store,
    steps: Vec<(Vec<u8>, Step)>,
}

enum Step {
    Put(Vec<u8>),
    PutExpiring(Vec<u8>, Duration),
    Remove,
    Expire(Duration),
}

impl<'s> Batch<'s> {
    pub(crate) fn new(store: &'s Store) -> Self {
        Self { store, steps: Vec::new() }
    }

    fn step(&mut self, key: &[u8], step: Step) -> &mut Self {
        self.steps.push((key.to_vec(), step));
        self
    }

    /// Gives `key` this value, without expiry.
    pub fn put(&mut self, key: &[u8], value: &[u8]) -> &mut Self {
        self.step(key, Step::Put(value.to_vec()))
    }

    /// Gives `key` this value, which expires so long after the commit.
    pub fn put_expiring(&mut self, key: &[u8], value: &[u8], after: Duration) -> &mut Self {
        self.step(key, Step::PutExpiring(value.to_vec(), after))
    }

    /// Removes `key` if it is there.
    pub fn remove(&mut self, key: &[u8]) -> &mut Self {
        self.step(key, Step::Remove)
    }

    /// Lets `key` expire so long after the commit, if it is there.
    pub fn expire(&mut self, key: &[u8], after: Duration) -> &mut Self {
        self.step(key, Step::Expire(after))
    }

    /// How many steps it has.
    pub fn len(&self) -> usize {
        self.steps.len()
    }

    /// Whether it has none.
    pub fn is_empty(&self) -> bool {
        self.steps.is_empty()
    }

    /// Does all of it, in the order in which it was said.
    ///
    /// # Errors
    /// Nothing has happened then.
    pub fn commit(self) -> Result<(), WriteError> {
        let now_ms = self.store.now_ms();
        loop {
            let mut transaction = Transaction::new(&**self.store.engine());
            self.steps.iter().try_for_each(|(key, step)| step.apply(key, &mut transaction, now_ms))?;
            if transaction.commit(&[])? == Commit::Done {
                return Ok(());
            }
        }
    }
}

impl Step {
    fn apply(&self, key: &[u8], transaction: &mut Transaction<'_>, now_ms: u64) -> Result<(), WriteError> {
        match self {
            Self::Put(value) => transaction.put(key, value),
            Self::PutExpiring(value, after) => {
                transaction.put_expiring(key, value, Some(later(now_ms, *after)))
            }
            Self::Remove => transaction.remove_unseen(key),
            Self::Expire(after) => {
                transaction.modify(key, |_| (Change::Expire(Some(later(now_ms, *after))), ()))
            }
        }
    }
}

/// `after` from `now_ms` on, in unix milliseconds.
pub(crate) fn later(now_ms: u64, after: Duration) -> u64 {
    now_ms.saturating_add(u64::try_from(after.as_millis()).unwrap_or(u64::MAX))
}
