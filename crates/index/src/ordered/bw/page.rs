//! Pages: what is fixed of them once they are in the tree.
//!
//! ```text
//!   | header, 1 line | marks, 1 line | slots, 32 bytes each |
//!   | low | high | heads | ends | rests | words |
//!
//!   header  | 63:56 level | 55:40 entries | 39:16 skip | 15:0 magic |
//!           | 63:32 number | 31:8 generation | 7:0 epoch in which it was written |
//!           | 63:32 number of the right neighbour | 31:0 lines of the block |
//!           | 63:32 length of high, + 1 | 31:0 length of low |
//!           | head of high |
//!           | 63:32 sum of a leaf's words | 31:0 sum of the rest behind the slots |
//!           | 63:40 0 | 39:32 slots | 31:0 bytes of the rests |
//!           | check of the other seven |
//! ```
//! A page has the keys from `low` on up to, but not, `high`. All begin with the same `skip` bytes.
//! An entry's head is the eight bytes behind them, big-endian and padded with zeros. A leaf (level
//! 0) has a word for each key. Another page has the number of a page for each key, the lowest of
//! that page's keys; the first one is its own `low`. For byte strings it also has the rest of each
//! key behind `skip`, and where each rest ends. Only leaves have marks and slots (see `slots`).
//! Marks are 0, and words stay, but in a full pool (see `in_place`).

use super::super::keys::OrderedKind;
use super::entry::{Entry, GRACE};
use super::slots::before_body;
use std::cmp::Ordering;
use std::marker::PhantomData;
use std::sync::atomic::Ordering::{Acquire, Relaxed};
use terrace_medium::{LINE, Line, MappedMedium, Offset, Word};
use terrace_pool::Guard;

/// The number of a page: its place in the mapping table.
pub(super) type Pid = u32;

/// No page.
pub(super) const NO_PAGE: Pid = Pid::MAX;

/// The number of the root page, which never changes.
pub(super) const ROOT_PAGE: Pid = 0;

pub(super) const MAGIC: u64 = 0xb371;
/// Entries of a page at most.
pub(super) const ENTRIES_MAX: usize = 0x3fff;
pub(super) const LEVELS_MAX: usize = 64;

const ODD: [u64; 4] =
    [0x9e37_79b9_7f4a_7c15, 0xbf58_476d_1ce4_e5b9, 0x94d0_49bb_1331_11eb, 0xd6e8_feb8_6659_fd93];

/// The check of a header's first seven words.
#[inline(always)]
pub(super) fn header_check(words: &[u64; 7]) -> u64 {
    let sum = |nth: usize| (words[nth] ^ ODD[3 - nth % 4]).wrapping_mul(ODD[nth % 4]);
    let low = sum(0).rotate_left(7) ^ sum(1).rotate_left(17) ^ sum(2).rotate_left(29);
    low ^ sum(3).rotate_left(37) ^ sum(4).rotate_left(43) ^ sum(5).rotate_left(53) ^ sum(6)
}

/// The sum of some words, four rows of them. A change of one word always changes it.
pub(super) fn sum_of(words: impl Iterator<Item = u64>) -> u64 {
    let mut rows = ODD;
    for (nth, word) in words.enumerate() {
        rows[nth % 4] = (rows[nth % 4] ^ word).wrapping_mul(ODD[1]).rotate_left(23);
    }
    rows[0] ^ rows[1].rotate_left(16) ^ rows[2].rotate_left(32) ^ rows[3].rotate_left(48)
}

/// The sum that a header has, of that of all but a leaf's words, and of that of these.
pub(super) fn sums(front: u64, words: u64) -> u64 {
    folded(words) << 32 | folded(front)
}

fn folded(sum: u64) -> u64 {
    (sum ^ sum >> 32) & 0xffff_ffff
}

/// What a header says of the time at which a page is written.
pub(super) fn written_at(generation: u32, epoch: u64) -> u32 {
    generation << 8 | (epoch & 0xff) as u32
}

/// Bits of a record's word; its check lies above.
const WORD_BITS: u32 = 48;

