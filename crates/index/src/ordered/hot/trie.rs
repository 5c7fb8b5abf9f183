//! The trie inside a node, outside the pool: what changes of nodes are made of.
//!
//! A trie with n entries has n - 1 forks. Each asks for one bit of a key, at its position. An
//! entry's *path* is the forks above it. Its bits have a 1 where the path goes to the high side of
//! a fork, and 0 elsewhere: also at positions that its path does not ask for. So entries ascend by
//! their bits, and the entry that a key leads to is the last one all of whose bits the key has.

use super::super::link::{LEAF, Link};
use std::ops::Range;

/// Entries of a node at most. While a node is split, its trie has one more.
pub(super) const ENTRIES: usize = 32;

/// An entry: its bits, and its link.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Entry {
    pub(super) bits: u32,
    pub(super) link: Link,
}

/// A trie. The first position is the highest of the bits that the entries have.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct Trie {
    /// Ascends; each is that of a fork at least.
    pub(super) positions: Vec<u32>,
    pub(super) entries: Vec<Entry>,
}

impl Trie {
    /// A trie of two entries.
    pub(super) fn fork(position: u32, low: Link, high: Link) -> Self {
        let entries = vec![Entry { bits: 0, link: low }, Entry { bits: 1, link: high }];
        Self { positions: vec![position], entries }
    }

    /// The bit of the position with this number.
    fn bit_of(&self, nth: usize) -> u32 {
        1 << (self.positions.len() - 1 - nth)
    }

    /// The entries that differ from a key in the same way as the one that it leads to, if that
    /// differs from `position` on: all whose paths are the same above it.
    pub(super) fn affected(&self, entry: usize, position: u32) -> Range<usize> {
        let above = bits_above(&self.positions, position);
        agreeing(self.entries.len(), entry, |nth| self.entries[nth].bits & above)
    }

    /// Whether a fork of these entries' paths, which are the same above `position`, asks for it.
    pub(super) fn has_fork(&self, entries: Range<usize>, position: u32) -> bool {
        let Ok(nth) = self.positions.binary_search(&position) else { return false };
        self.entries[entries].iter().any(|entry| entry.bits & self.bit_of(nth) != 0)
    }

    /// Adds an entry beside those that `entry` is among, all of whose keys differ from its key from
    /// `position` on.
    pub(super) fn add(&mut self, entry: usize, position: u32, is_high: bool, link: Link) {
        let affected = self.affected(entry, position);
        let bit = self.column(position);
        let bits = self.entries[entry].bits & bits_above(&self.positions, position);
        let place = if is_high { affected.end } else { affected.start };
        if !is_high {
            self.entries[affected].iter_mut().for_each(|entry| entry.bits |= bit);
        }
        self.entries.insert(place, Entry { bits: if is_high { bits | bit } else { bits }, link });
    }

    /// Puts a fork with two links in the place of an entry. It asks for a position below its path.
    pub(super) fn part(&mut self, entry: usize, (position, low, high): (u32, Link, Link)) {
        self.entries[entry].link = low;
        self.add(entry, position, true, high);
    }

    /// Puts a whole trie in the place of an entry. All its positions lie below the entry's path.
    pub(super) fn put_in(&mut self, entry: usize, below: &Self) {
        below.positions.iter().for_each(|&position| _ = self.column(position));
        let columns: Vec<u32> = below.positions.iter().map(|&position| self.column(position)).collect();
        let at = self.entries.remove(entry).bits;
        let moved = |from: &Entry| {
            let has = |nth: usize| from.bits & below.bit_of(nth) != 0;
            let columns = columns.iter().enumerate().filter(|&(nth, _)| has(nth));
            Entry { bits: columns.fold(at, |bits, (_, column)| bits | column), ..*from }
        };
        let new: Vec<Entry> = below.entries.iter().map(moved).collect();
        self.entries.splice(entry..entry, new);
    }

    /// Removes an entry and the fork above it.
    pub(super) fn remove(&mut self, entry: usize) {
        let Entry { bits, .. } = self.entries[entry];
        let low = entry.checked_sub(1).map(|low| top(self.entries[low].bits ^ bits));
        let high = self.entries.get(entry + 1).map(|high| top(high.bits ^ bits));
        if let Some(fork) = high
            && low.is_none_or(|low| fork < low)
        {
            // It is the low side of the fork: the paths on the high side ask for it no more.
            let above = !(fork | (fork - 1));
            for other in &mut self.entries[entry + 1..] {
                if other.bits & above != bits & above {
                    break;
                }
                other.bits &= !fork;
            }
        }
        self.entries.remove(entry);
        self.prune();
    }

