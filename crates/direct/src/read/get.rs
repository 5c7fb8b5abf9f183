//! Reads of single keys.

use crate::batch::claim::Claims;
use crate::batch::descriptor::{Status, pending};
use crate::record::format::Role;
use crate::record::records::Records;
use crate::record::view::{Record, corrupt};
use std::sync::atomic::AtomicU64;
use terrace_engine::Bytes;
use terrace_engine::EntryCallback;
use terrace_engine::{Entry, ReadError, Token, Value};
use terrace_medium::MappedMedium;
use terrace_pool::{Guard, Pool};

/// Reads of a store. It owns the claims, on which it stands, and the count of what scans have
/// skipped. A read finds a word in the index, and then the record that counts there: claims tell
/// it only whether that is decided.
pub(crate) struct Reads<M: MappedMedium> {
    pub(crate) claims: Claims<M>,
    /// Damaged records that scans have skipped.
    pub(crate) skipped: AtomicU64,
}

impl<M: MappedMedium> Reads<M> {
    pub(crate) fn new(claims: Claims<M>) -> Self {
        Self { claims, skipped: AtomicU64::new(0) }
    }

    #[inline(always)]
    pub(crate) fn records(&self) -> &Records<M> {
        &self.claims.records
    }

    #[inline(always)]
    pub(crate) fn pool(&self) -> &Pool<M> {
        self.records().pool()
    }