/// A leaf's word as its page has it: a record's has a check, in which any one changed byte shows.
/// The page's sum is not looked at when a key is found, and a record that was replaced may be there
/// still.
#[inline(always)]
pub(super) fn sealed<K: OrderedKind>(word: u64) -> u64 {
    let check = (word ^ word >> 16 ^ word >> 32 ^ 0xb1ed) & 0xffff;
    if K::LEAF_BYTES > 0 { word } else { word & ((1 << WORD_BITS) - 1) | check << WORD_BITS }
}

/// The word of what a page has; 0, where no record is, if that does not fit its check.
#[inline(always)]
fn opened<K: OrderedKind>(stored: u64) -> u64 {
    let word = if K::LEAF_BYTES > 0 { stored } else { stored & ((1 << WORD_BITS) - 1) };
    if sealed::<K>(word) == stored { word } else { 0 }
}

/// As [`sum_of`], of bytes in whole words.
fn sum_of_bytes(bytes: &[u8]) -> u64 {
    let mut rows = ODD;
    let step = |row: u64, word: u64| (row ^ word).wrapping_mul(ODD[1]).rotate_left(23);
    let mut fours = bytes.chunks_exact(32);
    for four in fours.by_ref() {
        for (row, word) in rows.iter_mut().zip(four.chunks_exact(8)) {
            *row = step(*row, word_of(word));
        }
    }
    for (row, word) in rows.iter_mut().zip(fours.remainder().chunks_exact(8)) {
        *row = step(*row, word_of(word));
    }
    rows[0] ^ rows[1].rotate_left(16) ^ rows[2].rotate_left(32) ^ rows[3].rotate_left(48)
}

#[inline(always)]
fn word_of(bytes: &[u8]) -> u64 {
    bytes.first_chunk().map_or(0, |word| u64::from_le_bytes(*word))
}

/// The eight bytes of a key behind its first `skip`, padded with zeros.
#[inline(always)]
pub(super) fn head_of(key: &[u8], skip: usize) -> u64 {
    let rest = key.get(skip..).unwrap_or_default();
    match rest.first_chunk() {
        Some(head) => u64::from_be_bytes(*head),
        None => {
            let mut head = [0; 8];
            head[..rest.len()].copy_from_slice(rest);
            u64::from_be_bytes(head)
        }
    }
}

/// Where a search goes: to the page that has a key, or to the one that ends at it or has the keys
/// right below it.
#[derive(Clone, Copy)]
pub(super) struct Probe<'k> {
    pub(super) key: &'k [u8],
    pub(super) is_before: bool,
}

impl<'k> Probe<'k> {
    #[inline(always)]
    pub(super) fn at(key: &'k [u8]) -> Self {
        Self { key, is_before: false }
    }

    pub(super) fn before(key: &'k [u8]) -> Self {
        Self { key, is_before: true }
    }
}

/// A page in the pool.
pub(super) struct Page<'g, K> {
    pub(super) offset: u64,
    pub(super) level: usize,
    pub(super) len: usize,
    pub(super) skip: usize,
    pub(super) pid: Pid,
    written: u32,
    pub(super) sibling: Pid,
    /// Bytes of its block.
    pub(super) bytes: usize,
    pub(super) slots: usize,
    low_len: usize,
    high_len: Option<usize>,
    high_head: u64,
    sum: u64,
    rests: usize,
    /// All behind the slots; of a leaf, up to its words.
    body: &'g [u8],
    kind: PhantomData<fn() -> K>,
}

impl<K> Clone for Page<'_, K> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<K> Copy for Page<'_, K> {}

const fn padded(bytes: usize) -> usize {
    (bytes + 7) & !7
}

/// The parts of a page behind its slots, in bytes from there.
#[derive(Clone, Copy)]
pub(super) struct Parts {
    pub(super) heads: usize,
    pub(super) ends: usize,
    pub(super) rests: usize,
    pub(super) words: usize,
    pub(super) end: usize,
}

impl Parts {
    #[inline(always)]
    pub(super) fn of(fences: usize, len: usize, has_rests: bool, rests: usize) -> Self {
        let heads = padded(fences);
        let ends = heads + 8 * len;
        let behind = ends + if has_rests { padded(4 * len) } else { 0 };
        let words = behind + padded(rests);
        Self { heads, ends, rests: behind, words, end: words + 8 * len }
    }
}

impl<'g, K: OrderedKind> Page<'g, K> {
    const IS_INTEGER: bool = K::LEAF_BYTES > 0;

