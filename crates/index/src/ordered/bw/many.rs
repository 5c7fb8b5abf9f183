//! Reads of many keys, side by side.

use super::super::keys::{KeyBytes, OrderedKind};
use super::super::together::search_together;
use super::entry::Entry;
use super::find::{Step, Way};
use super::page::Probe;
use super::tree::Tree;
use std::sync::atomic::Ordering::Acquire;
use terrace_medium::{LINE, MappedMedium};
use terrace_pool::Guard;

/// A search in progress.
struct Descent<'k, Key: ?Sized> {
    key: &'k Key,
    bytes: KeyBytes<'k>,
    way: Way,
    /// Whether the lines of the next page were fetched, and not only its entry.
    is_fetched: bool,
    /// The answer once the search has ended.
    found: Option<Option<u64>>,
}

impl<M: MappedMedium, K: OrderedKind> Tree<M, K> {
    /// See [`PointIndex::get_many`](crate::PointIndex::get_many).
    pub(super) fn search_many<'k>(
        &self,
        guard: &Guard<'_, M>,
        keys: impl IntoIterator<Item = &'k K::Key>,
        mut each: impl FnMut(usize, Option<u64>),
    ) where
        K::Key: 'k,
    {
        let start =
            |key| Descent { key, bytes: K::bytes(key), way: Way::START, is_fetched: false, found: None };
        let step = |descent: &mut Descent<'k, K::Key>| self.step_of(guard, descent);
        search_together(keys, start, step, |nth, descent| each(nth, descent.found.flatten()));
    }

    /// Takes a step of a search, whose line was fetched, and fetches the next. Returns whether the
    /// search goes on.
    #[inline(always)]
    fn step_of(&self, guard: &Guard<'_, M>, descent: &mut Descent<'_, K::Key>) -> bool {
        if descent.found.is_some() {
            return false;
        }
        if !descent.is_fetched {
            self.fetch_page(descent.way);
            descent.is_fetched = true;
            return true;
        }
        let step = self.step(guard, descent.way, Probe::at(&descent.bytes), 0);
        match step {
            Ok(Step::Onwards(way)) => {
                descent.way = way;
                descent.is_fetched = false;
                if let Some(word) = self.entry_word(way.pid) {
                    self.pool.region().prefetch(self.pool.region().offset_of(word).raw());
                }
                return true;
            }
            Ok(Step::Arrived(spot)) => {
                let held = self.find_in(guard, &spot, (descent.key, &descent.bytes));
                descent.found = Some(held.map(|held| held.word));
            }
            // The tree has changed under this search: it is done alone.
            Ok(Step::Lost) => descent.found = Some(self.search(guard, descent.key)),
            Err(_) => descent.found = Some(None),
        }
        false
    }

    /// Fetches the lines of a page that a search reads first.
    #[inline(always)]
    fn fetch_page(&self, way: Way) {
        let Some(word) = self.entry_word(way.pid) else { return };
        // ORDER: Acquire: as in `follow_entry`; only a guess is made with it.
        let entry = Entry(word.load(self.pool.medium(), Acquire));
        (0..16).for_each(|line| self.pool.region().prefetch(entry.offset() + line * LINE as u64));
    }
}
