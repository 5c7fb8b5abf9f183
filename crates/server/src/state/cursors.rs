//! The numbers by which clients know places in a scan.
//!
//! Many clients keep a cursor in a double, so it is a number below 2^53. Where the index orders
//! keys by their hashes, a place is such a number already. Where it orders the keys themselves, a
//! place is a key, and a ring in this process holds the last few thousand of them by number:
//!
//! ```text
//!   number: | counter, never 0, 16 bits | seconds, 16 bits | hash of the key, 21 bits |
//! ```
//! The counter makes the numbers in the ring differ. Time and hash, which has a secret seed, keep a
//! number of an earlier process from being taken for one of this process.

use std::{
    collections::VecDeque,
    hash::{BuildHasher, RandomState},
    sync::{Mutex, PoisonError},
};

use terrace::{Cursor, Store};

use crate::state::failure::Failure;

/// Places that the ring holds at most.
const PLACES_MAX: usize = 4096;
/// Bytes of the keys in the ring at most.
const BYTES_MAX: usize = 16 << 20;

const COUNTERS: u64 = (1 << 16) - 1;
const HASH_BITS: u32 = 21;

const INVALID: Failure = Failure::Text("ERR invalid cursor: begin the scan again from 0");
const UNKNOWN: Failure = Failure::Text(
    "ERR unknown cursor: the server has started again since, or other scans have displaced it; begin the \
     scan again from 0",
);

/// The places in scans whose numbers clients may hold.
#[derive(Default)]
pub(crate) struct Cursors {
    ring: Mutex<Ring>,
    hasher: RandomState,
}

/// The places behind keys, the oldest first.
#[derive(Default)]
struct Ring {
    places: VecDeque<(u64, Cursor)>,
    bytes: usize,
    counter: u64,
}

impl Cursors {
    /// The number of a place in a scan; 0 for the end.
    pub(crate) fn number(&self, place: Cursor, now_ms: u64) -> u64 {
        let key = match place.key() {
            None => return place.number().unwrap_or(0),
            Some(key) => key,
        };
        let (hash, seconds) = (self.hasher.hash_one(key), now_ms / 1000);
        let mut ring = self.ring.lock().unwrap_or_else(PoisonError::into_inner);
        ring.counter = ring.counter % COUNTERS + 1;
        let number = ring.counter << 37 | (seconds & 0xffff) << HASH_BITS | hash >> (64 - HASH_BITS);
        ring.add(number, place);
        number
    }

    /// The place of a number in a scan of `store`; 0 is the beginning.
    pub(crate) fn place(&self, number: u64, store: &Store) -> Result<Cursor, Failure> {
        if number == 0 || !store.is_ordered() {
            return Cursor::from_number(number).ok_or(INVALID);
        }
        let ring = self.ring.lock().unwrap_or_else(PoisonError::into_inner);
        // The latest are the likeliest.
        let found = ring.places.iter().rev().find(|(of, _)| *of == number);
        found.map(|(_, place)| place.clone()).ok_or(UNKNOWN)
    }
}

impl Ring {
    fn add(&mut self, number: u64, place: Cursor) {
        self.bytes += bytes(&place);
        self.places.push_back((number, place));
        while self.places.len() > PLACES_MAX || self.bytes > BYTES_MAX {
            let oldest = self.places.pop_front();
            self.bytes -= oldest.map_or(0, |(_, place)| bytes(&place));
        }
    }
}

fn bytes(place: &Cursor) -> usize {
    place.key().map_or(0, <[u8]>::len)
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT: u64 = terrace::CURSOR_LIMIT;

    fn known(cursors: &Cursors) -> (usize, usize) {
        let ring = cursors.ring.lock().unwrap();
        (ring.places.len(), ring.bytes)
    }

    #[test]
    fn number_of_a_hash_place_is_its_own() {
        let cursors = Cursors::default();
        let place = Cursor::from_number(77).unwrap();
        assert_eq!([place, Cursor::END].map(|place| cursors.number(place, 0)), [77, 0]);
        assert_eq!(known(&cursors), (0, 0));
    }

    #[test]
    fn numbers_of_keys_differ_below_the_limit() {
        let cursors = Cursors::default();
        let mut numbers = std::collections::BTreeSet::new();
        for n in 0..PLACES_MAX as u64 {
            let number = cursors.number(Cursor::after(b"the same"), u64::MAX - n);
            assert!(number != 0 && number < LIMIT && numbers.insert(number), "{number:#x}");
        }
    }

    #[test]
    fn number_differs_between_processes() {
        let [one, two] = [(); 2].map(|()| Cursors::default());
        let differ = (0..1000u32).filter(|n| {
            let number = |cursors: &Cursors| cursors.number(Cursor::after(&n.to_le_bytes()), 5);
            number(&one) != number(&two)
        });
        assert!(differ.count() >= 999);
    }

    #[test]
    fn ring_drops_oldest_by_count_and_bytes() {
        let cursors = Cursors::default();
        let first = cursors.number(Cursor::after(b"first"), 0);
        (0..PLACES_MAX).for_each(|_| _ = cursors.number(Cursor::after(b"key"), 0));
        assert_eq!(known(&cursors), (PLACES_MAX, 3 * PLACES_MAX));
        let ring = cursors.ring.lock().unwrap();
        assert!(ring.places.iter().all(|(number, _)| *number != first));
        drop(ring);
        let long = [7; 64 << 10];
        (0..300).for_each(|_| _ = cursors.number(Cursor::after(&long), 0));
        assert_eq!(known(&cursors), (BYTES_MAX / long.len(), BYTES_MAX));
    }

    #[test]
    fn counter_wraps_around_past_0() {
        let cursors = Cursors::default();
        cursors.ring.lock().unwrap().counter = COUNTERS - 1;
        let counters = [(); 3].map(|()| cursors.number(Cursor::after(b""), 0) >> 37);
        assert_eq!(counters, [COUNTERS, 1, 2]);
    }

    #[test]
    fn place_of_a_hash_store_needs_no_ring() {
        let (cursors, store) = (Cursors::default(), Store::options().anonymous().create().unwrap());
        assert_eq!(cursors.place(77, &store).ok(), Cursor::from_number(77));
        assert_eq!(cursors.place(0, &store).ok(), Some(Cursor::START));
        assert!([LIMIT, u64::MAX].iter().all(|&number| cursors.place(number, &store).is_err()));
    }
}
