//! Recording of uses by reads, and the use that a new record gets. See `record::uses`.

use crate::read::get::Reads;
use crate::record::format::{Shape, UseIn};
use crate::record::uses::{Recorded, are_unrecorded};
use crate::record::view::Record;
use std::sync::atomic::Ordering::Relaxed;
use terrace_engine::{KeyUse, ReadError};
use terrace_index::Swapped;
use terrace_medium::MappedMedium;
use terrace_pool::{Guard, PoolFull};

impl<M: MappedMedium> Reads<M> {
    /// Records the use of a record that a reader has found.
    #[inline(always)]
    pub(crate) fn record_use(&self, guard: &Guard<'_, M>, record: &Record<'_>) {
        if self.records().uses.recorded() != Recorded::Nothing {
            self.record_use_now(guard, record);
        }
    }

    #[inline(never)]
    fn record_use_now(&self, guard: &Guard<'_, M>, record: &Record<'_>) {
        if are_unrecorded() {
            return;
        }
        let used = record.used(guard);
        let before = used.unwrap_or_else(|| self.records().uses.before());
        let now = self.records().uses.after(Some(before), self.records().settings.clock.coarse_ms());
        if used.is_none() {
            self.give_use(guard, record, now);
        } else if now != before {
            record.set_used(guard, now);
        }
    }

    /// Gives a record from before the policy a use, in place if word 0 has room for one. If not, a
    /// copy with a word more replaces it, the same version of its key; if the pool is full, the
    /// next read tries again.
    #[cold]
    fn give_use(&self, guard: &Guard<'_, M>, record: &Record<'_>, used: u32) {
        let shape = record.shape;
        if record.verify().is_err() {
            return;
        }
        match Shape::place_of_use(shape.role, shape.key_len, shape.value_len) {
            UseIn::Nothing => {}
            use_in @ UseIn::Shape => {
                if let Some(word) = record.first_word(guard) {
                    let given = Shape { use_in, ..shape }.encode_with(used);
                    // ORDER: Relaxed: both words describe the same record, and only readers store
                    // them.
                    word.store(guard.pool().medium(), given, Relaxed);
                }
            }
            UseIn::Word => _ = self.move_with_use(guard, record, used),
        }
    }

    /// The use of a new record of a key for which the index has this word. Needs no line that the
    /// change does not need: it frees the record there.
    #[inline(always)]
    pub(crate) fn use_of_new(&self, guard: &Guard<'_, M>, seen: Option<u64>) -> Option<u32> {
        match self.records().uses.recorded() {
            Recorded::Nothing => None,
            Recorded::Time => Some(self.records().uses.first(self.records().settings.clock.coarse_ms())),
            Recorded::Frequency => {
                let used = seen.and_then(|word| Record::at(guard, word).ok()?.used(guard));
                let now_ms = self.records().settings.clock.coarse_ms();
                Some(used.map_or_else(
                    || self.records().uses.first(now_ms),
                    |used| self.records().uses.after(Some(used), now_ms),
                ))
            }
        }
    }

    /// As [`Reads::use_of_new`], for a key that was not looked up.
    pub(crate) fn use_of_new_key(&self, guard: &Guard<'_, M>, key: &[u8]) -> Option<u32> {
        match self.records().uses.recorded() {
            Recorded::Frequency => self.use_of_new(guard, self.records().index.get(guard, key)),
            _ => self.use_of_new(guard, None),
        }
    }

    /// Replaces a sound record by a copy that has a word for its use.
    fn move_with_use(&self, guard: &Guard<'_, M>, record: &Record<'_>, used: u32) -> Result<(), PoolFull> {
        if self.records().check_writable().is_err() || !self.claims.may_move(guard, record) {
            return Ok(());
        }
        guard.reserve_retirements(1)?;
        let shape = Shape { use_in: UseIn::Word, ..record.shape };
        let copy = guard.alloc(shape.size())?;
        let ([_, seal], body) = record.parts();
        copy.write(0, &shape.encode().to_le_bytes());
        copy.write(8, &seal.to_le_bytes());
        if record.batch_word().is_some() {
            // Its batch is finalized.
            copy.write(16, &[0; 8]);
        }
        let place = shape.use_word_at().expect("its use lies in a word");
        copy.write(place, &u64::from(used).to_le_bytes());
        copy.write(shape.body_at(), body);
        // PERSIST: the copy before the index's word.
        copy.write_back();
        self.pool().region().fence();
        let (key, new) = (record.body.key, copy.fenced_later().into_offset());
        match self.records().index.compare_and_swap(guard, key, Some(record.offset), Some(new)) {
            Ok(Swapped::Done) => guard.retire(record.offset, record.shape.size()),
            _ => guard.free(new, shape.size()),
        }
        Ok(())
    }

    /// When or how often `key` was used. `None` if it has no entry.
    pub(crate) fn key_use(&self, key: &[u8]) -> Result<Option<KeyUse>, ReadError> {
        let guard = self.pool().try_pin()?;
        let Some(record) = self.find(&guard, key)? else { return Ok(None) };
        let uses = &self.records().uses;
        let used = record.used(&guard).unwrap_or(uses.before());
        Ok(Some(uses.describe(used, self.records().settings.clock.coarse_ms())))
    }

    /// Sets when or how often `key` was used, if reads record that.
    pub(crate) fn set_key_use(&self, key: &[u8], of: &KeyUse) -> Result<(), ReadError> {
        let guard = self.pool().try_pin()?;
        let now_ms = self.records().settings.clock.coarse_ms();
        let Some(used) = self.records().uses.encode(of, now_ms) else { return Ok(()) };
        match self.find(&guard, key)? {
            Some(record) if record.used(&guard).is_none() => self.give_use(&guard, &record, used),
            Some(record) => record.set_used(&guard, used),
            None => {}
        }
        Ok(())
    }
}
