//! Several keys as they were at one instant.

use super::plan::Step;
use super::store::{Direct, Kind};
use super::view::Record;
use crate::ReadError;
use crate::engine::Each;
use std::collections::BTreeMap;
use terrace_index::PointIndex;
use terrace_pool::{Backoff, Guard};

/// Double reads that are tried before writers are kept out.
const TRIES: usize = 16;

/// What a reader sees of a key, and how often keys of its stripe had been removed before.
struct Seen<'g> {
    record: Result<Option<Record<'g>>, ReadError>,
    removals: u64,
}

impl<I: PointIndex<Kind = Kind>> Direct<I> {
    /// Reads all keys twice. If no key had another version the second time, all of them were so between the two: a version that has gone never
    /// comes back, and what was absent both times was so in between if nothing of its stripe was removed.
    pub(super) fn snapshot(&self, keys: &[&[u8]], each: &mut Each<'_>) {
        if keys.len() < 2 {
            return self.get_each(keys, each);
        }
        // In the child of a fork, that says so.
        let Ok(guard) = self.pool().try_pin() else { return self.get_each(keys, each) };
        let mut first = self.see(&guard, keys);
        for _ in 0..TRIES {
            let second = self.see(&guard, keys);
            if same(&first, &second) {
                return self.show(&guard, second, each);
            }
            first = second;
        }
        let seen = self.see_frozen(&guard, keys);
        self.show(&guard, seen, each);
    }

    fn see<'g>(&self, guard: &'g Guard<'_, I::Medium>, keys: &[&[u8]]) -> Vec<Seen<'g>> {
        let counted = |key: &&[u8]| Seen { record: Ok(None), removals: self.removals(key) };
        let mut seen: Vec<Seen<'g>> = keys.iter().map(counted).collect();
        self.index.get_many(guard, keys.iter().copied(), |nth, word| {
            seen[nth].record = self.found(guard, keys[nth], word);
        });
        seen
    }

    /// Keeps writers out of the keys while it looks. Where that takes more memory than there is, it goes on trying.
    fn see_frozen<'g>(&self, guard: &'g Guard<'_, I::Medium>, keys: &[&[u8]]) -> Vec<Seen<'g>> {
        let mut places: BTreeMap<&[u8], usize> = BTreeMap::new();
        let writable = keys.iter().filter(|key| self.may_write(key, 0).is_ok());
        places.extend(writable.map(|&key| (key, 0)));
        places.values_mut().enumerate().for_each(|(place, value)| *value = place);
        let steps: Vec<Step<'_>> = places.keys().map(|key| Step::keep(key)).collect();
        let mut words = vec![None; steps.len()];
        if self.freeze(guard, &steps, |place, word| words[place] = word).is_ok() {
            let word = |key: &&[u8]| places.get(*key).and_then(|&place| words[place]);
            let live = |key| word(key).map_or(Ok(None), |word| self.live(guard, word));
            return keys.iter().map(|key| Seen { record: live(key), removals: 0 }).collect();
        }
        let (mut first, mut backoff) = (self.see(guard, keys), Backoff::new());
        loop {
            let second = self.see(guard, keys);
            if same(&first, &second) {
                return second;
            }
            backoff.rest();
            first = second;
        }
    }

    fn show<'g>(&self, guard: &'g Guard<'_, I::Medium>, seen: Vec<Seen<'g>>, each: &mut Each<'_>) {
        for (nth, seen) in seen.into_iter().enumerate() {
            let entry =
                |record: Option<Record<'g>>| record.map(|record| self.entry(guard, &record)).transpose();
            each(nth, seen.record.and_then(entry));
        }
    }
}

/// Whether both show the same versions.
fn same(first: &[Seen<'_>], second: &[Seen<'_>]) -> bool {
    let version = |seen: &Seen<'_>| {
        let token = seen.record.clone().map(|record| record.map(|record| record.token()));
        let removals = if token == Ok(None) { seen.removals } else { 0 };
        (token, removals)
    };
    first.iter().zip(second).all(|(first, second)| version(first) == version(second))
}
