//! The five kinds of nodes, and how their links are read.
//!
//! ```text
//!   header    | lock | shape | prefix | here |
//!   kind 4    header, 4 links                                       1 line
//!   kind 12   header, 12 links                                      2 lines
//!   kind 20   header, 20 links                                      3 lines
//!   kind 64   header, count, 3 unused words, 64 places of links     9 lines
//!   kind 256  header, count, 3 unused words, 256 links              33 lines
//!
//!   shape     | 63:48 obsolete | 47:32 counted | 27:11 level | 10:8 kind | 7:0 check |
//!   prefix    | 63:24 bytes, the first at the top | 23:8 length | 7:0 check |
//!   count     | 63:48 mark | 47:0 entries, or fewer if a thread has died |
//! ```
//! Kinds 4, 12 and 20 keep their links in no order. Kind 64 keeps them by their bytes' hash (see
//! `hashed`). Counts (of entries) are never persisted. They have the mark of a generation of the
//! pool: without that of this one, the next removal counts anew.
//!
//! The check of `shape` covers kind and level, which never change. `counted` is the number of the
//! last recount that has passed the node (see `trace`).

use super::super::check::folded;
use super::super::link::{KindBits, Link};
use super::super::links::load;
use super::hashed;
use std::sync::atomic::Ordering::{Acquire, Relaxed};
use terrace_medium::{LINE, Line, Medium, Offset, Region, Word};
use terrace_pool::Lock;

/// The kind of a node.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Kind {
    Four,
    Twelve,
    Twenty,
    Hashed,
    Full,
}

pub(super) const KINDS: [Kind; 5] = [Kind::Four, Kind::Twelve, Kind::Twenty, Kind::Hashed, Kind::Full];

/// The kinds by the bits of a link; 0 is no link, 1 a leaf. 4 was another kind once.
const BY_BITS: [Option<Kind>; 8] = {
    let mut kinds = [None; 8];
    let mut at = 0;
    while at < KINDS.len() {
        kinds[KINDS[at].bits() as usize] = Some(KINDS[at]);
        at += 1;
    }
    kinds
};

/// The figure of nodes that another kind replaced, behind those of the kinds.
pub(super) const RESHAPED: usize = KINDS.len();

pub(super) const LOCK: usize = 0;
pub(super) const SHAPE: usize = 1;
pub(super) const PREFIX: usize = 2;
pub(super) const HERE: usize = 3;
pub(super) const COUNT: usize = 4;
/// The first link of the small kinds, and of the large ones, which have a count.
pub(super) const SMALL_LINKS: usize = 4;
pub(super) const LARGE_LINKS: usize = 8;

pub(super) const MARK_AT: u32 = 48;

const _: () = assert!(size_of::<[Line; 1]>() == 8 * (SMALL_LINKS + 4));
const _: () = assert!(size_of::<[Line; 2]>() == 8 * (SMALL_LINKS + 12));
const _: () = assert!(size_of::<[Line; 3]>() == 8 * (SMALL_LINKS + 20));
const _: () = assert!(size_of::<[Line; 9]>() == 8 * (LARGE_LINKS + hashed::PLACES));
const _: () = assert!(size_of::<[Line; 33]>() == 8 * (LARGE_LINKS + 256));

impl Kind {
    /// The bits of a link that say this kind. Pools of any age hold them.
    #[inline(always)]
    pub(super) const fn bits(self) -> KindBits {
        match self {
            Self::Four => 2,
            // It had sixteen places once, and four unused words.
            Self::Twenty => 3,
            Self::Full => 5,
            Self::Twelve => 6,
            Self::Hashed => 7,
        }
    }

    #[inline(always)]
    pub(super) fn of(bits: KindBits) -> Option<Self> {
        *BY_BITS.get(bits as usize)?
    }

    pub(super) fn lines(self) -> usize {
        match self {
            Self::Four => 1,
            Self::Twelve => 2,
            Self::Twenty => 3,
            Self::Hashed => 9,
            Self::Full => 33,
        }
    }

    pub(super) fn bytes(self) -> usize {
        self.lines() * LINE
    }

