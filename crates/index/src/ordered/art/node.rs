//! The four kinds of nodes, and how their links are read.
//!
//! ```text
//!   header    | lock | shape | prefix | here |
//!   kind 4    header, 4 links                                       1 line
//!   kind 16   header, 16 links, 4 unused words                      3 lines
//!   kind 48   header, count, 3 unused words, 32 words of hints,     11 lines
//!             48 links
//!   kind 256  header, count, 3 unused words, 256 links              33 lines
//!
//!   shape     | 63:48 obsolete | 47:32 counted | 27:11 level | 10:8 kind | 7:0 check |
//!   prefix    | 63:24 bytes, the first at the top | 23:8 length | 7:0 check |
//!   count     | 63:48 mark | 47:0 entries, or fewer if a thread has died |
//!   hints     | 63:48 mark | 47:42 place of byte 8i + 7 | ... | 5:0 place of byte 8i |
//! ```
//! Kinds 4, 16 and 48 keep their links in no order. A hint says where the link of a byte was put.
//! It is stored before the link, so if its word has the mark of this generation of the pool, the
//! link is there or nowhere. Hints are never persisted. Those of an earlier generation mean
//! nothing: then a search looks at all links, and the next writer there sets them. Counts (of
//! entries) are never persisted, either. They have the mark, too: without it, the next removal
//! counts anew.
//!
//! The check of `shape` covers kind and level, which never change. `counted` is the number of the
//! last recount that has passed the node (see `trace`).

use super::super::link::{EMPTY, KindBits, LEAF, Link};
use super::super::links::load;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use terrace_medium::{LINE, Line, Medium, Offset, Region, Word};
use terrace_pool::Lock;

/// The kind of a node.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Kind {
    Four,
    Sixteen,
    FortyEight,
    Full,
}

pub(super) const KINDS: [Kind; 4] = [Kind::Four, Kind::Sixteen, Kind::FortyEight, Kind::Full];

/// The figure of nodes that another kind replaced, behind those of the kinds.
pub(super) const RESHAPED: usize = KINDS.len();

pub(super) const LOCK: usize = 0;
pub(super) const SHAPE: usize = 1;
pub(super) const PREFIX: usize = 2;
pub(super) const HERE: usize = 3;
pub(super) const COUNT: usize = 4;
/// The first link of the kinds 4 and 16, of kind 48, and of kind 256.
pub(super) const SMALL_LINKS: usize = 4;
pub(super) const HINTS: usize = 8;
pub(super) const LINKS_48: usize = HINTS + 256 / 8;
pub(super) const LINKS_256: usize = 8;

const HINT_BITS: u32 = 6;
pub(super) const MARK_AT: u32 = 48;
/// No hint is a place.
pub(super) const NO_HINTS: u64 = (1 << MARK_AT) - 1;

const _: () = assert!(size_of::<[Line; 1]>() == 8 * (SMALL_LINKS + 4));
const _: () = assert!(size_of::<[Line; 3]>() >= 8 * (SMALL_LINKS + 16));
const _: () = assert!(size_of::<[Line; 11]>() == 8 * (LINKS_48 + 48));
const _: () = assert!(size_of::<[Line; 33]>() == 8 * (LINKS_256 + 256));

impl Kind {
    /// The bits of a link that say this kind; 0 and 1 are no link and a leaf.
    #[inline(always)]
    pub(super) fn bits(self) -> KindBits {
        self as u64 + LEAF + 1
    }

    #[inline(always)]
    pub(super) fn of(bits: KindBits) -> Option<Self> {
        const { assert!(EMPTY == 0 && LEAF == 1) };
        KINDS.get((bits as usize).wrapping_sub(2)).copied()
    }

    pub(super) fn lines(self) -> usize {
        match self {
            Self::Four => 1,
            Self::Sixteen => 3,
            Self::FortyEight => 11,
            Self::Full => 33,
        }
    }

    pub(super) fn bytes(self) -> usize {
        self.lines() * LINE
    }

    /// Children at most.
    pub(super) fn places(self) -> usize {
        match self {
            Self::Four => 4,
            Self::Sixteen => 16,
            Self::FortyEight => 48,
            Self::Full => 256,
        }
    }

