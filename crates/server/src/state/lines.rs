//! The order of commands that wait for a slot.
//!
//! A command for a slot that is on its way has a place in the slot's line. Once the slot is here,
//! the commands run in the order of their places, whichever loops execute them; commands that come
//! then wait until the line is empty. A place counts for [`HELD_MOST_MS`], as its command waits no
//! longer.

use std::{
    collections::{HashMap, VecDeque},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
};

use crate::state::routing::HELD_MOST_MS;

/// The lines of all slots.
#[derive(Debug, Default)]
pub(crate) struct Lines {
    /// Number of places.
    len: AtomicUsize,
    places: Mutex<Places>,
}

#[derive(Debug, Default)]
struct Places {
    next: u64,
    /// For each slot, the places and when they were taken, the oldest first.
    slots: HashMap<u16, VecDeque<(u64, u64)>>,
}

/// A place in a slot's line, until it is dropped.
#[derive(Debug)]
pub(crate) struct InLine {
    lines: Arc<Lines>,
    slot: u16,
    number: u64,
}

impl Lines {
    /// Whether nothing waits.
    pub(crate) fn is_empty(&self) -> bool {
        // ORDER: Relaxed: a command that has just begun to wait comes at the same time as one that
        // does not see it.
        self.len.load(Relaxed) == 0
    }

    fn places(&self) -> MutexGuard<'_, Places> {
        // Consistent after every statement, so a panic elsewhere leaves no partial change.
        self.places.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The last place of a slot's line.
    pub(crate) fn join(self: &Arc<Lines>, slot: u16, now_ms: u64) -> InLine {
        let mut places = self.places();
        places.next += 1;
        let number = places.next;
        places.slots.entry(slot).or_default().push_back((number, now_ms));
        self.len.fetch_add(1, Relaxed);
        InLine { lines: Arc::clone(self), slot, number }
    }

    /// Whether a command for a slot that is here may run: nothing waits that came earlier.
    pub(crate) fn may_go(&self, slot: u16, place: Option<&InLine>, now_ms: u64) -> bool {
        if self.is_empty() {
            return true;
        }
        let mine = place.filter(|place| place.slot == slot).map_or(u64::MAX, |place| place.number);
        // The clock may have been set back.
        let counts = |since: u64| (since..since + HELD_MOST_MS).contains(&now_ms);
        let places = self.places();
        let mut line = places.slots.get(&slot).into_iter().flatten();
        line.find(|(_, since)| counts(*since)).is_none_or(|(number, _)| *number >= mine)
    }
}

impl InLine {
    /// Whether it is a place of this slot.
    pub(crate) fn is_of(&self, slot: u16) -> bool {
        self.slot == slot
    }
}

impl Drop for InLine {
    fn drop(&mut self) {
        let mut places = self.lines.places();
        if let Some(line) = places.slots.get_mut(&self.slot) {
            line.retain(|(number, _)| *number != self.number);
            if line.is_empty() {
                places.slots.remove(&self.slot);
            }
        }
        self.lines.len.fetch_sub(1, Relaxed);
    }
}
