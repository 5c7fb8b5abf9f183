//! A node: a whole trie in one block.
//!
//! ```text
//!   word 0      lock
//!   word 1      shape    | 63:48 obsolete | 47:32 counted | 19:8 fixed | 7:0 check |
//!   word 2      head     | 63:32 check of the content | 31:0 first position |
//!   then        positions: a mask, or distances from the first; 8 bytes or more
//!               bits of the entries, of 1, 2 or 4 bytes each, up to a whole word
//!               links of the entries, a word each
//! ```
//! Words 0 and 1 and the links change in place; what lies between them never does. The shape's
//! fixed part says how many entries and positions there are, and how the positions are stored:
//!
//! * *window*: one mask of the eight bytes from the first position's on, for bits of bytes near
//!   each other;
//! * *near*, *far*, *wide*: distances from the first position, of 1, 2 or 4 bytes, for all others,
//!   ends of keys among them.
//!
//! `counted` is the number of the last recount that has passed the node (see `trace`).

use super::super::link::{EMPTY, KindBits, LEAF, Link};
use super::bits::{BITS, bit, window};
use super::trie::{ENTRIES, Entry, Trie, agreeing, bits_above};
use std::ops::Range;
use std::sync::atomic::Ordering::{Acquire, Release};
use terrace_medium::{LINE, MappedMedium, Medium, Offset, Region, Word, extract_bits};
use terrace_pool::{Guard, Lock};

/// What a link to a node says that it leads to.
pub(super) const NODE: KindBits = LEAF + 1;

/// Bytes before the content, which begins with the head.
const FRONT: usize = 16;
const HEAD: usize = 8;
const WORD: usize = 8;
/// Bytes of the largest node.
const BYTES_MAX: usize = FRONT + HEAD + 4 * ENTRIES + 4 * ENTRIES + WORD * ENTRIES;

const _: () = assert!(EMPTY == 0 && LEAF == 1 && NODE == 2);
const _: () = assert!(BYTES_MAX == 536);
const _: () = assert!(Shape::new(ENTRIES, ENTRIES - 1, Layout::Wide, 0).bytes() == BYTES_MAX);

/// How a node stores its positions.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Layout {
    Window,
    Near,
    Far,
    Wide,
}

impl Layout {
    /// The smallest layout for some positions.
    fn of(positions: &[u32]) -> Self {
        let (first, last) = (positions[0], positions[positions.len() - 1]);
        let is_near = last / BITS - first / BITS < 8;
        match last - first {
            _ if is_near && positions.iter().all(|position| position % BITS != 0) => Self::Window,
            0..0x100 => Self::Near,
            0x100..0x1_0000 => Self::Far,
            _ => Self::Wide,
        }
    }

    /// Bytes of `count` positions.
    const fn bytes(self, count: usize) -> usize {
        match self {
            Self::Window => WORD,
            Self::Near => count.next_multiple_of(WORD),
            Self::Far => (2 * count).next_multiple_of(WORD),
            Self::Wide => (4 * count).next_multiple_of(WORD),
        }
    }
}

/// The word `shape` of a node, or of the root.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Shape(pub(super) u64);

const ENTRIES_AT: u32 = 8;
const POSITIONS_AT: u32 = 13;
const LAYOUT_AT: u32 = 18;
const FIXED: u64 = 0xffff_ff00;
const COUNTED_AT: u32 = 32;
const OBSOLETE_AT: u32 = 48;

impl Shape {
    pub(super) const fn new(entries: usize, positions: usize, layout: Layout, counted: u16) -> Self {
        let fixed = (entries as u64 - 1) << ENTRIES_AT
            | (positions as u64) << POSITIONS_AT
            | (layout as u64) << LAYOUT_AT;
        Self((counted as u64) << COUNTED_AT | fixed | Self::check(fixed))
    }

    /// The other bytes of the fixed part, folded into the lowest.
    const fn check(fixed: u64) -> u64 {
        (fixed >> 8 ^ fixed >> 16 ^ fixed >> 24 ^ 0xa5) & 0xff
    }

    #[inline(always)]
    pub(super) fn is_sound(self) -> bool {
        let fixed = self.0 & FIXED;
        self.0 & 0xff == Self::check(fixed) && fixed >> 20 == 0 && self.entries() > 1 && self.positions() > 0
    }

    #[inline(always)]
    pub(super) const fn entries(self) -> usize {
        (self.0 >> ENTRIES_AT & 0x1f) as usize + 1
    }

    #[inline(always)]
    const fn positions(self) -> usize {
        (self.0 >> POSITIONS_AT & 0x1f) as usize
    }