    /// Where the links begin, in words.
    #[inline(always)]
    pub(super) fn first_link(self) -> usize {
        match self {
            Self::Four | Self::Sixteen => SMALL_LINKS,
            Self::FortyEight => LINKS_48,
            Self::Full => LINKS_256,
        }
    }

    pub(super) fn larger(self) -> Option<Self> {
        KINDS.get(self as usize + 1).copied()
    }

    pub(super) fn smaller(self) -> Option<Self> {
        (self as usize).checked_sub(1).map(|smaller| KINDS[smaller])
    }

    /// The number of children at which the node becomes one of the next smaller kind: below that
    /// one's places, so that a node at the border does not change to and fro.
    pub(super) fn shrinks_at(self) -> usize {
        match self {
            Self::Four => 0,
            Self::Sixteen => 3,
            Self::FortyEight => 12,
            Self::Full => 37,
        }
    }
}

/// A node in the pool.
#[derive(Clone, Copy)]
pub(super) enum Node<'g> {
    Four(&'g [Line; 1]),
    Sixteen(&'g [Line; 3]),
    FortyEight(&'g [Line; 11]),
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
            Kind::Sixteen => Self::Sixteen(region.get(Offset::new(offset))?),
            Kind::FortyEight => Self::FortyEight(region.get(Offset::new(offset))?),
            Kind::Full => Self::Full(region.get(Offset::new(offset))?),
        })
    }

    #[inline(always)]
    pub(super) fn kind(self) -> Kind {
        match self {
            Self::Four(_) => Kind::Four,
            Self::Sixteen(_) => Kind::Sixteen,
            Self::FortyEight(_) => Kind::FortyEight,
            Self::Full(_) => Kind::Full,
        }
    }

    #[inline(always)]
    pub(super) fn words(self) -> &'g [Word] {
        match self {
            Self::Four(lines) => Line::words(lines),
            Self::Sixteen(lines) => Line::words(lines),
            Self::FortyEight(lines) => Line::words(lines),
            Self::Full(lines) => Line::words(lines),
        }
    }

    #[inline(always)]
    fn head(self) -> &'g Line {
        match self {
            Self::Four(lines) => &lines[0],
            Self::Sixteen(lines) => &lines[0],
            Self::FortyEight(lines) => &lines[0],
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
    pub(super) fn child<M: Medium>(self, medium: &M, mark: u16, byte: u8) -> Option<Slot<'g>> {
        match self {
            Self::Four(lines) => find_in(medium, &lines[0].0[SMALL_LINKS..], byte),
            Self::Sixteen(lines) => find_in(medium, &Line::words(lines)[SMALL_LINKS..SMALL_LINKS + 16], byte),
            Self::FortyEight(lines) => find_by_hint(medium, lines, mark, byte),
            Self::Full(lines) => {
                let word = &lines[1 + usize::from(byte) / 8].0[usize::from(byte) % 8];
                let link = load(medium, word);
                (link != Link::NONE).then_some((word, link))
            }
        }
    }

    /// As [`Node::child`], but looks at all links, whatever the hints say.
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
        let (Self::FortyEight(_) | Self::Full(_)) = self else { return None };
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
        if matches!(self, Self::FortyEight(_) | Self::Full(_)) {
            self.head().0[COUNT].store(medium, u64::from(mark) << MARK_AT | len as u64, Relaxed);
        }
        len
    }

    /// The lines that have marks.
    pub(super) fn marked_lines(self) -> &'g [Line] {
        match self {
            Self::Four(lines) => lines,
            Self::Sixteen(lines) => &lines[..1],
            Self::FortyEight(lines) => &lines[..LINKS_48 / 8],
            Self::Full(lines) => &lines[..1],
        }
    }

    /// Forgets the count and the hints: there are none of this generation then.
    pub(super) fn forget_marked<M: Medium>(self, medium: &M) {
        let words = match self {
            Self::Four(_) | Self::Sixteen(_) => return,
            Self::FortyEight(_) => &self.words()[HINTS..LINKS_48],
            Self::Full(_) => &[],
        };
        std::iter::once(&self.head().0[COUNT]).chain(words).for_each(|word| word.store(medium, 0, Relaxed));
    }

    /// Notes where the link of a byte will lie. Called under the lock, before the link is stored.
    pub(super) fn note_place<M: Medium>(self, medium: &M, mark: u16, byte: u8, place: usize) {
        let Self::FortyEight(_) = self else { return };
        let word = &self.words()[HINTS + usize::from(byte) / 8];
        let mut hints = word.load(medium, Relaxed);
        if hints >> MARK_AT != u64::from(mark) {
            hints = u64::from(mark) << MARK_AT | NO_HINTS;
            let links = self.links().iter().map(|word| load(medium, word)).enumerate();
            let is_here = |link: Link| link != Link::NONE && link.byte() / 8 == byte / 8;
            let links: Vec<(usize, Link)> = links.filter(|&(_, link)| is_here(link)).collect();
            // Of a link and a removed one of the same byte, the link counts.
            let (removed, whole): (Vec<_>, Vec<_>) = links.iter().partition(|(_, link)| link.is_empty());
            for (place, link) in removed.into_iter().chain(whole) {
                hints = with_hint(hints, link.byte(), place);
            }
        }
        // ORDER: Release: a reader that finds the mark finds the hints, and a later link in its
        // place.
        word.store(medium.point("art.hint"), with_hint(hints, byte, place), Release);
    }

    /// The offset of the line that [`Node::child`] reads first, from the node's.
    #[inline(always)]
    pub(super) fn line_of(kind: Kind, byte: u8) -> u64 {
        match kind {
            Kind::Four | Kind::Sixteen => 0,
            Kind::FortyEight => ((HINTS as u64 + u64::from(byte) / 8) * 8) & !63,
            Kind::Full => ((LINKS_256 as u64 + u64::from(byte)) * 8) & !63,
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

#[inline(always)]
fn find_by_hint<'g, M: Medium>(medium: &M, lines: &'g [Line; 11], mark: u16, byte: u8) -> Option<Slot<'g>> {
    let words = Line::words(lines);
    // ORDER: Acquire: pairs with the Release in `note_place`.
    let hints = words[HINTS + usize::from(byte) / 8].load(medium, Acquire);
    if hints >> MARK_AT != u64::from(mark) {
        return find_in(medium, &words[LINKS_48..], byte);
    }
    let place = (hints >> (u32::from(byte) % 8 * HINT_BITS) & ((1 << HINT_BITS) - 1)) as usize;
    let word = words.get(LINKS_48 + place)?;
    let link = load(medium, word);
    (link.byte() == byte && link != Link::NONE).then_some((word, link))
}

