//! One walk through the index, round and round, removes the keys of all entries that clear slots.

use crate::arbiter::Incarnation;
use crate::slot::SLOTS;
use std::collections::BTreeMap;

/// Entries that clear slots, and wait at the heads of their logs. Nothing stands below.
#[derive(Default)]
pub(super) struct Clearing {
    /// Where the walk goes on.
    at: Place,
    pub(super) waiting: BTreeMap<Clearer, Clear>,
}

/// A place of the walk: how often it was at the end, and its cursor.
pub(super) type Place = (u64, u64);

/// The session and the shard of an entry that clears slots.
pub(super) type Clearer = (Incarnation, usize);

pub(super) struct Clear {
    slots: Vec<bool>,
    /// Where the walk was everywhere since this came: the same cursor, one round later. Steps
    /// differ from round to round, and the last one of that round may jump over it.
    until: Place,
}

impl Clearing {
    /// An entry that clears these slots is at the head of its log, perhaps since a while.
    pub(super) fn enter(&mut self, clearer: Clearer, slots: impl FnOnce() -> Vec<u16>) {
        let at = self.at;
        self.waiting.entry(clearer).or_insert_with(|| {
            let mut of_slot = vec![false; SLOTS.into()];
            slots().into_iter().for_each(|slot| of_slot[usize::from(slot)] = true);
            Clear { slots: of_slot, until: (at.0 + 1, at.1) }
        });
    }

    /// Where the walk goes on.
    pub(super) fn at(&self) -> Place {
        self.at
    }

    /// Whether the walk was not everywhere yet since this entry came.
    pub(super) fn goes_on(&self, clearer: Clearer) -> bool {
        self.at < self.waiting[&clearer].until
    }

    /// Whether the keys of a slot are to be removed.
    pub(super) fn clears(&self, slot: u16) -> bool {
        let slot = usize::from(slot);
        self.waiting.values().any(|clear| self.at < clear.until && clear.slots[slot])
    }

    /// A step has brought the walk to this place.
    pub(super) fn walked(&mut self, next: Place) {
        assert!(next.0 == self.at.0 || next == (self.at.0 + 1, 0), "a step ends in its round or with it");
        self.at = next;
    }

    /// All keys of this entry's slots are removed.
    pub(super) fn leave(&mut self, clearer: Clearer) {
        assert!(!self.goes_on(clearer), "an entry leaves once the walk was everywhere");
        self.waiting.remove(&clearer);
    }
}
