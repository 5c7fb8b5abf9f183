//! A node: its words, and how they are read and stored.
//!
//! ```text
//!   line 0      | lock | shape | state | permutation | next | high | low | joining |
//!   lines 1..5  | slice 0 | word 0 | ... | slice 14 | word 14 | last entry | its complement |
//! ```
//! A slot lies in one line, so an entry costs one write-back. `high` means nothing without a next
//! node. `joining` leads to the left neighbour while that one's entries are copied to this node.

use super::entry::Entry;
use super::head::{Shape, State};
use super::permutation::{Permutation, WIDTH};
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use terrace_medium::{LINE, Line, Medium, Offset, Region, Word};
use terrace_pool::Lock;

/// A node in the pool.
pub(super) type Lines = [Line; 5];

pub(super) const NODE_BYTES: usize = size_of::<Lines>();

const SHAPE: usize = 1;
const STATE: usize = 2;
const PERMUTATION: usize = 3;
const NEXT: usize = 4;
const HIGH: usize = 5;
const LOW: usize = 6;
const JOINING: usize = 7;

/// Words of the head.
const HEAD: usize = LINE / 8;

/// The highest slice of a parent's entry that leads to the node, at most, and its complement.
const LAST_ENTRY: usize = HEAD + 2 * WIDTH;

const _: () = assert!(LAST_ENTRY + 2 == NODE_BYTES / 8);

/// What a new node has.
pub(super) struct Content<'c> {
    pub(super) shape: Shape,
    pub(super) next: Entry,
    pub(super) high: u64,
    pub(super) low: u64,
    /// See [`Node::last_entry`].
    pub(super) last_entry: u64,
    /// Slices and words, in order.
    pub(super) entries: &'c [(u64, u64)],
}

impl Content<'_> {
    /// The lines of the node.
    pub(super) fn image(&self) -> [[u64; HEAD]; 5] {
        let mut lines = [[0; HEAD]; 5];
        let words = lines.as_flattened_mut();
        let permutation = Permutation::of(self.entries.len());
        words[SHAPE] = self.shape.0;
        words[STATE] = State::new(permutation).0;
        words[PERMUTATION] = permutation.0;
        (words[NEXT], words[HIGH], words[LOW]) = (self.next.0, self.high, self.low);
        (words[LAST_ENTRY], words[LAST_ENTRY + 1]) = (self.last_entry, !self.last_entry);
        for (pair, &(slice, word)) in words[HEAD..].chunks_exact_mut(2).zip(self.entries) {
            pair.copy_from_slice(&[slice, word]);
        }
        lines
    }
}

/// A node in the pool.
#[derive(Clone, Copy)]
pub(super) struct Node<'g>(&'g Lines);

impl PartialEq for Node<'_> {
    fn eq(&self, other: &Self) -> bool {
        std::ptr::eq(self.0, other.0)
    }
}

impl<'g> Node<'g> {
    /// The node at an offset; `None` if none can lie there.
    #[inline(always)]
    pub(super) fn at<M: Medium>(region: &'g Region<M>, offset: u64) -> Option<Self> {
        region.get(Offset::new(offset)).map(Self)
    }

    pub(super) fn offset<M: Medium>(self, region: &Region<M>) -> u64 {
        region.offset_of(self.0).raw()
    }