    /// The record that a reader sees now where the index has this word; `None` if it has expired.
    #[inline(always)]
    pub(crate) fn live_record<'g>(
        &self,
        guard: &'g Guard<'_, M>,
        word: u64,
    ) -> Result<Option<Record<'g>>, ReadError> {
        self.live_record_unless(guard, word, |at| self.records().settings.clock.has_come(at))
    }

    /// As [`Reads::live_record`], where `has_come` decides whether a time has come. Calls it only
    /// for a record that expires.
    #[inline(always)]
    pub(crate) fn live_record_unless<'g>(
        &self,
        guard: &'g Guard<'_, M>,
        word: u64,
        has_come: impl FnOnce(u64) -> bool,
    ) -> Result<Option<Record<'g>>, ReadError> {
        match self.visible_record(guard, word)? {
            Some(record) if record.body.expires_at.is_some_and(has_come) => self.expired(&record),
            record => Ok(record),
        }
    }

    /// The record that counts where the index has this word, expired or not.
    #[inline(always)]
    pub(crate) fn visible_record<'g>(
        &self,
        guard: &'g Guard<'_, M>,
        word: u64,
    ) -> Result<Option<Record<'g>>, ReadError> {
        let record = Record::at(guard, word)?;
        if record.shape.role == Role::Single {
            Ok(Some(record))
        } else {
            self.committed_record(guard, record)
        }
    }

    /// Absence, for a record that has expired by its header; an error if its checksum does not
    /// match.
    #[cold]
    pub(crate) fn expired<'g>(&self, record: &Record<'_>) -> Result<Option<Record<'g>>, ReadError> {
        self.verify(record).map(|()| None)
    }

    /// The record that counts, if a batch wrote `record`. The key of a [`Role::Stray`] record has
    /// no entry.
    #[cold]
    pub(crate) fn committed_record<'g>(
        &self,
        guard: &'g Guard<'_, M>,
        record: Record<'g>,
    ) -> Result<Option<Record<'g>>, ReadError> {
        if record.shape.role == Role::Stray {
            return record.verify().map(|()| None);
        }
        let Some(pending) = pending(guard, &record)? else { return Ok(Some(record)) };
        let old = || pending.old.map(|old| Record::at(guard, old)).transpose();
        match (pending.status, record.shape.role) {
            (Status::Committed, Role::Put) => Ok(Some(record)),
            (Status::Committed, Role::Tombstone) => Ok(None),
            _ => old(),
        }
    }

    /// The value of a record that a reader sees, with its offset.
    #[inline(always)]
    pub(crate) fn value<'g>(
        &self,
        guard: &'g Guard<'_, M>,
        record: &Record<'g>,
    ) -> Result<(u64, &'g [u8]), ReadError> {
        self.verify(record)?;
        record.value(guard, self.records().settings.verify_reads)
    }

    /// Compares a record with its checksum, if reads do. Reads no value that lies in an extent.
    #[inline(always)]
    pub(crate) fn verify(&self, record: &Record<'_>) -> Result<(), ReadError> {
        if self.records().settings.verify_reads { record.verify() } else { Ok(()) }
    }

    #[inline(always)]
    pub(crate) fn entry<'g>(
        &self,
        guard: &'g Guard<'_, M>,
        record: &Record<'g>,
    ) -> Result<Entry<'g>, ReadError> {
        let (_, value) = self.value(guard, record)?;
        Ok(Entry { value, expires_at: record.body.expires_at, token: record.token() })
    }

    /// The word of `key`. An error if damage to a record or to the index may be why there is none.
    #[inline(always)]
    pub(crate) fn word(&self, guard: &Guard<'_, M>, key: &[u8]) -> Result<Option<u64>, ReadError> {
        self.records().index.get_sound(guard, key).map_err(|damage| corrupt(damage.offset, damage.what))
    }

    /// The record of `key` that a reader sees.
    #[inline(always)]
    pub(crate) fn find<'g>(
        &self,
        guard: &'g Guard<'_, M>,
        key: &[u8],
    ) -> Result<Option<Record<'g>>, ReadError> {
        match self.word(guard, key)? {
            None => Ok(None),
            Some(word) => self.present(guard, key, word),
        }
    }

    /// The record that a reader sees after a search for `key` that found `word`.
    #[inline(always)]
    fn present<'g>(
        &self,
        guard: &'g Guard<'_, M>,
        key: &[u8],
        word: u64,
    ) -> Result<Option<Record<'g>>, ReadError> {
        match self.live_record(guard, word)? {
            None => self.confirm_absence(guard, key, word),
            record => Ok(record),
        }
    }

    /// Looks again for a key whose record has expired: another one may have taken its place after
    /// the search and before the clock was read.
    #[cold]
    fn confirm_absence<'g>(
        &self,
        guard: &'g Guard<'_, M>,
        key: &[u8],
        mut word: u64,
    ) -> Result<Option<Record<'g>>, ReadError> {
        while let Some(newer) = self.word(guard, key)?.filter(|newer| *newer != word) {
            if let Some(record) = self.live_record(guard, newer)? {
                return Ok(Some(record));
            }
            word = newer;
        }
        Ok(None)
    }

    #[inline(always)]
    pub(crate) fn get_value(&self, key: &[u8]) -> Result<Option<Value<'_>>, ReadError> {
        let guard = self.pool().try_pin()?;
        let Some(record) = self.find(&guard, key)? else { return Ok(None) };
        let (at, value) = self.value(&guard, &record)?;
        self.record_use(&guard, &record);
        let (len, expires_at, token) = (value.len(), record.body.expires_at, record.token());
        Ok(guard.erase().hold(at, len).map(|bytes| Value { bytes: Bytes::Pinned(bytes), expires_at, token }))
    }

    pub(crate) fn get_each(&self, keys: &[&[u8]], each: &mut EntryCallback<'_>) {
        let guard = match self.pool().try_pin() {
            Ok(guard) => guard,
            Err(forked) => return (0..keys.len()).for_each(|nth| each(nth, Err(forked.into()))),
        };
        self.records().index.get_many(&guard, keys, &mut |nth, word| {
            each(nth, self.found(&guard, keys[nth], word).and_then(|record| self.entry_of(&guard, record)));
        });
    }

    /// The record that a reader sees after a search for `key` that found `word`.
    pub(crate) fn found<'g>(
        &self,
        guard: &'g Guard<'_, M>,
        key: &[u8],
        word: Option<u64>,
    ) -> Result<Option<Record<'g>>, ReadError> {
        match word {
            None => self.find(guard, key),
            Some(word) => self.present(guard, key, word),
        }
    }

    pub(crate) fn entry_of<'g>(
        &self,
        guard: &'g Guard<'_, M>,
        record: Option<Record<'g>>,
    ) -> Result<Option<Entry<'g>>, ReadError> {
        let Some(record) = record else { return Ok(None) };
        self.record_use(guard, &record);
        self.entry(guard, &record).map(Some)
    }

    /// The version of a key. Does not read its value, but compares the record's head with its
    /// checksum.
    pub(crate) fn find_token(&self, guard: &Guard<'_, M>, key: &[u8]) -> Result<Option<Token>, ReadError> {
        let word = self.word(guard, key)?;
        self.token_at(guard, word)
    }

    /// The version of a key for which the index has this word.
    pub(crate) fn token_at(
        &self,
        guard: &Guard<'_, M>,
        word: Option<u64>,
    ) -> Result<Option<Token>, ReadError> {
        let live = word.map_or(Ok(None), |word| self.live_record(guard, word))?;
        let Some(record) = live else { return Ok(None) };
        self.verify(&record)?;
        Ok(Some(record.token()))
    }
}