    /// Places for links to children.
    pub(super) fn places(self) -> usize {
        match self {
            Self::Four => 4,
            Self::Twelve => 12,
            Self::Twenty => 20,
            Self::Hashed => hashed::PLACES,
            Self::Full => 256,
        }
    }

    /// Children at which a further one needs a larger kind.
    pub(super) fn most(self) -> usize {
        if self == Self::Hashed { hashed::MOST } else { self.places() }
    }

    /// Whether its nodes count their entries.
    #[inline(always)]
    pub(super) fn has_count(self) -> bool {
        matches!(self, Self::Hashed | Self::Full)
    }

    /// Where the links begin, in words.
    #[inline(always)]
    pub(super) fn first_link(self) -> usize {
        match self {
            Self::Four | Self::Twelve | Self::Twenty => SMALL_LINKS,
            Self::Hashed | Self::Full => LARGE_LINKS,
        }
    }

    pub(super) fn larger(self) -> Option<Self> {
        KINDS.get(self as usize + 1).copied()
    }

    pub(super) fn smaller(self) -> Option<Self> {
        (self as usize).checked_sub(1).map(|smaller| KINDS[smaller])
    }

    /// The number of children at which the node becomes one of the next smaller kind: below the
    /// most of that one, so that a node at the border does not change to and fro.
    pub(super) fn shrinks_at(self) -> usize {
        match self {
            Self::Four => 0,
            Self::Twelve => 3,
            Self::Twenty => 9,
            Self::Hashed => 16,
            Self::Full => 40,
        }
    }
}

