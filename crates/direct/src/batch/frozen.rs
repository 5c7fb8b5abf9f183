//! Reads of several keys at one instant: if double reads find no such instant, writers are stopped.

use crate::batch::commit::Batches;
use crate::batch::plan::BatchStep;
use crate::read::snapshot::{VisibleRecord, visible};
use std::collections::BTreeMap;
use terrace_engine::EntryCallback;
use terrace_medium::MappedMedium;
use terrace_pool::{Backoff, Guard};

/// Double reads that are tried before writers are stopped.
const TRIES: usize = 16;

impl<M: MappedMedium> Batches<M> {
    /// Reads all keys as they were at one instant.
    pub(crate) fn snapshot_many(&self, keys: &[&[u8]], each: &mut EntryCallback<'_>) {
        let reads = self.reads();
        if keys.len() < 2 {
            return reads.get_each(keys, each);
        }
        // In a forked child, this returns the error for each key.
        let Ok(guard) = self.pool().try_pin() else { return reads.get_each(keys, each) };
        let mut tries = TRIES;
        let goes_on = || {
            tries -= 1;
            tries > 0
        };
        match reads.read_twice(&guard, keys, goes_on) {
            Some(seen) => reads.report(&guard, visible(seen), each),
            None => reads.report(&guard, self.snapshot_with_writers_stopped(&guard, keys), each),
        }
    }

    /// Reads the keys while their writers are stopped. If that takes more memory than there is, it
    /// retries double reads.
    pub(crate) fn snapshot_with_writers_stopped<'g>(
        &self,
        guard: &'g Guard<'_, M>,
        keys: &[&[u8]],
    ) -> Vec<VisibleRecord<'g>> {
        let (reads, records) = (self.reads(), self.records());
        let mut places: BTreeMap<&[u8], usize> = BTreeMap::new();
        let writable = keys.iter().filter(|key| records.check_write(key, 0).is_ok());
        places.extend(writable.map(|&key| (key, 0)));
        places.values_mut().enumerate().for_each(|(place, value)| *value = place);
        let steps: Vec<BatchStep<'_>> = places.keys().map(|key| BatchStep::keep(key)).collect();
        let (mut words, mut now) = (vec![None; steps.len()], 0);
        let record_word = |place: usize, word| {
            words[place] = word;
            // The time advances. The last call decides for all keys what has expired: no writer
            // runs then.
            now = records.settings.clock.now_ms();
        };
        if self.with_writers_stopped(guard, &steps, record_word).is_ok() {
            let word = |key: &&[u8]| places.get(*key).and_then(|&place| words[place]);
            let live = |key| {
                word(key).map_or(Ok(None), |word| reads.live_record_unless(guard, word, |at| at <= now))
            };
            return keys.iter().map(live).collect();
        }
        let mut backoff = Backoff::new();
        let rest = || {
            backoff.rest();
            true
        };
        let seen = reads.read_twice(guard, keys, rest).expect("it goes on until no key changes");
        visible(seen).collect()
    }
}