    pub(super) fn lines(self) -> &'g Lines {
        self.0
    }

    pub(super) fn head(self) -> &'g Line {
        &self.0[0]
    }

    /// The line of a slot.
    pub(super) fn line_of(self, slot: usize) -> &'g Line {
        &self.0[1 + slot / 4]
    }

    #[inline(always)]
    pub(super) fn lock(self) -> &'g Lock {
        Lock::of(&self.0[0].0[0])
    }

    #[inline(always)]
    fn word(self, index: usize) -> &'g Word {
        &self.0[index / HEAD].0[index % HEAD]
    }

    #[inline(always)]
    pub(super) fn shape(self, medium: &impl Medium) -> Shape {
        Shape(self.word(SHAPE).load(medium, Relaxed))
    }

    /// Stores the part of the shape that may change. Called under the lock.
    pub(super) fn set_shape(self, medium: &impl Medium, shape: Shape) {
        self.word(SHAPE).store(medium, shape.0, Relaxed);
    }

    /// ORDER: Acquire: what follows is read after the state. A reader that sees a frozen node sees
    /// the low slice of the next one.
    #[inline(always)]
    pub(super) fn state<M: Medium>(self, medium: &M) -> State {
        State(self.word(STATE).load(medium, Acquire))
    }

    /// ORDER: Release: a reader that sees a slot's new content sees the counter that came before.
    #[inline(always)]
    pub(super) fn set_state<M: Medium>(self, medium: &M, state: State) {
        self.word(STATE).store(medium.point("masstree.state"), state.0, Release);
    }

    /// ORDER: Acquire: pairs with the Release of the store. The entries are visible, and a reader
    /// that sees a permutation without the moved half sees the high slice and the next node.
    #[inline(always)]
    pub(super) fn permutation<M: Medium>(self, medium: &M) -> Permutation {
        Permutation(self.word(PERMUTATION).load(medium, Acquire))
    }

    #[inline(always)]
    pub(super) fn set_permutation<M: Medium>(self, medium: &M, permutation: Permutation) {
        // ORDER: Release: see `permutation`.
        self.word(PERMUTATION).store(medium.point("masstree.permutation"), permutation.0, Release);
    }

    /// ORDER: Acquire: the node is visible.
    #[inline(always)]
    pub(super) fn next<M: Medium>(self, medium: &M) -> Entry {
        Entry(self.word(NEXT).load(medium, Acquire))
    }

    pub(super) fn set_next<M: Medium>(self, medium: &M, next: Entry) {
        // ORDER: Release: see `next`.
        self.word(NEXT).store(medium.point("masstree.next"), next.0, Release);
    }

    /// ORDER: Acquire: a reader that sees the high slice sees the next node that was stored before
    /// it.
    #[inline(always)]
    pub(super) fn high<M: Medium>(self, medium: &M) -> u64 {
        self.word(HIGH).load(medium, Acquire)
    }

    pub(super) fn set_high<M: Medium>(self, medium: &M, high: u64) {
        // ORDER: Release: see `high`.
        self.word(HIGH).store(medium.point("masstree.high"), high, Release);
    }

    /// ORDER: Acquire: a reader that sees a lower one sees the entries that came with it.
    #[inline(always)]
    pub(super) fn low<M: Medium>(self, medium: &M) -> u64 {
        self.word(LOW).load(medium, Acquire)
    }

    pub(super) fn set_low<M: Medium>(self, medium: &M, low: u64) {
        // ORDER: Release: with the state of the node before, which is frozen later.
        self.word(LOW).store(medium.point("masstree.low"), low, Release);
    }

    /// The highest slice of a parent's entry that leads to this node, at most.
    pub(super) fn last_entry<M: Medium>(self, medium: &M) -> u64 {
        let load = |index| self.word(index).load(medium, Relaxed);
        let (last, complement) = (load(LAST_ENTRY), load(LAST_ENTRY + 1));
        if last == !complement { last } else { u64::MAX }
    }

    /// The node whose entries are being copied to this one.
    ///
    /// ORDER: Acquire: the low slice is read after it.
    pub(super) fn joining<M: Medium>(self, medium: &M) -> Entry {
        Entry(self.word(JOINING).load(medium, Acquire))
    }

    /// Called under the lock.
    pub(super) fn set_joining<M: Medium>(self, medium: &M, joining: Entry) {
        // ORDER: Release: the next holder of a dead thread's lock sees the stores in their order.
        self.word(JOINING).store(medium.point("masstree.joining"), joining.0, Release);
    }

    /// ORDER: Acquire: the state is read after it (invariant 1).
    #[inline(always)]
    pub(super) fn slice<M: Medium>(self, medium: &M, slot: usize) -> u64 {
        self.word(HEAD + 2 * slot).load(medium, Acquire)
    }

    /// ORDER: Acquire: the same; and what the word leads to is visible.
    #[inline(always)]
    pub(super) fn word_at<M: Medium>(self, medium: &M, slot: usize) -> u64 {
        self.word(HEAD + 2 * slot + 1).load(medium, Acquire)
    }

    #[inline(always)]
    pub(super) fn entry<M: Medium>(self, medium: &M, slot: usize) -> Entry {
        Entry(self.word_at(medium, slot))
    }

    /// Gives a slot another word. Called under the lock.
    pub(super) fn set_word<M: Medium>(self, medium: &M, slot: usize, word: u64) {
        // ORDER: Release: see `word_at`.
        self.word(HEAD + 2 * slot + 1).store(medium.point("masstree.word"), word, Release);
    }

    /// Fills a free slot. Called under the lock, when the state says so.
    pub(super) fn fill<M: Medium>(self, medium: &M, slot: usize, slice: u64, word: u64) {
        // ORDER: Release: a reader that sees one of the two sees the state before (see
        // `set_state`).
        self.word(HEAD + 2 * slot).store(medium.point("masstree.slice"), slice, Release);
        self.word(HEAD + 2 * slot + 1).store(medium, word, Release);
    }
}