    /// Removes all entries without a link.
    pub(super) fn compact(&mut self) {
        self.compact_beside(0);
    }

    /// As [`Trie::compact`]. Returns where an entry with a link is then.
    pub(super) fn compact_beside(&mut self, mut entry: usize) -> usize {
        for dead in (0..self.entries.len()).rev() {
            if self.entries[dead].link.is_empty() {
                self.remove(dead);
                entry -= usize::from(dead < entry);
            }
        }
        entry
    }

    /// The position of the highest fork, and the tries on its two sides.
    pub(super) fn split(mut self) -> (u32, Self, Self) {
        let (position, bit) = (self.positions[0], self.bit_of(0));
        let middle = self.entries.partition_point(|entry| entry.bits & bit == 0);
        let mut high = Self { positions: self.positions.clone(), entries: self.entries.split_off(middle) };
        high.entries.iter_mut().for_each(|entry| entry.bits &= !bit);
        self.prune();
        high.prune();
        (position, self, high)
    }

    /// The height of a node with these entries.
    pub(super) fn height(&self) -> u8 {
        let highest = self.entries.iter().map(|entry| height(entry.link)).max();
        highest.unwrap_or(0).saturating_add(1)
    }

    /// How many of its entries are leaves.
    pub(super) fn leaves(&self) -> i64 {
        self.entries.iter().filter(|entry| entry.link.kind() == LEAF).count() as i64
    }

    /// The bit of a position, which becomes one of the trie's.
    fn column(&mut self, position: u32) -> u32 {
        let nth = match self.positions.binary_search(&position) {
            Ok(nth) => return self.bit_of(nth),
            Err(nth) => nth,
        };
        let below = (1u32 << (self.positions.len() - nth)) - 1;
        self.positions.insert(nth, position);
        for entry in &mut self.entries {
            entry.bits = (entry.bits & !below) << 1 | entry.bits & below;
        }
        self.bit_of(nth)
    }

    /// Forgets the positions that no fork asks for.
    fn prune(&mut self) {
        let (all, asked) =
            (self.positions.len(), self.entries.iter().fold(0, |bits, entry| bits | entry.bits));
        for nth in (0..all).rev().filter(|nth| asked >> (all - 1 - nth) & 1 == 0) {
            let below = self.bit_of(nth) - 1;
            self.positions.remove(nth);
            for entry in &mut self.entries {
                entry.bits = entry.bits >> 1 & !below | entry.bits & below;
            }
        }
    }
}

/// The bits of the positions above `position`, of all that a trie has.
pub(super) fn bits_above(positions: &[u32], position: u32) -> u32 {
    let (all, above) = (positions.len(), positions.partition_point(|&at| at < position));
    (((1u64 << above) - 1) << (all - above)) as u32
}

/// The neighbours of an entry that have the same bits, of `count` entries.
pub(super) fn agreeing(count: usize, entry: usize, bits: impl Fn(usize) -> u32) -> Range<usize> {
    let agrees = |nth: &usize| bits(*nth) == bits(entry);
    let before = (0..entry).rev().take_while(agrees).count();
    let behind = (entry..count).take_while(agrees).count();
    entry - before..entry + behind
}

/// The highest of some bits.
fn top(bits: u32) -> u32 {
    1 << bits.ilog2()
}

/// The height of what a link leads to: 0 for a leaf.
#[inline(always)]
pub(super) fn height(link: Link) -> u8 {
    link.byte()
}

/// The nearest entries with a link around one without: the number of the fork's position that parts
/// them from it, and their range. `None` if there are none. `is_there` says whether an entry has a
/// link.
pub(super) fn nearest(
    bits: &[u32],
    entry: usize,
    mut is_there: impl FnMut(usize) -> bool,
) -> Option<(u32, Range<usize>)> {
    let mut known = entry..entry + 1;
    while known.len() < bits.len() {
        let low = known.start.checked_sub(1).map(|low| top(bits[low] ^ bits[known.start]));
        let high = bits.get(known.end).map(|high| top(high ^ bits[known.end - 1]));
        let fork = low.into_iter().chain(high).min()?;
        let above = !(fork | (fork - 1));
        let all = agreeing(bits.len(), entry, |nth| bits[nth] & above);
        let side = if all.start < known.start { all.start..known.start } else { known.end..all.end };
        let there: Vec<usize> = side.filter(|&nth| is_there(nth)).collect();
        if let (Some(&first), Some(&last)) = (there.first(), there.last()) {
            return Some((fork, first..last + 1));
        }
        known = all;
    }
    None
}

#[cfg(test)]
#[path = "tests/trie.rs"]
mod tests;