    #[inline(always)]
    const fn layout(self) -> Layout {
        match self.0 >> LAYOUT_AT & 3 {
            0 => Layout::Window,
            1 => Layout::Near,
            2 => Layout::Far,
            _ => Layout::Wide,
        }
    }

    /// Bytes of the bits of an entry.
    #[inline(always)]
    const fn width(self) -> usize {
        match self.positions() {
            0..9 => 1,
            9..17 => 2,
            _ => 4,
        }
    }

    /// Where the entries' bits begin in the content.
    #[inline(always)]
    const fn bits_at(self) -> usize {
        HEAD + self.layout().bytes(self.positions())
    }

    #[inline(always)]
    const fn content_bytes(self) -> usize {
        self.bits_at() + (self.entries() * self.width()).next_multiple_of(WORD)
    }

    /// Bytes of the node's block. It ends with a line, if that takes few bytes more: so the block
    /// lies in fewer lines.
    pub(super) const fn bytes(self) -> usize {
        let bytes = FRONT + self.content_bytes() + WORD * self.entries();
        if bytes % LINE > LINE / 2 { bytes.next_multiple_of(LINE) } else { bytes }
    }

    pub(super) fn counted(self) -> u16 {
        (self.0 >> COUNTED_AT) as u16
    }

    pub(super) fn with_counted(self, counted: u16) -> Self {
        Self(self.0 & !(0xffff << COUNTED_AT) | u64::from(counted) << COUNTED_AT)
    }

    #[inline(always)]
    pub(super) fn obsolete(self) -> u16 {
        (self.0 >> OBSOLETE_AT) as u16
    }

    pub(super) fn with_obsolete(self, mark: u16) -> Self {
        Self(self.0 & !(0xffff << OBSOLETE_AT) | u64::from(mark) << OBSOLETE_AT)
    }
}

/// A node in the pool. Its content was read as bytes: it never changes while the node can be
/// reached.
#[derive(Clone, Copy)]
pub(super) struct Node<'g> {
    pub(super) offset: u64,
    shape: Shape,
    content: &'g [u8],
}

impl<'g> Node<'g> {
    /// The node at `offset`; `None` if none can lie there.
    #[inline(always)]
    pub(super) fn at<M: MappedMedium>(guard: &'g Guard<'_, M>, offset: u64) -> Option<Self> {
        let region = guard.pool().region();
        let front: &[Word; 2] = region.get(Offset::new(offset))?;
        let shape = Shape(front[1].load(region.medium(), Acquire));
        if !shape.is_sound() || !region.holds(offset, shape.bytes()) {
            return None;
        }
        let content = guard.bytes(offset + FRONT as u64, shape.content_bytes())?;
        Some(Self { offset, shape, content })
    }

