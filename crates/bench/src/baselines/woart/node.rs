//! The four kinds of nodes, and how each commits a new child by one 8-byte store.

use super::child::{Child, Kind};
use super::header::Header;
use crate::baselines::{Space, SpaceFull};
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use terrace_medium::{LINE, Medium, Word};

const HEADER: u64 = 0;
/// Word 1 of the two small kinds: the order bytes of four children, or the bitmap of sixteen.
const COMMIT: u64 = 1;

/// Words of a kind of nodes.
struct Shape {
    here: u64,
    /// The first word of key bytes or of the index.
    keys: u64,
    children: u64,
    words: u64,
}

const FOUR: Shape = Shape { here: 2, keys: COMMIT, children: 3, words: 7 };
const SIXTEEN: Shape = Shape { here: 4, keys: 2, children: 5, words: 21 };
const FORTY_EIGHT: Shape = Shape { here: 1, keys: 2, children: 34, words: 82 };
const ALL: Shape = Shape { here: 1, keys: 2, children: 2, words: 258 };

const _: () = assert!(FOUR.words * 8 <= LINE as u64, "the stores of four children need no fence in between");

/// A node in a tree's memory; all accesses are under the tree's lock.
pub(super) struct Node<'s, M> {
    space: &'s Space<M>,
    kind: Kind,
    at: u64,
}

impl<M> Clone for Node<'_, M> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<M> Copy for Node<'_, M> {}

/// The children of a node in order: symbol 0 is the key that ends there, 1 + byte any other.
pub(super) type Symbol = usize;

impl<'s, M: Medium> Node<'s, M> {
    /// The node that a word names, if it is not a leaf.
    pub(super) fn named(space: &'s Space<M>, child: Child) -> Self {
        let node = Self { space, kind: child.kind(), at: child.offset() };
        assert!(!matches!(node.kind, Kind::None | Kind::Leaf), "a {:?} is no node", node.kind);
        node
    }

    /// A durable node of the smallest kind that holds these children, in the order of their
    /// symbols.
    pub(super) fn create(
        space: &'s Space<M>,
        header: Header,
        children: &[(Symbol, Child)],
    ) -> Result<Child, SpaceFull> {
        let bytes = children.iter().filter(|child| child.0 > 0).count();
        let kind = Kind::for_children(bytes);
        let size = (kind.shape().words * 8).next_multiple_of(LINE as u64);
        let node = Self { space, kind, at: space.alloc_aligned(size, LINE as u64)? };
        node.store(HEADER, header.packed());
        let mut places = 0..;
        for &(symbol, child) in children {
            let Some(byte) = symbol.checked_sub(1) else {
                node.store(kind.shape().here, child.0);
                continue;
            };
            let place = if kind == Kind::All { byte as u64 } else { places.next().unwrap_or(0) };
            node.store(kind.shape().children + place, child.0);
            node.commit(byte as u8, place);
        }
        space.region().write_back_bytes(node.at, size as usize);
        // PERSIST: the node before a word names it.
        space.region().fence();
        Ok(Child::to(kind, node.at))
    }

    /// A copy of this node, of the next kind, with one more child.
    pub(super) fn grown(self, byte: u8, child: Child) -> Result<Child, SpaceFull> {
        let mut children = Vec::with_capacity(self.kind.most() + 2);
        let mut symbol = 0;
        while let Some((next, child)) = self.next(symbol) {
            children.push((next, child));
            symbol = next + 1;
        }
        children.push((1 + Symbol::from(byte), child));
        children.sort_unstable_by_key(|child| child.0);
        Self::create(self.space, self.header(), &children)
    }

