//! The node of the tree, and FAST: entries shift by 8-byte stores within it.

mod copy;

use crate::baselines::{KeyForm, Space, SpaceFull};
use std::borrow::Borrow;
use std::cmp::Ordering;
use std::hint::spin_loop;
use std::sync::atomic::Ordering::{Acquire, Release};
use terrace_medium::{LINE, Line, Medium, Offset, Word};

type Lines = [Line; 8];

/// Bytes of a node, which starts at a multiple of them.
pub(super) const NODE: u64 = size_of::<Lines>() as u64;
/// Most entries of a node.
pub(super) const CAPACITY: usize = 30;
/// The entry that a split makes the first of the right half.
pub(super) const MIDDLE: usize = CAPACITY / 2;

/// Word of an inner node: the child of keys before its first entry.
const LEFTMOST: usize = 0;
/// The same word of a leaf that a split made: the least key that belongs to it.
const LOW: usize = 0;
/// The right sibling and, in the low bits, the level.
const SIBLING: usize = 1;
/// The least key that belongs to a right sibling; 0 if there is none.
const HIGH: usize = 2;
/// The parity tells the direction of the last shift.
pub(super) const TURNS: usize = 3;
const FIRST: usize = 4;

const LEVEL_MASK: u64 = NODE - 1;

const _: () = assert!((FIRST + 2 * CAPACITY) * 8 == NODE as usize);
const _: () = assert!(FIRST * 8 == LINE / 2, "two entries share the header's line");

/// The direction of a shift: the parity of the word that counts turns.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Shift {
    Right = 0,
    Left = 1,
}

/// A node in a tree's memory.
pub(super) struct Node<'s, M> {
    space: &'s Space<M>,
    lines: &'s Lines,
    at: u64,
}

impl<M> Clone for Node<'_, M> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<M> Copy for Node<'_, M> {}

/// The entries of a node at one instant.
pub(super) struct Entries {
    all: [(u64, u64); CAPACITY],
    count: usize,
    /// The right sibling, or 0.
    pub(super) sibling: u64,
}

impl Entries {
    /// Words of keys and their values, in the order of keys.
    pub(super) fn as_slice(&self) -> &[(u64, u64)] {
        &self.all[..self.count]
    }
}

/// A node at one instant, from the point of view of one key.
pub(super) struct Seen {
    /// Number of entries with keys up to the searched one.
    pub(super) place: usize,
    /// Whether the last of them has that key itself.
    pub(super) is_found: bool,
    /// The value of the last of them; without any, the leftmost child.
    pub(super) value: u64,
    /// The right sibling, if the node has no entry with a greater key and may have one.
    pub(super) right: Option<Right>,
}

/// A right sibling and the least key that belongs to it.
#[derive(Clone, Copy)]
pub(super) struct Right {
    pub(super) at: u64,
    pub(super) low: u64,
}

/// The line of an entry, counted from the node's first.
const fn line_of(slot: usize) -> usize {
    (FIRST + 2 * slot) * 8 / LINE
}

/// Whether an entry is the first of its line.
const fn starts_line(slot: usize) -> bool {
    slot > 0 && line_of(slot) != line_of(slot - 1)
}

impl<'s, M: Medium> Node<'s, M> {
    /// The node at an offset.
    #[inline(always)]
    pub(super) fn at(space: &'s Space<M>, at: u64) -> Self {
        Self { space, lines: space.region().at(Offset::new(at)), at }
    }

    /// An empty node. It is zeroed, so it has no entries and no sibling.
    pub(super) fn create(space: &'s Space<M>, level: u64) -> Result<Self, SpaceFull> {
        assert!(level <= LEVEL_MASK, "a tree of {level} levels");
        let node = Self::at(space, space.alloc_aligned(NODE, NODE)?);
        node.store(SIBLING, level);
        Ok(node)
    }

    pub(super) fn offset(self) -> u64 {
        self.at
    }

