//! Walks in the order of keys, both ways.
//!
//! A walk reads a leaf as it is at one moment, and goes on at the leaf's end, whatever page has the
//! keys there by then. So a key that is there throughout is visited exactly once. Records are
//! fetched ahead, up to 16 at a time.

use super::super::ends::End;
use super::super::keys::{OrderedKind, key_of_entry};
use super::find::Spot;
use super::live::Live;
use super::ops::BwTree;
use super::page::Probe;
use crate::{Damage, Direction, Place};
use std::cmp::Ordering::{Greater, Less};
use std::ops::{Bound, ControlFlow};
use terrace_medium::MappedMedium;
use terrace_pool::Guard;

/// Records that are fetched ahead.
const AHEAD: usize = 16;

/// A key above all that an index can hold.
static TOP: [u8; super::super::keys::KEY_MAX + 1] = [0xff; super::super::keys::KEY_MAX + 1];

/// Where a walk goes on.
enum Next {
    /// At this key, or behind the one before it.
    At(Vec<u8>),
    /// Before this key, in a walk backward.
    Before(Vec<u8>),
    /// At the last page.
    Last,
    Nowhere,
}

/// A walk over a part of the tree.
struct Walk<'w, 'g, M: MappedMedium, K: OrderedKind> {
    index: &'g BwTree<M, K>,
    guard: &'g Guard<'g, M>,
    low: End<'w>,
    high: End<'w>,
    direction: Direction,
    /// Keys that the caller still expects.
    expected: usize,
    next: Next,
    /// What is left of the present leaf, in order.
    ready: Vec<Live>,
    at: usize,
}

impl<M: MappedMedium, K: OrderedKind> BwTree<M, K> {
    /// See [`RangeIndex::range`](crate::RangeIndex::range).
    pub(super) fn range_from_to<'g>(
        &'g self,
        guard: &'g Guard<'g, M>,
        (from, to): (Bound<&K::Key>, Bound<&K::Key>),
        direction: Direction,
        expected: usize,
        mut each: impl FnMut(K::Told, u64) -> ControlFlow<()>,
    ) {
        let mut walk = self.walk(guard, (End::of::<K>(from), End::of::<K>(to)), direction, expected);
        while let Some((head, word)) = walk.next() {
            if each(K::told_of(head), word).is_break() {
                return;
            }
        }
    }

    /// See [`PointIndex::scan`](crate::PointIndex::scan).
    pub(super) fn scan_from<'g>(
        &'g self,
        guard: &'g Guard<'g, M>,
        from: &Place,
        at_least: usize,
        mut each: impl FnMut(u64),
    ) -> Place {
        let Some(low) = End::of_place(from) else { return Place::End };
        let mut walk = self.walk(guard, (low, End::NONE), Direction::Forward, at_least);
        let mut seen = 0;
        while let Some(live) = walk.next() {
            each(live.1);
            seen += 1;
            let key = || key_of_entry::<M, K>(guard, live);
            if seen >= at_least
                && let Some(place) = walk.low.place_behind::<M, K>(guard, live.1, key().as_deref())
            {
                return place;
            }
        }
        Place::End
    }

    fn walk<'w, 'g>(
        &'g self,
        guard: &'g Guard<'g, M>,
        (low, high): (End<'w>, End<'w>),
        direction: Direction,
        expected: usize,
    ) -> Walk<'w, 'g, M, K> {
        let bytes = |end: &End<'_>| end.bytes.as_ref().map(|bytes| bytes.to_vec());
        let next = match direction {
            Direction::Forward => Next::At(bytes(&low).unwrap_or_default()),
            Direction::Backward => bytes(&high).map_or(Next::Last, Next::At),
        };
        Walk { index: self, guard, low, high, direction, expected, next, ready: Vec::new(), at: 0 }
    }
}