/// Hints with that of `byte`.
pub(super) fn with_hint(hints: u64, byte: u8, place: usize) -> u64 {
    let shift = u32::from(byte) % 8 * HINT_BITS;
    hints & !(((1 << HINT_BITS) - 1) << shift) | (place as u64) << shift
}

/// The word `shape` of a node.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Shape(pub(super) u64);

const LEVEL_AT: u32 = 11;
const SHAPE_KIND_AT: u32 = 8;
const COUNTED_AT: u32 = 32;
const OBSOLETE_AT: u32 = 48;

/// The other bytes below `bits`, folded into the lowest.
fn folded(bits: u64) -> u64 {
    let halves = bits ^ bits >> 32;
    let quarters = halves ^ halves >> 16;
    (quarters ^ quarters >> 8) & 0xff
}

impl Shape {
    pub(super) fn new(kind: Kind, level: usize, counted: u16) -> Self {
        debug_assert!(level < 1 << 16);
        let fixed = (level as u64) << LEVEL_AT | (kind as u64) << SHAPE_KIND_AT;
        Self(u64::from(counted) << COUNTED_AT | fixed | folded(fixed))
    }

    pub(super) fn level(self) -> usize {
        (self.0 >> LEVEL_AT & 0x1_ffff) as usize
    }

    /// Whether this is the shape of a node of this kind.
    pub(super) fn is_of(self, kind: Kind) -> bool {
        let fixed = self.0 & 0xffff_ff00;
        self.0 & 0xff == folded(fixed) && self.0 >> SHAPE_KIND_AT & 7 == kind as u64
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