    #[inline(always)]
    fn word(self, index: usize) -> &'s Word {
        &self.lines[index / 8].0[index % 8]
    }

    #[inline(always)]
    fn load(self, index: usize) -> u64 {
        self.word(index).load(self.space.medium(), Acquire)
    }

    #[inline(always)]
    fn store(self, index: usize, value: u64) {
        self.word(index).store(self.space.medium(), value, Release);
    }

    /// The key of an entry; 0 ends the entries.
    #[inline(always)]
    fn key(self, slot: usize) -> u64 {
        if slot == CAPACITY { 0 } else { self.load(FIRST + 2 * slot) }
    }

    fn set_key(self, slot: usize, key: u64) {
        self.store(FIRST + 2 * slot, key);
    }

    #[inline(always)]
    fn value(self, slot: usize) -> u64 {
        self.load(FIRST + 2 * slot + 1)
    }

    fn set_value(self, slot: usize, value: u64) {
        self.store(FIRST + 2 * slot + 1, value);
    }

    pub(super) fn level(self) -> u64 {
        self.load(SIBLING) & LEVEL_MASK
    }

    fn sibling(self) -> u64 {
        self.load(SIBLING) & !LEVEL_MASK
    }

    pub(super) fn leftmost(self) -> u64 {
        self.load(LEFTMOST)
    }

    /// Sets the leftmost child of a node that no other thread knows, and makes the node durable.
    pub(super) fn begin_with(self, leftmost: u64) {
        self.store(LEFTMOST, leftmost);
        self.persist_all();
    }

    /// Makes a node without entries durable.
    pub(super) fn persist_all(self) {
        // PERSIST: the node before any word names it.
        self.space.region().persist(self.lines);
    }

    /// Makes the line of an entry durable.
    fn persist(self, slot: usize) {
        // PERSIST: all changes of a line, before a line that depends on them changes.
        self.space.region().persist(&self.lines[line_of(slot)]);
    }

    /// The right sibling of a locked node.
    pub(super) fn right(self) -> Option<Right> {
        let (low, at) = (self.load(HIGH), self.sibling());
        (low != 0).then_some(Right { at, low })
    }

    /// Number of entries of a locked node.
    pub(super) fn count(self) -> usize {
        (0..CAPACITY).find(|&slot| self.key(slot) == 0).unwrap_or(CAPACITY)
    }

    /// The entry of a locked inner node that names this child.
    pub(super) fn slot_of(self, child: u64) -> Option<usize> {
        (0..self.count()).find(|&slot| self.value(slot) == child)
    }

    /// Searches for a key, while a writer may shift entries.
    #[inline]
    pub(super) fn search<K: KeyForm>(self, key: &K::Key) -> Seen {
        loop {
            if let Some(seen) = self.try_search::<K>(key) {
                return seen;
            }
            spin_loop();
        }
    }

    /// Searches for a key. Nothing, if what it read changed meanwhile.
    ///
    /// Of two equal keys in a row the right one counts: the left one is about to be overwritten, or
    /// has a value that is not its own. The answer of a search depends on two neighbours only, the
    /// last key up to the searched one and the first beyond it. They belong together, and to the
    /// value, if both are the same before and after the search reads it, and no shift changed its
    /// direction. In one direction, the keys of a slot only fall or only rise.
    #[inline(always)]
    fn try_search<K: KeyForm>(self, key: &K::Key) -> Option<Seen> {
        let (turns, high) = (self.load(TURNS), self.load(HIGH));
        let (mut place, mut last, mut is_found) = (0, 0, false);
        let next = loop {
            let word = self.key(place);
            if word == 0 {
                break word;
            }
            if word != last {
                if is_found {
                    break word;
                }
                match K::compare(self.space, key, word) {
                    Ordering::Less => break word,
                    order => is_found = order == Ordering::Equal,
                }
            }
            (last, place) = (word, place + 1);
        };
        let value = if place == 0 { self.load(LEFTMOST) } else { self.value(place - 1) };
        // ORDER: Acquire: the second loads of all of these stay behind the value's.
        let sibling = self.load(SIBLING);
        let is_same = (place == 0 || self.key(place - 1) == last)
            && self.key(place) == next
            && self.load(HIGH) == high
            && self.load(TURNS) == turns;
        let right = (next == 0 && high != 0).then_some(Right { at: sibling & !LEVEL_MASK, low: high });
        is_same.then_some(Seen { place, is_found, value, right })
    }

    /// All entries, while a writer may shift them.
    pub(super) fn entries(self) -> Entries {
        loop {
            if let Some(entries) = self.try_entries() {
                return entries;
            }
            spin_loop();
        }
    }

    fn try_entries(self) -> Option<Entries> {
        let (turns, sibling) = (self.load(TURNS), self.load(SIBLING));
        let mut keys = [0; CAPACITY + 1];
        let count = (0..CAPACITY).find(|&slot| {
            keys[slot] = self.key(slot);
            keys[slot] == 0
        });
        let count = count.unwrap_or(CAPACITY);
        let mut entries = Entries { all: [(0, 0); CAPACITY], count: 0, sibling: sibling & !LEVEL_MASK };
        for slot in 0..count {
            // Of two equal keys in a row, the right one counts.
            if keys[slot] != keys[slot + 1] {
                entries.all[entries.count] = (keys[slot], self.value(slot));
                entries.count += 1;
            }
        }
        let is_same = (0..=count).all(|slot| self.key(slot) == keys[slot])
            && self.load(SIBLING) == sibling
            && self.load(TURNS) == turns;
        is_same.then_some(entries)
    }

    /// Notes the direction of the next shift, for searches that go on meanwhile. Not durable: after
    /// a crash there is no search.
    fn turn(self, shift: Shift) {
        let turns = self.load(TURNS);
        if turns % 2 != shift as u64 {
            self.store(TURNS, turns + 1);
        }
    }

    /// FAST: inserts an entry at `place` into a locked node of `count` entries, which has room.
    ///
    /// Entries shift to the right, the last one first, each value before its key. So at any time
    /// each entry has its key and value somewhere, and an incomplete one has the key of its right
    /// neighbour. A line is written back as soon as the shift leaves it: what it overwrites next is
    /// durable there.
    pub(super) fn insert(self, place: usize, count: usize, key: u64, value: u64) {
        assert!(place <= count && count < CAPACITY && key != 0, "entry {place} of {count}");
        self.turn(Shift::Right);
        self.end_at(count + 1);
        for slot in (place + 1..=count).rev() {
            self.set_value(slot, self.value(slot - 1));
            self.set_key(slot, self.key(slot - 1));
            if starts_line(slot) {
                self.persist(slot);
            }
        }
        self.set_value(place, value);
        self.set_key(place, key);
        self.persist(place);
    }

    /// Ends the entries of a locked node at `slot`, before the slot to the left is used: a split
    /// leaves old keys there.
    fn end_at(self, slot: usize) {
        if slot < CAPACITY && self.key(slot) != 0 {
            self.set_key(slot, 0);
            if starts_line(slot) {
                self.persist(slot);
            }
        }
    }

    /// FAST: removes the entry at `place` of a locked node of `count` entries.
    ///
    /// Entries shift to the left, the first one first, each key before its value: as in
    /// [`Node::insert`], an incomplete entry has the key of its right neighbour.
    pub(super) fn remove(self, place: usize, count: usize) {
        assert!(place < count && count <= CAPACITY, "entry {place} of {count}");
        self.turn(Shift::Left);
        for slot in place..count - 1 {
            self.set_key(slot, self.key(slot + 1));
            self.set_value(slot, self.value(slot + 1));
            if starts_line(slot + 1) {
                self.persist(slot);
            }
        }
        self.set_key(count - 1, 0);
        self.persist(count - 1);
    }

    /// Replaces the value of an entry of a locked leaf.
    pub(super) fn replace(self, place: usize, value: u64) {
        self.set_value(place, value);
        self.persist(place);
    }

    /// FAIR: copies the right half of this locked and full node to `right`, which is durable on
    /// return. The middle key of an inner node goes to its parent only.
    pub(super) fn copy_half(self, right: Self) {
        right.store(HIGH, self.load(HIGH));
        right.store(SIBLING, self.load(SIBLING));
        let from = if self.level() == 0 {
            right.store(LOW, self.key(MIDDLE));
            MIDDLE
        } else {
            right.store(LEFTMOST, self.value(MIDDLE));
            MIDDLE + 1
        };
        for slot in from..CAPACITY {
            right.set_value(slot - from, self.value(slot));
            right.set_key(slot - from, self.key(slot));
        }
        let bytes = (FIRST + 2 * (CAPACITY - from)) * 8;
        self.space.region().write_back_bytes(right.at, bytes);
        // PERSIST: the right half before the left one names it.
        self.space.region().fence();
    }

    /// FAIR: links the right half, then cuts it off here. Each step leaves a tree in which every
    /// key is found; [`Node::repair`] goes on from there.
    pub(super) fn link_half(self, right: Self) {
        self.store(SIBLING, right.at | self.level());
        // Second: a search that reads this finds the sibling, too.
        self.store(HIGH, self.key(MIDDLE));
        // PERSIST: the link before the cut; else a crash loses the right half.
        self.space.region().persist(&self.lines[0]);
        self.set_key(MIDDLE, 0);
        self.persist(MIDDLE);
    }

    /// Takes over the entries and the range of the right sibling; both are leaves, locked, and have
    /// few entries.
    ///
    /// The steps of a split in reverse order: after a crash, [`Node::repair`] sees a split and
    /// completes it, so it undoes an incomplete merge.
    pub(super) fn absorb(self, right: Self) {
        let (count, more) = (self.count(), right.count());
        assert!(count + more < CAPACITY && self.sibling() == right.at, "{count} and {more} entries");
        // A search that began before an earlier split may still read beyond the last entry.
        self.store(TURNS, self.load(TURNS) + 2);
        if more > 0 {
            for slot in (0..more).rev() {
                self.set_value(count + slot, right.value(slot));
                if slot > 0 {
                    self.set_key(count + slot, right.key(slot));
                }
            }
            self.set_key(count + more, 0);
            let first = (FIRST + 2 * count) * 8;
            let bytes = (FIRST + 2 * (count + more) + 1) * 8 - first;
            self.space.region().write_back_bytes(self.at + first as u64, bytes);
            // PERSIST: all entries and their end, before the first one makes them visible.
            self.space.region().fence();
            self.set_key(count, right.key(0));
            self.persist(count);
        }
        self.store(HIGH, right.load(HIGH));
        self.store(SIBLING, right.load(SIBLING));
        // PERSIST: the merge, before a writer changes what was merged.
        self.space.region().persist(&self.lines[0]);
    }

    /// Completes what a crash has cut off: a shift, then a split. The node is locked.
    pub(super) fn repair<K: KeyForm>(self) {
        while let Some(left) = self.left_of_equals() {
            self.remove(left, self.count());
        }
        let Some(low) = self.low_of_sibling() else { return };
        if self.load(HIGH) != low {
            self.store(HIGH, low);
            // PERSIST: as in a split, the link before the cut.
            self.space.region().persist(&self.lines[0]);
        }
        let first = K::read(self.space, low);
        let is_moved = |&slot: &usize| K::compare(self.space, first.borrow(), self.key(slot)).is_le();
        if let Some(moved) = (0..self.count()).find(is_moved) {
            self.set_key(moved, 0);
            self.persist(moved);
        }
    }

    /// The left one of two entries with one key.
    fn left_of_equals(self) -> Option<usize> {
        (1..self.count()).find(|&slot| self.key(slot) == self.key(slot - 1)).map(|slot| slot - 1)
    }

    /// The least key that belongs to the right sibling of a node that may be incomplete. The
    /// sibling of an inner node does not hold it, but as long as the node is not cut, this does.
    fn low_of_sibling(self) -> Option<u64> {
        if self.sibling() == 0 {
            return None;
        }
        let right = Self::at(self.space, self.sibling());
        match self.level() {
            0 => Some(right.load(LOW)),
            _ => self.slot_of(right.leftmost()).map(|slot| self.key(slot)),
        }
    }
}