/// A node in the pool.
#[derive(Clone, Copy)]
pub(super) enum Node<'g> {
    Four(&'g [Line; 1]),
    Twelve(&'g [Line; 2]),
    Twenty(&'g [Line; 3]),
    Hashed(&'g [Line; 9]),
    Full(&'g [Line; 33]),
}

/// A link and the word that holds it.
pub(super) type Slot<'g> = (&'g Word, Link);

impl<'g> Node<'g> {
    /// The node of a link; `None` if no such node can lie there.
    #[inline(always)]
    pub(super) fn at<M: Medium>(region: &'g Region<M>, kind: Kind, offset: u64) -> Option<Self> {
        Some(match kind {
            Kind::Four => Self::Four(region.get(Offset::new(offset))?),
            Kind::Twelve => Self::Twelve(region.get(Offset::new(offset))?),
            Kind::Twenty => Self::Twenty(region.get(Offset::new(offset))?),
            Kind::Hashed => Self::Hashed(region.get(Offset::new(offset))?),
            Kind::Full => Self::Full(region.get(Offset::new(offset))?),
        })
    }

    #[inline(always)]
    pub(super) fn kind(self) -> Kind {
        match self {
            Self::Four(_) => Kind::Four,
            Self::Twelve(_) => Kind::Twelve,
            Self::Twenty(_) => Kind::Twenty,
            Self::Hashed(_) => Kind::Hashed,
            Self::Full(_) => Kind::Full,
        }
    }

    #[inline(always)]
    pub(super) fn words(self) -> &'g [Word] {
        match self {
            Self::Four(lines) => Line::words(lines),
            Self::Twelve(lines) => Line::words(lines),
            Self::Twenty(lines) => Line::words(lines),
            Self::Hashed(lines) => Line::words(lines),
            Self::Full(lines) => Line::words(lines),
        }
    }

    #[inline(always)]
    fn head(self) -> &'g Line {
        match self {
            Self::Four(lines) => &lines[0],
            Self::Twelve(lines) => &lines[0],
            Self::Twenty(lines) => &lines[0],
            Self::Hashed(lines) => &lines[0],
            Self::Full(lines) => &lines[0],
        }
    }

    #[inline(always)]
    pub(super) fn lock(self) -> &'g Lock {
        Lock::of(&self.head().0[LOCK])
    }

    #[inline(always)]
    pub(super) fn shape_word(self) -> &'g Word {
        &self.head().0[SHAPE]
    }

    #[inline(always)]
    pub(super) fn prefix_word(self) -> &'g Word {
        &self.head().0[PREFIX]
    }

    #[inline(always)]
    pub(super) fn here(self) -> &'g Word {
        &self.head().0[HERE]
    }

    pub(super) fn shape(self, medium: &impl Medium) -> Shape {
        // ORDER: Acquire: a writer that finds the node not obsolete, after it got the lock, sees
        // what the lock's earlier holders stored.
        Shape(self.shape_word().load(medium, Acquire))
    }

    pub(super) fn offset<M: Medium>(self, region: &Region<M>) -> u64 {
        region.offset_of(self.head()).raw()
    }

    /// The places of its children.
    #[inline(always)]
    pub(super) fn links(self) -> &'g [Word] {
        let kind = self.kind();
        &self.words()[kind.first_link()..kind.first_link() + kind.places()]
    }

    /// The place of the child with this byte, and its link; a link that is not durable, or whose
    /// removal is not, is dirty. `None` if there is none.
    #[inline(always)]
    pub(super) fn child<M: Medium>(self, medium: &M, byte: u8) -> Option<Slot<'g>> {
        match self {
            Self::Four(lines) => find_in(medium, &lines[0].0[SMALL_LINKS..], byte),
            Self::Twelve(lines) => find_in(medium, &Line::words(lines)[SMALL_LINKS..], byte),
            Self::Twenty(lines) => find_in(medium, &Line::words(lines)[SMALL_LINKS..], byte),
            Self::Hashed(lines) => hashed::find(medium, Line::words(&lines[1..]), byte),
            Self::Full(lines) => {
                let word = &lines[1 + usize::from(byte) / 8].0[usize::from(byte) % 8];
                let link = load(medium, word);
                (link != Link::NONE).then_some((word, link))
            }
        }
    }

    /// As [`Node::child`], but looks at all links, wherever they must lie.
    pub(super) fn child_by_look<M: Medium>(self, medium: &M, byte: u8) -> Option<Slot<'g>> {
        find_in(medium, self.links(), byte)
    }

    /// Its children, in no order, with their places.
    pub(super) fn children<'m, M: Medium>(
        self,
        medium: &'m M,
    ) -> impl Iterator<Item = Slot<'g>> + use<'g, 'm, M> {
        self.links().iter().map(|word| (word, load(medium, word))).filter(|(_, link)| *link != Link::NONE)
    }

    /// Its children and the key that ends here, in no order.
    pub(super) fn entries<'m, M: Medium>(
        self,
        medium: &'m M,
    ) -> impl Iterator<Item = Slot<'g>> + use<'g, 'm, M> {
        let here = (self.here(), load(medium, self.here()));
        std::iter::once(here).filter(|(_, link)| *link != Link::NONE).chain(self.children(medium))
    }

    /// Number of entries, the key that ends here included: exact in a small node, and never too
    /// high in a large one. Called under the lock.
    pub(super) fn len_hint<M: Medium>(self, medium: &M, mark: u16) -> usize {
        match self.counted(medium, mark) {
            Some(count) => count as usize,
            None => self.recount(medium, mark),
        }
    }

    /// The count of a large node, if it is of this generation.
    #[inline(always)]
    fn counted<M: Medium>(self, medium: &M, mark: u16) -> Option<u64> {
        if !self.kind().has_count() {
            return None;
        }
        let count = self.head().0[COUNT].load(medium, Relaxed);
        (count >> MARK_AT == u64::from(mark)).then_some(count & ((1 << MARK_AT) - 1))
    }

    /// Number of entries, the key that ends here included.
    pub(super) fn len<M: Medium>(self, medium: &M) -> usize {
        self.entries(medium).filter(|(_, link)| !link.is_empty()).count()
    }

    /// Counts an entry that was added, or that will be removed: so a thread that dies in between
    /// leaves too low a count. Called under the lock.
    #[inline(always)]
    pub(super) fn count<M: Medium>(self, medium: &M, mark: u16, by: i64) {
        if let Some(count) = self.counted(medium, mark) {
            let count = u64::from(mark) << MARK_AT | count.saturating_add_signed(by);
            self.head().0[COUNT].store(medium, count, Relaxed);
        }
    }

    /// Counts the entries anew. Called under the lock.
    pub(super) fn recount<M: Medium>(self, medium: &M, mark: u16) -> usize {
        let len = self.len(medium);
        if self.kind().has_count() {
            self.head().0[COUNT].store(medium, u64::from(mark) << MARK_AT | len as u64, Relaxed);
        }
        len
    }

    /// The line that has marks.
    pub(super) fn marked_line(self) -> &'g Line {
        self.head()
    }

    /// Forgets the count: there is none of this generation then.
    pub(super) fn forget_count<M: Medium>(self, medium: &M) {
        if self.kind().has_count() {
            self.head().0[COUNT].store(medium, 0, Relaxed);
        }
    }

    /// Whether a place must never look as if it were new after it was used.
    pub(super) fn keeps_used(self, place: &Word) -> bool {
        matches!(self, Self::Hashed(_)) && !std::ptr::eq(place, self.here())
    }

    /// The offset of the line that [`Node::child`] reads first, from the node's.
    #[inline(always)]
    pub(super) fn line_of(kind: Kind, byte: u8) -> u64 {
        match kind {
            Kind::Four | Kind::Twelve | Kind::Twenty => 0,
            Kind::Hashed => ((LARGE_LINKS + hashed::place(byte, 0)) as u64 * 8) & !63,
            Kind::Full => ((LARGE_LINKS as u64 + u64::from(byte)) * 8) & !63,
        }
    }
}