    fn word(self, nth: u64) -> &'s Word {
        self.space.word(self.at + 8 * nth)
    }

    fn load(self, nth: u64) -> u64 {
        self.word(nth).load(self.space.medium(), Acquire)
    }

    fn store(self, nth: u64, value: u64) {
        self.word(nth).store(self.space.medium(), value, Release);
    }

    pub(super) fn header(self) -> Header {
        Header::unpacked(self.load(HEADER))
    }

    /// Replaces the header, durably.
    pub(super) fn set_header(self, header: Header) {
        self.store(HEADER, header.packed());
        // PERSIST: the header, before the next change relies on it. A crash leaves the old one,
        // whose level is the same.
        self.space.region().persist(self.word(HEADER));
    }

    /// The offset of the word for the key that ends at this node.
    pub(super) fn here_at(self) -> u64 {
        self.at + 8 * self.kind.shape().here
    }

    /// The offset of the word that names the child of a byte.
    pub(super) fn child_at(self, byte: u8) -> Option<u64> {
        let place = match self.kind {
            Kind::Four => {
                let entry =
                    order(self.load(COMMIT)).into_iter().find(|entry| *entry != 0 && key_of(*entry) == byte);
                u64::from(entry? & 0xff) - 1
            }
            Kind::Sixteen => self.places_of_sixteen().find(|&(_, key)| key == byte)?.0,
            Kind::FortyEight => u64::from(self.byte(u64::from(byte))).checked_sub(1)?,
            _ => u64::from(byte),
        };
        let at = self.at + 8 * (self.kind.shape().children + place);
        (self.space.load(at) != 0).then_some(at)
    }

    /// The first child from a symbol on.
    pub(super) fn next(self, from: Symbol) -> Option<(Symbol, Child)> {
        let here = self.load(self.kind.shape().here);
        if from == 0 && here != 0 {
            return Some((0, Child(here)));
        }
        let least = from.saturating_sub(1);
        let byte = match self.kind {
            Kind::Four => {
                let entries = order(self.load(COMMIT)).into_iter().filter(|entry| *entry != 0);
                entries.map(key_of).find(|&byte| usize::from(byte) >= least)
            }
            Kind::Sixteen => self
                .places_of_sixteen()
                .map(|(_, byte)| byte)
                .filter(|&byte| usize::from(byte) >= least)
                .min(),
            Kind::FortyEight => self.indexed_from(least),
            _ => (least..256).map(|byte| byte as u8).find(|&byte| self.child_at(byte).is_some()),
        };
        let byte = byte?;
        Some((1 + Symbol::from(byte), Child(self.space.load(self.child_at(byte)?))))
    }

    /// The first byte from `least` on that the index of a node of 48 has a place for.
    fn indexed_from(self, least: usize) -> Option<u8> {
        let mut unwanted = least % 8 * 8;
        (least / 8..32).find_map(|nth| {
            let word = self.load(FORTY_EIGHT.keys + nth as u64) >> unwanted << unwanted;
            unwanted = 0;
            (word != 0).then(|| (nth * 8) as u8 + (word.trailing_zeros() / 8) as u8)
        })
    }

    /// The children of a node of sixteen: their places and bytes.
    fn places_of_sixteen(self) -> impl Iterator<Item = (u64, u8)> {
        let (bitmap, keys) = (self.load(COMMIT), [self.load(SIXTEEN.keys), self.load(SIXTEEN.keys + 1)]);
        let byte = move |place: u64| (keys[place as usize / 8] >> (place % 8 * 8)) as u8;
        (0..16).filter(move |place| bitmap >> place & 1 == 1).map(move |place| (place, byte(place)))
    }

    /// Byte `nth` of the keys or of the index.
    fn byte(self, nth: u64) -> u8 {
        (self.load(self.kind.shape().keys + nth / 8) >> (nth % 8 * 8)) as u8
    }

    fn set_byte(self, nth: u64, byte: u8) {
        let word = self.kind.shape().keys + nth / 8;
        let shift = nth % 8 * 8;
        self.store(word, self.load(word) & !(0xff << shift) | u64::from(byte) << shift);
    }

    /// The first place that no key names; there may be none, and a node of 256 needs none.
    fn free_place(self) -> u64 {
        let used: u64 = match self.kind {
            Kind::Four => {
                let places = order(self.load(COMMIT)).into_iter().map(|entry| entry & 0xff);
                places.filter(|&place| place != 0).fold(0, |used, place| used | 1 << (place - 1))
            }
            Kind::Sixteen => self.load(COMMIT),
            Kind::FortyEight => {
                let bytes = (0..32).flat_map(|word| self.load(FORTY_EIGHT.keys + word).to_le_bytes());
                bytes.filter(|&place| place != 0).fold(0, |used, place| used | 1 << (place - 1))
            }
            _ => return 0,
        };
        u64::from(used.trailing_ones())
    }

    /// Adds a child of a new byte, durably, if there is room.
    pub(super) fn add(self, byte: u8, child: Child) -> bool {
        let (place, shape) = (self.free_place(), self.kind.shape());
        if place as usize >= self.kind.most() {
            return false;
        }
        let place = if self.kind == Kind::All { u64::from(byte) } else { place };
        let named = shape.children + place;
        let committed = match self.kind {
            Kind::Four | Kind::Sixteen => COMMIT,
            Kind::FortyEight => shape.keys + u64::from(byte) / 8,
            _ => named,
        };
        self.store(named, child.0);
        if (self.at + 8 * named) / LINE as u64 != (self.at + 8 * committed) / LINE as u64 {
            // PERSIST: the child before its key; in one line, the order of stores ensures that.
            self.space.region().persist(self.word(named));
        }
        self.commit(byte, place);
        // PERSIST: the key, before the caller returns.
        self.space.region().persist(self.word(committed));
        true
    }

    /// Makes a child visible by the store of its key: the word of order bytes, the bitmap, or the
    /// index's byte. A node of 256 has none.
    fn commit(self, byte: u8, place: u64) {
        match self.kind {
            Kind::Four => self.store(COMMIT, with_entry(order(self.load(COMMIT)), byte, place)),
            Kind::Sixteen => {
                self.set_byte(place, byte);
                self.store(COMMIT, self.load(COMMIT) | 1 << place);
            }
            Kind::FortyEight => self.set_byte(u64::from(byte), place as u8 + 1),
            _ => {}
        }
    }
}

