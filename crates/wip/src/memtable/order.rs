//! The keys of a MemTable in their order, for ranges (thesis 2.3.4).
//!
//! A range sorts the keys that came since the last one, not all: they form a short second list
//! beside the first one, until there are too many. So a bucket that is read and written in turn
//! pays for what is new.

use super::MemTable;
use super::directory::Directory;
use std::sync::{Arc, MutexGuard, PoisonError};

/// Slots of keys, in the order of the keys.
type Slots = Arc<[u32]>;

/// How many times longer than the second list the first one is, at least.
const LONGER: usize = 16;
/// Keys up to which there may be a second list in any case.
const SHORT: usize = 64;

/// The order of the keys that had come when it was made.
#[derive(Clone)]
pub(super) struct Order {
    pub(super) directory: Arc<Directory>,
    first: Slots,
    second: Slots,
}

impl Order {
    pub(super) fn new(directory: &Arc<Directory>) -> Self {
        Self { directory: Arc::clone(directory), first: Arc::default(), second: Arc::default() }
    }

    /// Both lists; the second one may be empty.
    pub(super) fn lists(&self) -> [&Slots; 2] {
        [&self.first, &self.second]
    }
}

impl MemTable {
    fn known_order(&self) -> MutexGuard<'_, Order> {
        self.order.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The order of all keys that have come, in one list if `whole`.
    pub(super) fn order(&self, whole: bool) -> Order {
        let mut order = self.known_order();
        let writer = self.writer();
        let directory = self.directory.load();
        if !Arc::ptr_eq(&order.directory, &directory) {
            *order = Order::new(&directory);
        }
        let known = order.first.len() + order.second.len();
        let came = writer.arrived[known..].to_vec();
        // The writer goes on meanwhile: this thread looks at the slots that it has copied.
        drop(writer);
        let is_enough = !whole || order.second.is_empty();
        if came.is_empty() && is_enough {
            return order.clone();
        }
        let second: Slots = self.joined(&order.directory, &[&order.second, &came]);
        let is_short = second.len() <= SHORT || second.len() * LONGER <= order.first.len();
        (order.first, order.second) = match is_short && !whole {
            true => (Arc::clone(&order.first), second),
            false => (self.joined(&order.directory, &[&order.first, &second]), Arc::default()),
        };
        order.clone()
    }

    /// The slots of all lists in the order of their keys. A list that is in order is not sorted
    /// again.
    fn joined(&self, directory: &Directory, lists: &[&[u32]]) -> Slots {
        let places = lists.iter().flat_map(|slots| slots.iter()).map(|&slot| {
            let at = directory.place_in(slot);
            (self.first_word(at), at, slot)
        });
        let mut places: Vec<_> = places.collect();
        // A stable sort, which finds the parts that are in order.
        places.sort_by(|one, other| one.0.cmp(&other.0).then_with(|| self.compare(one.1, other.1)));
        places.into_iter().map(|(_, _, slot)| slot).collect()
    }
}
