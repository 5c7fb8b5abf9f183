//! A node of the bottom layer (*Bnode*, 4.4.1): its words, and how they are read and stored.
//!
//! ```text
//!   line 0  | lock | state | bitmap | checks | next | high | low | counted 16, merged 48 |
//!   line 1  | tags: a byte a slot |
//!   integers      lines 2..18  | key 0 | word 0 | ... | key 63 | word 63 |
//!   byte strings  lines 2..10  | slot 0 | ... | slot 63 |
//! ```
//! `high` means nothing without a next node. Both it and `low` are integers, or links to a
//! *border* (see `border`).

use super::super::keys::OrderedKind;
use super::head::{Checks, State, Tags};
use super::word::Entry;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use terrace_medium::{LINE, Line, Medium, Offset, Region, Word};
use terrace_pool::Lock;

/// Slots of a node.
pub(super) const WIDTH: usize = 64;

const STATE: usize = 1;
const BITMAP: usize = 2;
const CHECKS: usize = 3;
const NEXT: usize = 4;
const HIGH: usize = 5;
const LOW: usize = 6;
const NUMBERS: usize = 7;

const COUNTED_AT: u32 = 48;

/// Lines before the slots.
const FRONT: usize = 2;
/// Words of a line.
const WORDS: usize = LINE / 8;
/// Lines of the slots of integers, and of byte strings.
const PAIRS: usize = WIDTH * 2 / WORDS;
const SINGLES: usize = WIDTH / WORDS;

/// Bytes of a node.
pub(super) const fn node_bytes<K: OrderedKind>() -> usize {
    (FRONT + if K::LEAF_BYTES > 0 { PAIRS } else { SINGLES }) * LINE
}

/// Words of a slot.
const fn slot_words<K: OrderedKind>() -> usize {
    if K::LEAF_BYTES > 0 { 2 } else { 1 }
}

/// A pair in order: an integer and its word, or 0 and the slot of a byte string.
pub(super) type Pair = (u64, u64);

/// What a new node has.
pub(super) struct Content<'c> {
    pub(super) next: Entry,
    pub(super) high: u64,
    pub(super) low: u64,
    /// The number of the last recount.
    pub(super) counted: u16,
    /// The number of the last buffered change.
    pub(super) merged: u64,
    /// Tags and pairs, at most as many as a node has slots.
    pub(super) entries: &'c [(u8, Pair)],
}

impl Content<'_> {
    /// The lines of the node.
    pub(super) fn image<K: OrderedKind>(&self) -> Vec<[u64; WORDS]> {
        let mut lines = vec![[0; WORDS]; node_bytes::<K>() / LINE];
        let bitmap = bits_below(self.entries.len());
        let mut tags: Tags = [0; WORDS];
        for (slot, &(tag, (key, word))) in self.entries.iter().enumerate() {
            tags[slot / 8] |= u64::from(tag) << (8 * (slot % 8));
            let at = slot * slot_words::<K>();
            let words = lines[FRONT..].as_flattened_mut();
            if K::LEAF_BYTES > 0 {
                words[at..at + 2].copy_from_slice(&[key, word]);
            } else {
                words[at] = word;
            }
        }
        let (state, checks, next) = (State::new().0, Checks::of(bitmap, &tags).0, self.next.0);
        let numbers = u64::from(self.counted) << COUNTED_AT | self.merged;
        lines[0] = [0, state, bitmap, checks, next, self.high, self.low, numbers];
        lines[1] = tags;
        lines
    }
}

/// The lowest so many bits, 64 at most.
pub(super) fn bits_below(count: usize) -> u64 {
    assert!(count <= WIDTH, "{count} slots of {WIDTH}");
    1u64.checked_shl(count as u32).map_or(u64::MAX, |above| above - 1)
}

/// The positions of the bits of a bitmap, the lowest first.
pub(super) fn slots_of(mut bitmap: u64) -> impl Iterator<Item = usize> {
    std::iter::from_fn(move || {
        let slot = (bitmap != 0).then(|| bitmap.trailing_zeros() as usize);
        bitmap &= bitmap.wrapping_sub(1);
        slot
    })
}

/// A node in the pool.
#[derive(Clone, Copy)]
pub(super) struct Node<'g> {
    front: &'g [Line; FRONT],
    slots: &'g [Line],
}

impl PartialEq for Node<'_> {
    fn eq(&self, other: &Self) -> bool {
        std::ptr::eq(self.front, other.front)
    }
}

