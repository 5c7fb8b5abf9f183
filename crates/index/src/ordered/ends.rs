//! The ends of a range, as bytes of keys.

use super::keys::{KeyBytes, OrderedKind};
use crate::{Direction, Key, Place, RangeIndex};
use std::cmp::Ordering::{Equal, Greater};
use std::ops::{Bound, ControlFlow};
use terrace_medium::MappedMedium;
use terrace_pool::Guard;

/// The word of the last key up to a bound, by a walk.
pub(super) fn last_up_to<I: RangeIndex>(
    index: &I,
    guard: &Guard<'_, I::Medium>,
    to: Bound<&Key<I>>,
) -> Option<u64> {
    let mut found = None;
    index.range(guard, Bound::Unbounded, to, Direction::Backward, 1, |_, word| {
        found = Some(word);
        ControlFlow::Break(())
    });
    found
}

/// An end of a range.
pub(super) struct End<'k> {
    pub(super) bytes: Option<KeyBytes<'k>>,
    pub(super) is_included: bool,
}

impl<'k> End<'k> {
    pub(super) const NONE: Self = Self { bytes: None, is_included: true };

    pub(super) fn of<K: OrderedKind>(bound: Bound<&'k K::Key>) -> Self {
        match bound {
            Bound::Included(key) => Self { bytes: Some(K::bytes(key)), is_included: true },
            Bound::Excluded(key) => Self { bytes: Some(K::bytes(key)), is_included: false },
            Bound::Unbounded => Self::NONE,
        }
    }

    /// The lower end of a scan from a place; `None` if that is behind all keys.
    ///
    /// # Panics
    /// If it is a place in an index by hash.
    pub(super) fn of_place(place: &'k Place) -> Option<Self> {
        match place {
            Place::Start => Some(Self::NONE),
            Place::After(key) => Some(Self { bytes: Some(KeyBytes::String(key)), is_included: false }),
            Place::End => None,
            Place::Hash(_) => panic!("an index by order has no place of a hash"),
        }
    }

    /// The end's byte at `level`; `None` behind its last one.
    pub(super) fn byte(&self, level: usize) -> Option<u8> {
        self.bytes.as_ref().and_then(|bytes| bytes.get(level).copied())
    }

    /// How `path`, the bytes from `base` on of all keys somewhere, compares with the end's; equal
    /// if the end goes on behind them or ends with them.
    pub(super) fn compare(&self, path: &[u8], base: usize) -> std::cmp::Ordering {
        let Some(bytes) = &self.bytes else { return Equal };
        let end = bytes.get(base..).unwrap_or_default();
        let same = &end[..end.len().min(path.len())];
        match path[..same.len()].cmp(same) {
            Equal if same.len() < path.len() => Greater,
            ordering => ordering,
        }
    }

    /// The place behind a leaf and its key, where a scan from this end may stop. There is none
    /// behind an unsound record, whose key may be another's, nor behind a key that does not lie
    /// behind this end: a scan that went on there would come here again, or miss keys.
    pub(super) fn place_behind<M: MappedMedium, K: OrderedKind>(
        &self,
        guard: &Guard<'_, M>,
        leaf: u64,
        key: Option<&[u8]>,
    ) -> Option<Place> {
        let key = key.filter(|key| self.admits(key, Greater))?;
        K::is_sound(guard, leaf).then(|| Place::After(Box::from(key)))
    }

    /// Whether a key is on the side of the end that `inside` names, or at the end and included.
    pub(super) fn admits(&self, key: &[u8], inside: std::cmp::Ordering) -> bool {
        let Some(bytes) = &self.bytes else { return true };
        match key.cmp(bytes) {
            Equal => self.is_included,
            ordering => ordering == inside,
        }
    }
}