impl<'g, M: MappedMedium, K: OrderedKind> Walk<'_, 'g, M, K> {
    /// The next key in the range.
    fn next(&mut self) -> Option<Live> {
        while self.at == self.ready.len() {
            if !self.read_page() {
                return None;
            }
        }
        let live = self.ready[self.at];
        self.at += 1;
        self.expected = self.expected.saturating_sub(1);
        if self.expected >= AHEAD {
            self.fetch(self.at + AHEAD - 1);
        }
        Some(live)
    }

    fn fetch(&self, nth: usize) {
        if K::LEAF_BYTES == 0
            && let Some((_, word)) = self.ready.get(nth)
        {
            K::prefetch(self.guard, *word);
        }
    }

    /// Reads the next leaf. Returns false behind the last one, and where a damaged one is.
    fn read_page(&mut self) -> bool {
        let tree = &self.index.tree;
        let probe = match &self.next {
            Next::Nowhere => return false,
            Next::At(key) => Probe::at(key),
            Next::Before(key) => Probe::before(key),
            Next::Last => Probe::at(&TOP),
        };
        let read = tree.descend_soundly(self.guard, probe, 0).and_then(|spot| self.read(&spot));
        self.at = 0;
        if read.is_err() {
            (self.next, self.ready) = (Next::Nowhere, Vec::new());
            return false;
        }
        (0..self.expected.clamp(1, AHEAD)).for_each(|nth| self.fetch(nth));
        true
    }

    fn read(&mut self, spot: &Spot<'g, K>) -> Result<(), Damage> {
        let mut ready = self.index.tree.live(self.guard, spot)?;
        self.drop_visited(spot, &mut ready);
        self.drop_outside(spot, &mut ready);
        let (low, high) = (spot.page.low(), spot.page.high());
        self.next = match (self.direction, high) {
            (Direction::Forward, Some(high)) if self.is_below_high(high) => Next::At(high.to_vec()),
            (Direction::Backward, _) if !low.is_empty() && self.is_above_low(low) => {
                Next::Before(low.to_vec())
            }
            _ => Next::Nowhere,
        };
        if self.direction == Direction::Backward {
            ready.reverse();
        }
        self.ready = ready;
        Ok(())
    }

    /// Whether a record stays among those that the walk visits: its key is admitted, or it is
    /// unsound, whatever its key is by now, and the caller reports it.
    fn stays(&self, live: &Live, admits: impl Fn(&[u8]) -> bool) -> bool {
        key_of_entry::<M, K>(self.guard, *live).is_none_or(|key| admits(&key))
            || !K::is_sound(self.guard, live.1)
    }

    /// Drops what a page has that has absorbed one which was visited before.
    fn drop_visited(&self, spot: &Spot<'g, K>, ready: &mut Vec<Live>) {
        match &self.next {
            Next::At(from) if self.direction == Direction::Forward && spot.page.low() < &from[..] => {
                ready.retain(|live| self.stays(live, |key| key >= &from[..]));
            }
            Next::Before(to) if spot.page.high() != Some(to) => {
                ready.retain(|live| self.stays(live, |key| key < &to[..]));
            }
            _ => {}
        }
    }

    /// Drops what is outside of the range.
    fn drop_outside(&self, spot: &Spot<'g, K>, ready: &mut Vec<Live>) {
        let is_inside = |end: &End<'_>, fence: Option<&[u8]>, inside| match (&end.bytes, fence) {
            (None, _) => true,
            (Some(bytes), Some(fence)) => fence.cmp(bytes) == inside,
            (Some(_), None) => false,
        };
        if !is_inside(&self.low, Some(spot.page.low()), Greater) {
            ready.retain(|live| self.stays(live, |key| self.low.admits(key, Greater)));
        }
        if !is_inside(&self.high, spot.page.high(), Less) {
            ready.retain(|live| self.stays(live, |key| self.high.admits(key, Less)));
        }
    }

    /// Whether the range goes on at a page's high key.
    fn is_below_high(&self, key: &[u8]) -> bool {
        self.high.bytes.as_ref().is_none_or(|high| key <= high)
    }

    /// Whether the range goes on before a page's low key.
    fn is_above_low(&self, key: &[u8]) -> bool {
        self.low.bytes.as_ref().is_none_or(|low| key > low)
    }
}