impl<'g> Node<'g> {
    /// The node at an offset; `None` if none can lie there.
    #[inline(always)]
    pub(super) fn at<M: Medium, K: OrderedKind>(region: &'g Region<M>, offset: u64) -> Option<Self> {
        let front = region.get(Offset::new(offset))?;
        let slots = offset + (FRONT * LINE) as u64;
        let slots: &[Line] = match K::LEAF_BYTES > 0 {
            true => region.get(Offset::<[Line; PAIRS]>::new(slots))?,
            false => region.get(Offset::<[Line; SINGLES]>::new(slots))?,
        };
        Some(Self { front, slots })
    }

    pub(super) fn offset<M: Medium>(self, region: &Region<M>) -> u64 {
        region.offset_of(self.front).raw()
    }

    /// All of its lines.
    pub(super) fn lines(self) -> impl Iterator<Item = &'g Line> {
        self.front.iter().chain(self.slots)
    }

    /// The line of the lock, the bitmap, and what leads to other nodes.
    #[inline(always)]
    pub(super) fn head(self) -> &'g Line {
        &self.front[0]
    }

    /// The line of the tags.
    #[inline(always)]
    pub(super) fn tag_line(self) -> &'g Line {
        &self.front[1]
    }

    /// The line of a slot.
    #[inline(always)]
    pub(super) fn line_of<K: OrderedKind>(self, slot: usize) -> &'g Line {
        &self.slots[slot * slot_words::<K>() / WORDS]
    }

    #[inline(always)]
    pub(super) fn lock(self) -> &'g Lock {
        Lock::of(&self.front[0].0[0])
    }

    #[inline(always)]
    fn word(self, index: usize) -> &'g Word {
        &self.front[0].0[index]
    }

    #[inline(always)]
    fn slot_word(self, at: usize) -> &'g Word {
        &self.slots[at / WORDS].0[at % WORDS]
    }

    /// ORDER: Acquire: what follows is read after the state.
    #[inline(always)]
    pub(super) fn state<M: Medium>(self, medium: &M) -> State {
        State(self.word(STATE).load(medium, Acquire))
    }

    /// ORDER: Release: a reader that sees what is stored later sees the state, too.
    pub(super) fn set_state<M: Medium>(self, medium: &M, state: State) {
        self.word(STATE).store(medium.point("sptree.state"), state.0, Release);
    }

    /// ORDER: Acquire: pairs with the Release of the store. The slots are visible, and a reader
    /// that sees the bitmap without the moved half sees where that is.
    #[inline(always)]
    pub(super) fn bitmap<M: Medium>(self, medium: &M) -> u64 {
        self.word(BITMAP).load(medium, Acquire)
    }

    /// Gives the node another bitmap. Called under the lock.
    #[inline(always)]
    pub(super) fn publish<M: Medium>(self, medium: &M, bitmap: u64) {
        // A reader that finds the same state before and after it has read the node knows that no
        // key came or went meanwhile.
        self.set_state(medium, self.state(medium).counting());
        let (tags, held) = (self.tags(medium), Checks(self.word(CHECKS).load(medium, Relaxed)));
        let new = Checks::of(bitmap, &tags);
        // A crash between the stores below has left checks that admit another content, too.
        let old = if held.is_single() { held } else { Checks::of(self.bitmap(medium), &tags) };
        // ORDER: Release: see `bitmap`. A reader, and a crash, see the checks that admit the bitmap
        // that they see: all lie in one line.
        self.word(CHECKS).store(medium.point("sptree.checks"), new.after(old).0, Release);
        self.word(BITMAP).store(medium.point("sptree.bitmap"), bitmap, Release);
        self.word(CHECKS).store(medium.point("sptree.checked"), new.0, Release);
    }

    /// Whether a bitmap that was read fits its check.
    ///
    /// ORDER: Acquire: the bitmap is read again after it, to see whether both are of one time.
    #[inline(always)]
    pub(super) fn admits(self, medium: &impl Medium, bitmap: u64) -> bool {
        Checks(self.word(CHECKS).load(medium, Acquire)).admit(bitmap)
    }

    /// The same, with the tags.
    pub(super) fn admits_with_tags(self, medium: &impl Medium, bitmap: u64) -> bool {
        let tags = self.tags(medium);
        Checks(self.word(CHECKS).load(medium, Acquire)).admit_all(bitmap, &tags)
    }

    /// ORDER: Acquire: the node is visible.
    #[inline(always)]
    pub(super) fn next<M: Medium>(self, medium: &M) -> Entry {
        Entry(self.word(NEXT).load(medium, Acquire))
    }

    pub(super) fn set_next<M: Medium>(self, medium: &M, next: Entry) {
        // ORDER: Release: see `next`.
        self.word(NEXT).store(medium.point("sptree.next"), next.0, Release);
    }

    /// ORDER: Acquire: a reader that sees another end sees the next node that was stored before it.
    #[inline(always)]
    pub(super) fn high<M: Medium>(self, medium: &M) -> u64 {
        self.word(HIGH).load(medium, Acquire)
    }

    pub(super) fn set_high<M: Medium>(self, medium: &M, high: u64) {
        // ORDER: Release: see `high`.
        self.word(HIGH).store(medium.point("sptree.high"), high, Release);
    }

    /// Never changes.
    #[inline(always)]
    pub(super) fn low(self, medium: &impl Medium) -> u64 {
        self.word(LOW).load(medium, Relaxed)
    }

    /// The number of the last recount that has passed the node.
    pub(super) fn counted(self, medium: &impl Medium) -> u16 {
        (self.numbers(medium) >> COUNTED_AT) as u16
    }

    /// Called under the lock.
    pub(super) fn set_counted(self, medium: &impl Medium, counted: u16) {
        let merged = self.merged(medium);
        self.word(NUMBERS).store(medium, u64::from(counted) << COUNTED_AT | merged, Relaxed);
    }

    /// The number of the last buffered change that the node has (see `log`).
    pub(super) fn merged(self, medium: &impl Medium) -> u64 {
        self.numbers(medium) & ((1 << COUNTED_AT) - 1)
    }

    /// Called under the lock. ORDER: Release: a crash that keeps it keeps the bitmap, which lies in
    /// its line and has these changes.
    pub(super) fn set_merged<M: Medium>(self, medium: &M, merged: u64) {
        let counted = u64::from(self.counted(medium)) << COUNTED_AT;
        self.word(NUMBERS).store(medium.point("sptree.merged"), counted | merged, Release);
    }

    /// Both numbers of the last word.
    fn numbers(self, medium: &impl Medium) -> u64 {
        self.word(NUMBERS).load(medium, Relaxed)
    }

    fn tags(self, medium: &impl Medium) -> Tags {
        // ORDER: Acquire: before the checks. Tags of slots in use do not change.
        std::array::from_fn(|nth| self.front[1].0[nth].load(medium, Acquire))
    }

    #[inline(always)]
    pub(super) fn tag(self, medium: &impl Medium, slot: usize) -> u8 {
        (self.front[1].0[slot / 8].load(medium, Acquire) >> (8 * (slot % 8))) as u8
    }

    /// A bit for each slot with this tag.
    #[inline(always)]
    pub(super) fn tagged(self, medium: &impl Medium, tag: u8) -> u64 {
        let low = self.front[1].equal_bytes::<0, 4>(medium, tag);
        let high = self.front[1].equal_bytes::<4, 4>(medium, tag);
        u64::from(high) << 32 | u64::from(low)
    }

    /// The pair of a slot.
    ///
    /// ORDER: Acquire: the state is read after it, and what the word leads to is visible.
    #[inline(always)]
    pub(super) fn pair<K: OrderedKind>(self, medium: &impl Medium, slot: usize) -> Pair {
        if K::LEAF_BYTES > 0 {
            let key = self.slot_word(2 * slot).load(medium, Acquire);
            return (key, self.slot_word(2 * slot + 1).load(medium, Acquire));
        }
        (0, self.slot_word(slot).load(medium, Acquire))
    }

    /// Gives a slot another word. Called under the lock.
    pub(super) fn set_word<M: Medium, K: OrderedKind>(self, medium: &M, slot: usize, word: u64) {
        let at = slot * slot_words::<K>() + slot_words::<K>() - 1;
        // ORDER: Release: see `pair`.
        self.slot_word(at).store(medium.point("sptree.word"), word, Release);
    }

    /// Fills a free slot. Called under the lock.
    pub(super) fn fill<M: Medium, K: OrderedKind>(self, medium: &M, slot: usize, tag: u8, pair: Pair) {
        let (shift, tags) = (8 * (slot % 8), &self.front[1].0[slot / 8]);
        let others = tags.load(medium, Relaxed) & !(0xff << shift);
        // ORDER: Release: a reader that sees one of these sees the state that counted when the slot
        // became free.
        tags.store(medium.point("sptree.tag"), others | u64::from(tag) << shift, Release);
        if K::LEAF_BYTES > 0 {
            self.slot_word(2 * slot).store(medium, pair.0, Release);
        }
        self.set_word::<M, K>(medium, slot, pair.1);
    }
}
