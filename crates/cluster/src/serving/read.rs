//! Reads: unmerged writes, then the cache, then the memory.

use super::cache::Shortcut;
use super::gate::{Gate, View};
use super::key::{Copied, Key};
use super::remote::{self, Found};
use std::sync::atomic::Ordering::Relaxed;
use terrace_engine::{Clock, Entry, ManualClock, ReadError, Token, Value, Version};

/// What a key has: expired entries are there.
pub(super) struct Seen {
    pub(super) entry: Option<Copied>,
    /// The number of its last write, from before it was looked for.
    pub(super) stamp: u64,
}

impl Seen {
    fn token(&self) -> Token {
        self.stamp.into()
    }

    /// The entry, if it has not expired.
    pub(super) fn live(self, clock: &dyn Clock) -> Option<Value<'static>> {
        let token = self.token();
        let copied = self.entry.filter(|copied| !has_expired(copied, clock))?;
        Some(copied.into_value(token))
    }

    pub(super) fn version(&self, clock: &dyn Clock) -> Version {
        let found = self.entry.as_ref().map(|copied| (self.token(), has_expired(copied, clock)));
        Version::seen(self.stamp, found)
    }

    /// As an entry that a modification sees.
    pub(super) fn entry(&self, clock: &dyn Clock) -> Option<Entry<'_>> {
        let copied = self.entry.as_ref().filter(|copied| !has_expired(copied, clock))?;
        Some(Entry { value: copied.value(), expires_at: copied.expires_at, token: self.token() })
    }
}

pub(super) fn has_expired(copied: &Copied, clock: &dyn Clock) -> bool {
    copied.expires_at.is_some_and(|at| clock.has_come(at))
}

/// What reads. Below stands the gate; what a session has is reached by the view of an operation.
#[derive(Clone, Copy)]
pub(super) struct Reader<'n> {
    pub(super) gate: &'n Gate,
    pub(super) clock: &'n dyn Clock,
}

impl Reader<'_> {
    /// What a key has; to be confirmed before it is answered.
    pub(super) fn see(&self, view: &View<'_>, key: Key<'_>) -> Result<Seen, ReadError> {
        let stamp = self.gate.slots.stamp(key.hash, view.word(key.slot));
        if let Some(entry) = self.near(view, key) {
            return Ok(Seen { entry, stamp });
        }
        let known = view.session().cache.shortcut(key, view.word(key.slot).generation());
        let found = remote::look_up(view.session(), &[(key, known)]).pop().expect("one a key");
        self.keep(view, key, stamp, found?)
    }

    /// What a key has as far as this node knows.
    fn near(&self, view: &View<'_>, key: Key<'_>) -> Option<Option<Copied>> {
        let session = view.session();
        session
            .pending
            .get(key.hash, key.slot, key.bytes)
            .or_else(|| session.cache.value(key, view.word(key.slot).generation()).map(Some))
    }

    /// Puts what was found into the cache, unless it was written meanwhile.
    fn keep(&self, view: &View<'_>, key: Key<'_>, stamp: u64, found: Found) -> Result<Seen, ReadError> {
        let session = view.session();
        let generation = view.word(key.slot).generation();
        let Found { entry, shortcut } = found;
        if let Some(copied) = &entry {
            session.pending.with_table(key.hash, || {
                if self.gate.slots.stamp(key.hash, self.gate.slots.word(key.slot)) == stamp {
                    session.cache.keep(key, generation, copied.clone(), shortcut);
                }
            });
        }
        Ok(Seen { entry, stamp })
    }

    /// The entry of a key.
    pub(super) fn read(&self, key: &[u8]) -> Result<Option<Value<'static>>, ReadError> {
        let key = Key::new(key);
        let view = self.gate.begin(key.slot)?;
        let seen = self.see(&view, key)?;
        view.confirm()?;
        Ok(seen.live(self.clock))
    }

    pub(super) fn read_version(&self, key: &[u8]) -> Result<Version, ReadError> {
        let key = Key::new(key);
        let view = self.gate.begin(key.slot)?;
        let seen = self.see(&view, key)?;
        view.confirm()?;
        Ok(seen.version(self.clock))
    }

    /// The entries of several keys, each by itself; those that are not known here are looked up
    /// together.
    pub(super) fn read_many(&self, keys: &[&[u8]]) -> Vec<Result<Option<Value<'static>>, ReadError>> {
        let mut results: Vec<Result<Option<Value<'static>>, ReadError>> = Vec::with_capacity(keys.len());
        // One instant for all keys.
        let clock = &ManualClock::at(self.clock.now_ms());
        // The keys that are not known here, with their places.
        let mut far = Vec::new();
        for (nth, key) in keys.iter().enumerate() {
            let key = Key::new(key);
            let result = self.gate.begin(key.slot).and_then(|view| {
                let word = view.word(key.slot);
                let stamp = self.gate.slots.stamp(key.hash, word);
                let Some(entry) = self.near(&view, key) else {
                    far.push((nth, key, stamp, word));
                    return Ok(None);
                };
                view.confirm_slots()?;
                Ok(Seen { entry, stamp }.live(clock))
            });
            results.push(result);
        }
        // All of them were found before now.
        if let Err(error) = self.gate.confirm_lease() {
            results
                .iter_mut()
                .filter(|result| result.is_ok())
                .for_each(|result| *result = Err(error.clone()));
        }
        if !far.is_empty() {
            self.read_far(&far, &mut results, clock);
        }
        results
    }

    fn read_far(
        &self,
        far: &[(usize, Key<'_>, u64, super::slots::Word)],
        results: &mut [Result<Option<Value<'static>>, ReadError>],
        clock: &dyn Clock,
    ) {
        let session = match self.gate.any_session() {
            Ok(session) => session,
            Err(error) => return far.iter().for_each(|(nth, ..)| results[*nth] = Err(error.clone())),
        };
        let shortcut = |key: &Key<'_>, generation| session.cache.shortcut(*key, generation);
        let wanted: Vec<(Key<'_>, Option<Shortcut>)> =
            far.iter().map(|(_, key, _, word)| (*key, shortcut(key, word.generation()))).collect();
        let found = remote::look_up(&session, &wanted);
        for ((nth, key, stamp, word), found) in far.iter().zip(found) {
            results[*nth] = found.and_then(|found| {
                let view = self.gate.begin(key.slot)?;
                if view.word(key.slot) != *word || view.session().number != session.number {
                    return Err(ReadError::NotOwner { slot: key.slot });
                }
                let seen = self.keep(&view, *key, *stamp, found)?;
                view.confirm()?;
                Ok(seen.live(clock))
            });
        }
        session.counts.look_ups.fetch_add(far.len() as u64, Relaxed);
    }
}