/// The link of `byte` among links in no order. A link and a removed one of the same byte may both
/// be there; the link counts.
#[inline(always)]
fn find_in<'g, M: Medium>(medium: &M, words: &'g [Word], byte: u8) -> Option<Slot<'g>> {
    let mut removed = None;
    for word in words {
        let link = load(medium, word);
        if link.byte() == byte && link != Link::NONE {
            if !link.is_empty() {
                return Some((word, link));
            }
            removed = Some((word, link));
        }
    }
    removed
}

/// The word `shape` of a node.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Shape(pub(super) u64);

const LEVEL_AT: u32 = 11;
const SHAPE_KIND_AT: u32 = 8;
const COUNTED_AT: u32 = 32;
const OBSOLETE_AT: u32 = 48;

impl Shape {
    pub(super) fn new(kind: Kind, level: usize, counted: u16) -> Self {
        debug_assert!(level < 1 << 16);
        let fixed = (level as u64) << LEVEL_AT | (kind.bits() - 2) << SHAPE_KIND_AT;
        Self(u64::from(counted) << COUNTED_AT | fixed | folded(fixed))
    }

    pub(super) fn level(self) -> usize {
        (self.0 >> LEVEL_AT & 0x1_ffff) as usize
    }

    /// Whether this is the shape of a node of this kind.
    pub(super) fn is_of(self, kind: Kind) -> bool {
        let fixed = self.0 & 0xffff_ff00;
        self.0 & 0xff == folded(fixed) && self.0 >> SHAPE_KIND_AT & 7 == kind.bits() - 2
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

/// Bytes of a prefix that a node holds.
pub(super) const PREFIX_BYTES: usize = 5;

/// The word `prefix` of a node: its length in bytes, and the first of them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Prefix(pub(super) u64);

impl Prefix {
    /// The prefix of these bytes, the key's between the levels of parent and node.
    pub(super) fn of(bytes: &[u8]) -> Self {
        debug_assert!(bytes.len() < 1 << 16);
        let kept = &bytes[..bytes.len().min(PREFIX_BYTES)];
        let mut top = [0; 8];
        top[..kept.len()].copy_from_slice(kept);
        let bits = u64::from_be_bytes(top) | (bytes.len() as u64) << 8;
        Self(bits | folded(bits))
    }

    pub(super) fn is_sound(self) -> bool {
        self.0 & 0xff == folded(self.0 & !0xff)
    }

    pub(super) fn len(self) -> usize {
        (self.0 >> 8 & 0xffff) as usize
    }

    /// The bytes that it holds.
    pub(super) fn bytes(self) -> ([u8; 8], usize) {
        (self.0.to_be_bytes(), self.len().min(PREFIX_BYTES))
    }
}

#[cfg(test)]
#[path = "tests/node.rs"]
mod tests;