    /// The page of an entry; `None` if none lies there, or not the one of this number.
    #[inline(always)]
    pub(super) fn open<M: MappedMedium>(guard: &'g Guard<'_, M>, pid: Pid, entry: Entry) -> Option<Self> {
        let region = guard.pool().region();
        if !entry.is_page() || !entry.is_sound() {
            return None;
        }
        let line: &Line = region.get(Offset::new(entry.offset()))?;
        // ORDER: Relaxed: the entry was loaded with Acquire, and the header never changes.
        let words: [u64; 8] = std::array::from_fn(|nth| line.0[nth].load(region.medium(), Relaxed));
        let first: &[u64; 7] = words.first_chunk()?;
        if words[0] & 0xffff != MAGIC || words[7] != header_check(first) || words[1] >> 32 != u64::from(pid) {
            return None;
        }
        let high = (words[3] >> 32) as usize;
        let mut page = Self {
            offset: entry.offset(),
            level: (words[0] >> 56) as usize,
            len: (words[0] >> 40 & 0xffff) as usize,
            skip: (words[0] >> 16 & 0xff_ffff) as usize,
            pid,
            written: words[1] as u32,
            sibling: (words[2] >> 32) as Pid,
            bytes: (words[2] & 0xffff_ffff) as usize * LINE,
            slots: (words[6] >> 32) as usize,
            low_len: (words[3] & 0xffff_ffff) as usize,
            high_len: high.checked_sub(1),
            high_head: words[4],
            sum: words[5],
            rests: (words[6] & 0xffff_ffff) as usize,
            body: &[],
            kind: PhantomData,
        };
        let (parts, start) = (page.parts(), page.offset + before_body(page.slots) as u64);
        page.body = guard.bytes(start, if page.is_leaf() { parts.words } else { parts.end })?;
        region.holds(start, parts.end).then_some(page)
    }

    #[inline(always)]
    fn parts(&self) -> Parts {
        let fences = self.low_len + self.high_len.unwrap_or(0);
        Parts::of(fences, self.len, self.level > 0 && !Self::IS_INTEGER, self.rests)
    }

    pub(super) fn is_leaf(&self) -> bool {
        self.level == 0
    }

    /// Whether its sum is that of its content.
    pub(super) fn is_whole<M: MappedMedium>(&self, guard: &Guard<'_, M>) -> bool {
        let words = if self.is_leaf() { self.len } else { 0 };
        let words = sum_of((0..words).map(|nth| self.stored_word(guard, nth)));
        sums(sum_of_bytes(self.body), words) == self.sum
    }

    /// As [`Page::is_whole`], of all but a leaf's words, which may be changed in place.
    pub(super) fn is_whole_but_words(&self) -> bool {
        folded(sum_of_bytes(self.body)) == self.sum & 0xffff_ffff
    }

    /// Whether the thread that has written it may still be at that.
    pub(super) fn is_new(&self, generation: u32, epoch: u64) -> bool {
        let age = (epoch as u32).wrapping_sub(self.written) & 0xff;
        self.written >> 8 == generation & 0xff_ffff && u64::from(age) <= GRACE
    }