impl Kind {
    fn shape(self) -> &'static Shape {
        match self {
            Self::Sixteen => &SIXTEEN,
            Self::FortyEight => &FORTY_EIGHT,
            Self::All => &ALL,
            _ => &FOUR,
        }
    }
}

/// The order bytes of four children: for each its key and 1 + its place, in the order of keys, then
/// zeros.
fn order(word: u64) -> [u16; 4] {
    std::array::from_fn(|nth| (word >> (16 * nth)) as u16)
}

fn key_of(entry: u16) -> u8 {
    (entry >> 8) as u8
}

/// The order bytes with another child; there is room.
fn with_entry(mut order: [u16; 4], byte: u8, place: u64) -> u64 {
    assert_eq!(order[3], 0, "a fifth child of four");
    order[3] = u16::from(byte) << 8 | (place as u16 + 1);
    // Zeros, which are no children, stay behind.
    order.sort_unstable_by_key(|&entry| if entry == 0 { u16::MAX } else { entry });
    order.into_iter().rev().fold(0, |word, entry| word << 16 | u64::from(entry))
}

/// A new leaf, durable: its value, then its key.
pub(super) fn create_leaf<M: Medium>(space: &Space<M>, key: &[u8], value: u64) -> Result<Child, SpaceFull> {
    use crate::baselines::key_form::{alignment, string_bytes, write_string};
    let bytes = 8 + string_bytes(key.len());
    let at = space.alloc_aligned(bytes, alignment(bytes))?;
    space.word(at).store(space.medium(), value, Relaxed);
    write_string(space, at + 8, key);
    space.region().write_back_bytes(at, bytes as usize);
    // PERSIST: the leaf before a word names it.
    space.region().fence();
    Ok(Child::to(Kind::Leaf, at))
}
