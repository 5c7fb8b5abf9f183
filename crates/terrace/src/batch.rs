//! Several writes at one instant.

use crate::clock::later;
use crate::{Change, Transaction, WriteError};
use std::time::Duration;
use terrace_engine::{Commit, Durably, Engine, Write, WriteKind};

/// Collects writes that happen all at one instant or not at all, for every reader and through a
/// crash.
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
    engine: &'s dyn Engine,
    /// How durable its writes are when it has been committed.
    how: Durably,
    /// Keys and values, in the order of the steps.
    bytes: Vec<u8>,
    steps: Vec<Step>,
}

/// A step. Its key and then its value follow those of the step before it.
struct Step {
    key_len: usize,
    value_len: usize,
    what: StepKind,
}

#[derive(Clone, Copy)]
enum StepKind {
    Put,
    PutExpiring(Duration),
    Remove,
    Expire(Duration),
}

impl<'s> Batch<'s> {
    pub(crate) fn new(engine: &'s dyn Engine, how: Durably) -> Self {
        Self { engine, how, bytes: Vec::new(), steps: Vec::new() }
    }

    fn step(&mut self, key: &[u8], value: &[u8], what: StepKind) -> &mut Self {
        self.bytes.extend_from_slice(key);
        self.bytes.extend_from_slice(value);
        self.steps.push(Step { key_len: key.len(), value_len: value.len(), what });
        self
    }

    /// Gives `key` this value, without expiry.
    pub fn put(&mut self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> &mut Self {
        let (key, value) = (key.as_ref(), value.as_ref());
        self.step(key, value, StepKind::Put)
    }

    /// Gives `key` this value, which expires `after` the commit.
    pub fn put_expiring(
        &mut self,
        key: impl AsRef<[u8]>,
        value: impl AsRef<[u8]>,
        after: Duration,
    ) -> &mut Self {
        let (key, value) = (key.as_ref(), value.as_ref());
        self.step(key, value, StepKind::PutExpiring(after))
    }

    /// Removes `key` if it is present.
    pub fn remove(&mut self, key: impl AsRef<[u8]>) -> &mut Self {
        let key = key.as_ref();
        self.step(key, &[], StepKind::Remove)
    }

    /// Makes `key` expire `after` the commit, if it is present.
    pub fn expire(&mut self, key: impl AsRef<[u8]>, after: Duration) -> &mut Self {
        let key = key.as_ref();
        self.step(key, &[], StepKind::Expire(after))
    }

    /// Number of steps.
    pub fn len(&self) -> usize {
        self.steps.len()
    }

    /// Whether the batch has no step.
    pub fn is_empty(&self) -> bool {
        self.steps.is_empty()
    }

    /// Makes all writes, in the order of the calls.
    ///
    /// # Errors
    /// The pool is full, a key or a value is too long, or the store cannot be written. Nothing has
    /// changed.
    pub fn commit(self) -> Result<(), WriteError> {
        let writes = self.writes();
        if self.steps.iter().any(|step| matches!(step.what, StepKind::Expire(_))) {
            return self.commit_over_reads(&writes);
        }
        let done = self.engine.commit(&writes, &[], self.how)?;
        assert_eq!(done, Commit::Done, "nothing was expected");
        Ok(())
    }

    fn writes(&self) -> Vec<Write<'_>> {
        let (mut rest, now_ms) = (&self.bytes[..], self.engine.now_ms());
        let mut next = |len| {
            let (bytes, behind) = rest.split_at(len);
            rest = behind;
            bytes
        };
        let write = |step: &Step| {
            let (key, value) = (next(step.key_len), next(step.value_len));
            let what = match step.what {
                StepKind::Put => WriteKind::Put { value, expires_at: None },
                StepKind::PutExpiring(after) => {
                    WriteKind::Put { value, expires_at: Some(later(now_ms, after)) }
                }
                StepKind::Expire(after) => WriteKind::Expire(Some(later(now_ms, after))),
                StepKind::Remove => WriteKind::Remove,
            };
            Write { key, what }
        };
        self.steps.iter().map(write).collect()
    }

    /// Reads the values whose expiry changes. Starts over if one of them changes before the commit.
    fn commit_over_reads(&self, writes: &[Write<'_>]) -> Result<(), WriteError> {
        loop {
            let mut transaction = Transaction::new(self.engine, self.how);
            for &Write { key, what } in writes {
                match what {
                    WriteKind::Put { value, expires_at } => {
                        transaction.put_expiring(key, value, expires_at)?
                    }
                    WriteKind::Expire(at) => transaction.modify(key, |_| (Change::Expire(at), ()))?,
                    WriteKind::Remove => transaction.remove_blind(key)?,
                }
            }
            if transaction.commit(&[])? == Commit::Done {
                return Ok(());
            }
        }
    }
}