    pub(super) fn low(&self) -> &'g [u8] {
        &self.body[..self.low_len]
    }

    #[inline(always)]
    pub(super) fn high(&self) -> Option<&'g [u8]> {
        self.high_len.map(|len| &self.body[self.low_len..self.low_len + len])
    }

    /// Whether a probe leads to the right of this page.
    #[inline(always)]
    pub(super) fn is_left_of(&self, probe: Probe<'_>) -> bool {
        let Some(len) = self.high_len else { return false };
        let ordering = if Self::IS_INTEGER && probe.key.len() == 8 && len == 8 {
            self.high_head.cmp(&head_of(probe.key, 0))
        } else {
            self.body[self.low_len..self.low_len + len].cmp(probe.key)
        };
        if probe.is_before { ordering == Ordering::Less } else { ordering != Ordering::Greater }
    }

    /// Whether a probe leads to the left of this page.
    #[inline(always)]
    pub(super) fn is_right_of(&self, probe: Probe<'_>) -> bool {
        let low = self.low();
        if probe.is_before { low >= probe.key && !low.is_empty() } else { low > probe.key }
    }

    #[inline(always)]
    pub(super) fn head(&self, nth: usize) -> u64 {
        word_of(&self.body[self.parts().heads + 8 * nth..])
    }

    /// The place of a word of a leaf.
    #[inline(always)]
    pub(super) fn word_place<'r, M: MappedMedium>(
        &self,
        guard: &'r Guard<'_, M>,
        nth: usize,
    ) -> Option<&'r Word> {
        let start = self.offset + (before_body(self.slots) + self.parts().words) as u64;
        guard.pool().region().get(Offset::new(start + 8 * nth as u64))
    }

    /// A word of a leaf; 0 if it is damaged.
    #[inline(always)]
    pub(super) fn word<M: MappedMedium>(&self, guard: &Guard<'_, M>, nth: usize) -> u64 {
        opened::<K>(self.stored_word(guard, nth))
    }

    #[inline(always)]
    fn stored_word<M: MappedMedium>(&self, guard: &Guard<'_, M>, nth: usize) -> u64 {
        // ORDER: Acquire: pairs with the Release of a change in place.
        self.word_place(guard, nth).map_or(0, |word| word.load(guard.pool().medium(), Acquire))
    }

    /// The heads of all entries.
    #[inline(always)]
    pub(super) fn heads(&self) -> &'g [[u8; 8]] {
        let heads = self.parts().heads;
        self.body[heads..heads + 8 * self.len].as_chunks().0
    }

    /// The rest of an inner page's key behind `skip`; of an integer, its head says all.
    fn rest(&self, nth: usize) -> &'g [u8] {
        let parts = self.parts();
        let end = |nth: usize| {
            let bytes = self.body.get(parts.ends + 4 * nth..).and_then(<[u8]>::first_chunk);
            bytes.map_or(0, |bytes| u32::from_le_bytes(*bytes) as usize)
        };
        let start = if nth == 0 { 0 } else { end(nth - 1) };
        self.body.get(parts.rests + start..parts.rests + end(nth)).unwrap_or_default()
    }

    /// The key of an inner page's entry.
    pub(super) fn key(&self, nth: usize) -> Vec<u8> {
        if nth == 0 {
            return self.low().to_vec();
        }
        if Self::IS_INTEGER {
            return self.head(nth).to_be_bytes().to_vec();
        }
        [&self.low()[..self.skip], self.rest(nth)].concat()
    }

    /// The child of an inner page's entry.
    #[inline(always)]
    pub(super) fn child(&self, nth: usize) -> Pid {
        word_of(&self.body[self.parts().words + 8 * nth..]) as Pid
    }

    /// The entry of an inner page to which a probe leads, which lies within the page.
    #[inline(always)]
    pub(super) fn entry_for(&self, probe: Probe<'_>) -> usize {
        let head = head_of(probe.key, self.skip);
        let (mut low, mut high) = (0, self.len);
        // The entry `low` is not above the probe, that of `high` is.
        while high - low > 1 {
            let middle = low.midpoint(high);
            let ordering = self.head(middle).cmp(&head).then_with(|| self.compare_rest(middle, probe.key));
            let is_above = if probe.is_before { ordering.is_ge() } else { ordering.is_gt() };
            if is_above { high = middle } else { low = middle }
        }
        low
    }

    fn compare_rest(&self, nth: usize, key: &[u8]) -> Ordering {
        if Self::IS_INTEGER {
            return Ordering::Equal;
        }
        self.rest(nth).cmp(key.get(self.skip..).unwrap_or_default())
    }

    /// The entries whose heads equal `head`, of a leaf.
    #[inline(always)]
    pub(super) fn equal_heads(&self, head: u64) -> std::ops::Range<usize> {
        let heads = self.heads();
        let first = heads.partition_point(|bytes| u64::from_le_bytes(*bytes) < head);
        let alike = heads[first..].iter().take_while(|bytes| u64::from_le_bytes(**bytes) == head);
        first..first + if Self::IS_INTEGER { alike.take(1).count() } else { alike.count() }
    }
}

/// How many bytes of the front of two keys are the same.
pub(super) fn common(one: &[u8], other: &[u8]) -> usize {
    one.iter().zip(other).take_while(|(one, other)| one == other).count()
}