    pub(super) fn lock<M: Medium>(self, region: &'g Region<M>) -> &'g Lock {
        Lock::of(region.at(Offset::<Word>::new(self.offset)))
    }

    pub(super) fn shape_word<M: Medium>(self, region: &'g Region<M>) -> &'g Word {
        region.at(Offset::new(self.offset + 8))
    }

    /// The place of an entry's link.
    #[inline(always)]
    pub(super) fn link<M: Medium>(self, region: &'g Region<M>, entry: usize) -> &'g Word {
        let links = self.offset + (FRONT + self.content.len()) as u64;
        region.at(Offset::new(links + (WORD * entry) as u64))
    }

    /// Number of its entries, those without a link among them.
    #[inline(always)]
    pub(super) fn len(self) -> usize {
        self.shape.entries()
    }

    /// Bytes of the block.
    pub(super) fn bytes(self) -> usize {
        self.shape.bytes()
    }

    /// The position of the highest fork.
    #[inline(always)]
    pub(super) fn first(self) -> u32 {
        (self.word(0) & 0xffff_ffff) as u32
    }

    /// The word of the content with this number.
    #[inline(always)]
    fn word(self, nth: usize) -> u64 {
        let bytes = self.content.get(nth * WORD..(nth + 1) * WORD).and_then(|bytes| bytes.first_chunk());
        bytes.map_or(0, |bytes| u64::from_le_bytes(*bytes))
    }

    /// Whether the content fits its check.
    pub(super) fn is_whole(self) -> bool {
        self.word(0) >> 32 == u64::from(check(self.shape, self.content))
    }

    /// The entry that a key leads to.
    #[inline(always)]
    pub(super) fn find(self, key: &[u8]) -> usize {
        let (asked, bits) = (self.asked(key), &self.content[self.shape.bits_at()..]);
        match self.shape.width() {
            1 => last_within::<1>(bits, self.len(), asked),
            2 => last_within::<2>(bits, self.len(), asked),
            _ => last_within::<4>(bits, self.len(), asked),
        }
    }

    /// The bits of a key at the node's positions.
    #[inline(always)]
    fn asked(self, key: &[u8]) -> u32 {
        let first = self.first();
        if self.shape.layout() == Layout::Window {
            return extract_bits(window(key, (first / BITS) as usize), self.word(1)) as u32;
        }
        let positions = self.distances().map(|distance| first.wrapping_add(distance));
        positions.fold(0, |asked, position| asked << 1 | u32::from(bit(key, position)))
    }

    /// The distances of its positions from the first, in a layout that has these.
    fn distances(self) -> impl Iterator<Item = u32> + use<'g> {
        let width = match self.shape.layout() {
            Layout::Window | Layout::Wide => 4,
            Layout::Near => 1,
            Layout::Far => 2,
        };
        self.content[HEAD..].chunks_exact(width).take(self.shape.positions()).map(little)
    }

    /// The positions of its forks.
    pub(super) fn positions(self) -> Vec<u32> {
        let (first, mut positions) = (self.first(), Vec::with_capacity(ENTRIES));
        if self.shape.layout() != Layout::Window {
            positions.extend(self.distances().map(|distance| first.wrapping_add(distance)));
            return positions;
        }
        let (mut mask, base) = (self.word(1), first / BITS * BITS);
        while mask != 0 {
            let at = mask.leading_zeros();
            positions.push(base + at / 8 * BITS + 1 + at % 8);
            mask ^= 1 << 63 >> at;
        }
        positions
    }

    /// See [`Trie::affected`].
    pub(super) fn affected(self, entry: usize, position: u32) -> Range<usize> {
        let (bits, above) = (self.bits(), bits_above(&self.positions(), position));
        agreeing(bits.len(), entry, |nth| bits[nth] & above)
    }

    /// The bits of its entries.
    pub(super) fn bits(self) -> Vec<u32> {
        let (rows, count) = (&self.content[self.shape.bits_at()..], self.len());
        match self.shape.width() {
            1 => rows.iter().take(count).map(|&bits| u32::from(bits)).collect(),
            2 => rows.chunks_exact(2).take(count).map(little).collect(),
            _ => rows.chunks_exact(4).take(count).map(little).collect(),
        }
    }
}

/// The number in one, two or four bytes.
#[inline(always)]
fn little(bytes: &[u8]) -> u32 {
    match *bytes {
        [byte] => u32::from(byte),
        [low, high] => u32::from(u16::from_le_bytes([low, high])),
        [a, b, c, d] => u32::from_le_bytes([a, b, c, d]),
        _ => 0,
    }
}

/// The last of `count` rows of bits of `WIDTH` bytes each that has no bit but those in `within`; 0
/// if there is none. Each turn compares a word of rows.
#[inline(always)]
fn last_within<const WIDTH: usize>(rows: &[u8], count: usize, within: u32) -> usize {
    let lane = 8 * WIDTH as u32;
    let ones = u64::MAX / ((1 << lane) - 1);
    let (high, per_word) = (ones << (lane - 1), 8 / WIDTH);
    let outside = !(ones.wrapping_mul(u64::from(within) & ((1 << lane) - 1)));
    for (nth, word) in rows.chunks_exact(WORD).enumerate().rev() {
        let word = word.first_chunk().map_or(0, |word| u64::from_le_bytes(*word));
        let beyond = word & outside;
        // The top bit of each row that has none beyond.
        let mut fits = !((beyond & !high).wrapping_add(!high) | beyond) & high;
        let rest = count - (nth * per_word).min(count);
        if rest < per_word {
            fits &= (1u64 << (lane * rest as u32)) - 1;
        }
        if fits != 0 {
            return nth * per_word + ((63 - fits.leading_zeros()) / lane) as usize;
        }
    }
    0
}

/// The check of a node's content, over its head's first half, its positions and bits, and its
/// shape. Each step is one to one, so a changed byte changes all that follows. Two rows of steps
/// side by side take half the time.
fn check(shape: Shape, content: &[u8]) -> u32 {
    const ODD: u64 = 0x9e37_79b9_7f4a_7c15;
    let mix = |folded: u64, word: u64| {
        let mixed = (folded ^ word).wrapping_mul(ODD);
        mixed ^ mixed >> 32
    };
    let word = |bytes: &[u8]| bytes.first_chunk().map_or(0, |word| u64::from_le_bytes(*word));
    let mut rows = [mix(shape.0 & FIXED, word(content) & 0xffff_ffff), ODD];
    let mut pairs = content[HEAD..].chunks_exact(2 * WORD);
    for pair in &mut pairs {
        rows = [mix(rows[0], word(pair)), mix(rows[1], word(&pair[WORD..]))];
    }
    rows[0] = mix(rows[0], word(pairs.remainder()));
    mix(rows[0], rows[1].rotate_left(32)) as u32
}

/// The bytes of a new node.
pub(super) struct Image {
    bytes: [u8; BYTES_MAX],
    len: usize,
}

impl Image {
    /// The image of a node with this trie.
    pub(super) fn of(trie: &Trie, counted: u16) -> Self {
        let Trie { positions, entries } = trie;
        assert!((2..=ENTRIES).contains(&entries.len()), "{} entries of a node", entries.len());
        assert!((1..entries.len()).contains(&positions.len()), "{} positions", positions.len());
        let layout = Layout::of(positions);
        let shape = Shape::new(entries.len(), positions.len(), layout, counted);
        let mut image = Self { bytes: [0; BYTES_MAX], len: shape.bytes() };
        image.put(8, shape.0.to_le_bytes());
        image.put(FRONT, positions[0].to_le_bytes());
        image.put_positions(layout, positions);
        let bits = |Entry { bits, .. }: &Entry| *bits;
        image.put_row(FRONT + shape.bits_at(), shape.width(), entries.iter().map(bits));
        let links = FRONT + shape.content_bytes();
        let check = check(shape, &image.bytes[FRONT..links]);
        image.put(FRONT + 4, check.to_le_bytes());
        for (nth, &Entry { link, .. }) in entries.iter().enumerate() {
            image.put(links + nth * WORD, link.0.to_le_bytes());
        }
        image
    }

    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }

    #[inline(always)]
    fn put<const N: usize>(&mut self, at: usize, bytes: [u8; N]) {
        self.bytes[at..at + N].copy_from_slice(&bytes);
    }

    /// Puts numbers of 1, 2 or 4 bytes side by side.
    #[inline(always)]
    fn put_row(&mut self, at: usize, width: usize, numbers: impl Iterator<Item = u32>) {
        let numbers = numbers.enumerate();
        match width {
            1 => numbers.for_each(|(nth, number)| self.put(at + nth, [number as u8])),
            2 => numbers.for_each(|(nth, number)| self.put(at + 2 * nth, (number as u16).to_le_bytes())),
            _ => numbers.for_each(|(nth, number)| self.put(at + 4 * nth, number.to_le_bytes())),
        }
    }

    fn put_positions(&mut self, layout: Layout, positions: &[u32]) {
        let (first, at) = (positions[0], FRONT + HEAD);
        if layout == Layout::Window {
            let base = first / BITS;
            let bit = |&position: &u32| {
                let (byte, nth) = (position / BITS - base, position % BITS - 1);
                1u64 << (63 - 8 * byte - nth)
            };
            let mask = positions.iter().map(bit).fold(0, |mask, bit| mask | bit);
            return self.put(at, mask.to_le_bytes());
        }
        let width = [WORD, 1, 2, 4][layout as usize];
        self.put_row(at, width, positions.iter().map(|position| position - first));
    }
}

/// The shape in a word.
pub(super) fn load_shape(medium: &impl Medium, word: &Word) -> Shape {
    // ORDER: Acquire: a writer that finds the node not obsolete, after it got the lock, sees what
    // the lock's earlier holders stored.
    Shape(word.load(medium, Acquire))
}

/// Stores the part of a shape that may change. Called under the lock.
///
/// ORDER: Release: a thread that sees a node no longer marked sees what was done before.
pub(super) fn store_shape(medium: &impl Medium, word: &Word, shape: Shape) {
    word.store(medium, shape.0, Release);
}

/// The largest size that a link tells, and the entries of each.
const SIZES: usize = 6;
const SIZE_ENTRIES: usize = 5;

/// The link to a node with this many entries.
pub(super) fn link_to(height: u8, entries: usize, offset: u64) -> Link {
    Link::to_node(height, NODE, ((entries - 1) / SIZE_ENTRIES).min(SIZES), offset)
}

/// About how many lines lie behind a link to a node.
#[inline(always)]
pub(super) fn lines_behind(link: Link) -> usize {
    let entries = link.skip().map_or(ENTRIES / 2, |size| size * SIZE_ENTRIES + SIZE_ENTRIES / 2);
    (FRONT + HEAD + WORD + (2 + WORD) * entries).div_ceil(64)
}

#[cfg(test)]
#[path = "tests/node.rs"]
mod tests;
