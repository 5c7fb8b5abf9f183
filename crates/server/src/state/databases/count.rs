//! Counts of the keys in each database.
//!
//! A store counts its keys, not those of a database. Where one database alone has keys, that is the
//! answer. Otherwise all keys are visited. A large store is visited again only after twenty times
//! as long as the visit took, so that polling costs a twentieth of a core at most.

use std::sync::{Mutex, PoisonError};

use terrace::{Cursor, ReadError, Store};

use super::{DATABASES, Place};
use crate::state::clock::precise_ns;

/// Keys of a database.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Count {
    /// All that have not expired.
    pub(crate) keys: u64,
    /// Those with an expiry.
    pub(crate) expiring: u64,
}

/// Number of keys up to which counts are exact.
const EXACT_MAX: u64 = 1 << 16;

/// Keys per call of the store.
const STEP: usize = 1024;

/// Times the duration of a visit before the next one.
const REST: u64 = 20;

type All = [Count; DATABASES as usize];

/// The last counts.
#[derive(Debug, Default)]
pub(crate) struct Counts(Mutex<Option<Last>>);

#[derive(Debug)]
struct Last {
    all: All,
    valid_until_ns: u64,
}

impl Counts {
    /// The counts of each place in a store. Threads that ask at once wait for one visit.
    pub(super) fn of(&self, store: &Store) -> Result<All, ReadError> {
        if store.len() <= EXACT_MAX {
            return visit(store);
        }
        // Replaced whole, so a panic elsewhere leaves no partial change.
        let mut last = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let start = precise_ns();
        match &*last {
            Some(last) if start < last.valid_until_ns => Ok(last.all),
            _ => {
                let (all, end) = (visit(store)?, precise_ns());
                *last = Some(Last { all, valid_until_ns: end + REST * (end - start) });
                Ok(all)
            }
        }
    }
}

pub(super) fn visit(store: &Store) -> Result<All, ReadError> {
    let (mut all, mut cursor) = (All::default(), Cursor::START);
    loop {
        let scanned = store.scan(&cursor, STEP, &mut |key, entry| {
            let Some(place) = Place::of(key) else { return };
            let count = &mut all[place.index()];
            count.keys += 1;
            count.expiring += u64::from(entry.expires_at.is_some());
        });
        cursor = match scanned {
            Err(ReadError::Skipped { next, .. }) => next,
            scanned => scanned?,
        };
        if cursor.is_end() {
            return Ok(all);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn large_store_is_not_visited_each_time() {
        let store = Store::options().anonymous().create().unwrap();
        let add = |from: u64, to: u64| (from..to).for_each(|n| store.put(n.to_le_bytes(), b"").unwrap());
        let counts = Counts::default();
        let first = || counts.of(&store).unwrap()[0].keys;
        add(0, 1000);
        assert_eq!(first(), 1000);
        add(1000, EXACT_MAX + 1);
        assert_eq!(first(), EXACT_MAX + 1);
        counts.0.lock().unwrap().as_mut().unwrap().valid_until_ns = u64::MAX;
        add(EXACT_MAX + 1, EXACT_MAX + 5);
        assert_eq!(first(), EXACT_MAX + 1);
        counts.0.lock().unwrap().as_mut().unwrap().valid_until_ns = 0;
        assert_eq!(first(), EXACT_MAX + 5);
    }
}
