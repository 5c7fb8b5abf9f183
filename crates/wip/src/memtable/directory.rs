//! The directory of a MemTable: entries of one line, with eight slots each.

use super::arena::At;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

/// Entries of a new table.
pub(super) const ENTRIES_MIN: usize = 16;
const TAG: u32 = 48;
/// Of 8 entries' slots, those that may be used before the table grows.
const FULL: usize = 48;

#[repr(align(64))]
struct Entry([AtomicU64; 8]);

/// A directory.
pub(super) struct Directory {
    entries: Box<[Entry]>,
    used: AtomicU64,
}

/// A slot: the tag of the hash, and the place.
pub(super) fn slot(hash: u64, at: At) -> u64 {
    debug_assert!(at != 0 && at >> TAG == 0);
    hash >> TAG << TAG | at
}

fn place(slot: u64) -> At {
    slot & ((1 << TAG) - 1)
}

impl Directory {
    pub(super) fn new(entries: usize) -> Self {
        debug_assert!(entries.is_power_of_two());
        let empty = || Entry(std::array::from_fn(|_| AtomicU64::new(0)));
        Self { entries: (0..entries).map(|_| empty()).collect(), used: AtomicU64::new(0) }
    }

    pub(super) fn entries(&self) -> usize {
        self.entries.len()
    }

    pub(super) fn bytes(&self) -> usize {
        size_of_val(&self.entries[..])
    }

    /// The entries in which a key with this hash may lie, its own first.
    fn way(&self, hash: u64) -> impl Iterator<Item = &Entry> {
        let (own, mask) = (hash as usize, self.entries.len() - 1);
        (0..self.entries.len()).map(move |nth| &self.entries[(own + nth) & mask])
    }

    /// The slot with this hash's tag whose place is the right one.
    #[inline]
    pub(super) fn find(&self, hash: u64, is_it: impl Fn(At) -> bool) -> Option<(&AtomicU64, At)> {
        for entry in self.way(hash) {
            for word in &entry.0 {
                // ORDER: Acquire: pairs with the Release of the writer that has published the item.
                let slot = word.load(Acquire);
                if slot == 0 {
                    return None;
                }
                if slot >> TAG == hash >> TAG && is_it(place(slot)) {
                    return Some((word, place(slot)));
                }
            }
        }
        None
    }

    /// Adds a key that is absent; returns the number of its slot. `None`, and nothing is added, if
    /// the directory is too full.
    pub(super) fn add(&self, hash: u64, at: At) -> Option<u32> {
        let used = self.used.load(Relaxed);
        if used as usize >= self.entries.len() / 8 * FULL {
            return None;
        }
        let mask = self.entries.len() - 1;
        let mut ways = (0..self.entries.len()).map(|nth| (hash as usize + nth) & mask);
        let free = |entry: &Entry| entry.0.iter().position(|word| word.load(Relaxed) == 0);
        let (entry, nth) = ways.find_map(|way| Some((way, free(&self.entries[way])?)))?;
        // ORDER: Release: see `find`.
        self.entries[entry].0[nth].store(slot(hash, at), Release);
        self.used.store(used + 1, Relaxed);
        Some((entry * 8 + nth) as u32)
    }

    /// The place in the slot with this number, which is used.
    #[inline]
    pub(super) fn place_in(&self, slot: u32) -> At {
        // ORDER: Acquire: see `find`.
        place(self.entries[slot as usize / 8].0[slot as usize % 8].load(Acquire))
    }

    /// All places, in no order.
    pub(super) fn places(&self) -> impl Iterator<Item = At> {
        // ORDER: Acquire: see `find`.
        let slots = self.entries.iter().flat_map(|entry| &entry.0).map(|word| word.load(Acquire));
        slots.filter(|&slot| slot != 0).map(place)
    }
}
