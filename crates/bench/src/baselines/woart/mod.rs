//! WOART: the write-optimal adaptive radix tree, for persistent memory.
//!
//! Lee et al.: *WORT: Write Optimal Radix Tree for Persistent Memory Storage Systems*, FAST 2017.
//! For one thread; under one lock as the RECIPE thesis measures it (section 3.5.3). Each change is
//! committed by an 8-byte atomic store, after a write-back and a fence of what it makes visible.
//!
//! ```text
//!   header word of each node: | depth | length | first 5 bytes of the shared piece |
//!
//!   4:   | header | order | here | 4 children |           order: 4 x (key byte, place), sorted
//!   16:  | header | bitmap | 16 key bytes | here | 16 children |
//!   48:  | header | here | 256 places | 48 children |
//!   256: | header | here | 256 children |
//!   leaf: | value | length of the key | key |
//! ```
//! A new child is committed by the order word, the bitmap, the place's byte or the child itself. A
//! full node is copied to one of the next kind, and the word that names it is replaced.
//!
//! A new node above another one takes a part of that one's shared piece. The link to the new node
//! is stored first, then the shorter header of the old one. A crash in between leaves a header that
//! begins at a smaller depth than the path to it, which is how it is found. The sum of depth and
//! length is the same before and after: a search skips the piece, an insert mends the header from a
//! key below.
//!
//! # What was repaired
//! * **A key may begin another key**: `here` names the leaf of the key that ends at a node.
//! * **Kinds are in the words that name nodes**, so no node is read only for its kind, and a node
//!   of four children is one line: an insert into it needs one write-back and fence beside the
//!   leaf's.
//! * **Depths have 12 bits** instead of 8: keys have up to 4,095 bytes.
//! * **The root's word is durable** before any use.
//!
//! There is no removal: no measurement here needs it. A random insert costs 2.6 write-backs and 2.4
//! fences with integers.

mod child;
mod header;
mod node;
mod scan;
#[cfg(test)]
mod tests;

use super::key_form::compare_string;
use super::{IntegerKeys, KeyForm, OrderedBaseline, Space, SpaceFull, StringKeys, held};
use child::{Child, Kind};
use header::{Header, KEY_BYTES_MAX};
use node::{Node, Symbol, create_leaf};
use std::marker::PhantomData;
use std::sync::atomic::Ordering::Release;
use std::sync::{Arc, Mutex};
use terrace_medium::Medium;

/// A radix tree under one lock.
pub struct Woart<M, K = IntegerKeys> {
    tree: Tree<M>,
    /// Held by each operation.
    turn: Mutex<()>,
    keys: PhantomData<K>,
}

/// The tree, for one thread.
struct Tree<M> {
    space: Arc<Space<M>>,
    /// Offset of the word that names the root.
    root: u64,
}

impl<M: Medium, K: KeyForm> Woart<M, K> {
    /// An empty tree.
    pub fn create(space: Arc<Space<M>>) -> Result<Self, SpaceFull> {
        let root = space.alloc(8)?;
        // PERSIST: an empty tree, before any use.
        space.region().persist(space.word(root));
        Ok(Self::over(space, root))
    }

    /// The tree whose root this word names.
    fn over(space: Arc<Space<M>>, root: u64) -> Self {
        Self { tree: Tree { space, root }, turn: Mutex::new(()), keys: PhantomData }
    }

    /// Bytes of its memory.
    pub fn bytes(&self) -> u64 {
        self.tree.space.used()
    }

    /// The value of `key`.
    pub fn get(&self, key: &K::Key) -> Option<u64> {
        let _turn = held(&self.turn);
        self.tree.leaf_of(K::bytes(key).as_ref()).map(|leaf| self.tree.space.load(leaf))
    }

    /// Adds `key` if it is absent. Returns whether it was.
    ///
    /// # Panics
    /// If the key has more than 4,095 bytes.
    pub fn insert(&self, key: &K::Key, value: u64) -> Result<bool, SpaceFull> {
        let _turn = held(&self.turn);
        self.tree.insert(K::bytes(key).as_ref(), value)
    }

    /// Replaces the value of `key`, if it is present.
    pub fn update(&self, key: &K::Key, value: u64) -> bool {
        let _turn = held(&self.turn);
        let space = &self.tree.space;
        let Some(leaf) = self.tree.leaf_of(K::bytes(key).as_ref()) else { return false };
        space.word(leaf).store(space.medium(), value, Release);
        // PERSIST: the new value, before the caller returns; one word, so a crash leaves the old
        // one or this.
        space.region().persist(space.word(leaf));
        true
    }

    /// Calls `each` with the values of `most` keys from `from` on, in the order of keys, or of all
    /// that are left.
    pub fn scan(&self, from: &K::Key, most: usize, each: &mut dyn FnMut(u64)) {
        let _turn = held(&self.turn);
        self.tree.scan(K::bytes(from).as_ref(), most, each);
    }
}

impl<M: Medium> Tree<M> {
    fn child(&self, at: u64) -> Child {
        Child(self.space.load(at))
    }

    fn node(&self, child: Child) -> Node<'_, M> {
        Node::named(&self.space, child)
    }

    /// Stores the word that names a durable node or leaf.
    fn link(&self, at: u64, child: Child) {
        let word = self.space.word(at);
        word.store(self.space.medium(), child.0, Release);
        // PERSIST: the change that the word commits, before the next one or the return.
        self.space.region().persist(word);
    }

    /// The leaf of a key.
    fn leaf_of(&self, key: &[u8]) -> Option<u64> {
        let (mut at, mut depth) = (self.root, 0);
        loop {
            let child = self.child(at);
            match child.kind() {
                Kind::None => return None,
                Kind::Leaf => {
                    let leaf = child.offset();
                    return compare_string(&self.space, key, leaf + 8).is_eq().then_some(leaf);
                }
                _ => {}
            }
            let node = self.node(child);
            let header = node.header();
            // A header that a crash has left begins elsewhere. The leaf's key decides in any case.
            if header.depth == depth && !key.get(depth..)?.starts_with(header.held()) {
                return None;
            }
            depth = header.level();
            at = match key.get(depth) {
                Some(&byte) => node.child_at(byte)?,
                None if key.len() == depth => node.here_at(),
                None => return None,
            };
            depth += 1;
        }
    }

    fn insert(&self, key: &[u8], value: u64) -> Result<bool, SpaceFull> {
        assert!(key.len() <= KEY_BYTES_MAX, "a key of {} bytes, at most {KEY_BYTES_MAX}", key.len());
        let (mut at, mut depth) = (self.root, 0);
        loop {
            let child = self.child(at);
            match child.kind() {
                Kind::None => {
                    self.link(at, create_leaf(&self.space, key, value)?);
                    return Ok(true);
                }
                Kind::Leaf => return self.part_leaf(at, depth, key, value),
                _ => {}
            }
            let node = self.node(child);
            let header = self.mended(child, depth);
            let piece = self.piece(child, depth, header);
            let common = common(&piece, &key[depth..]);
            if common < piece.len() {
                self.part_piece(at, common, &piece, key, value)?;
                return Ok(true);
            }
            depth = header.level();
            let Some(&byte) = key.get(depth) else {
                at = node.here_at();
                continue;
            };
            let Some(next) = node.child_at(byte) else {
                let leaf = create_leaf(&self.space, key, value)?;
                if !node.add(byte, leaf) {
                    self.link(at, node.grown(byte, leaf)?);
                }
                return Ok(true);
            };
            (at, depth) = (next, depth + 1);
        }
    }

    /// Replaces a leaf by a node with this leaf and another one, unless it has the key already.
    fn part_leaf(&self, at: u64, depth: usize, key: &[u8], value: u64) -> Result<bool, SpaceFull> {
        let old = self.child(at);
        let old_key = StringKeys::read(&self.space, old.offset() + 8);
        if old_key == key {
            return Ok(false);
        }
        let piece = &key[depth..][..common(&key[depth..], &old_key[depth..])];
        let level = depth + piece.len();
        let leaf = create_leaf(&self.space, key, value)?;
        let mut children = [(symbol(&old_key, level), old), (symbol(key, level), leaf)];
        children.sort_unstable_by_key(|child| child.0);
        self.link(at, Node::create(&self.space, Header::new(depth, piece), &children)?);
        Ok(true)
    }

    /// Puts a node above another one, whose piece has only `common` bytes in common with a new key.
    fn part_piece(
        &self,
        at: u64,
        common: usize,
        piece: &[u8],
        key: &[u8],
        value: u64,
    ) -> Result<(), SpaceFull> {
        let old = self.child(at);
        let level = self.node(old).header().level();
        let depth = level - piece.len();
        let leaf = create_leaf(&self.space, key, value)?;
        let old_symbol = 1 + Symbol::from(piece[common]);
        let mut children = [(old_symbol, old), (symbol(key, depth + common), leaf)];
        children.sort_unstable_by_key(|child| child.0);
        let above = Node::create(&self.space, Header::new(depth, &piece[..common]), &children)?;
        self.link(at, above);
        self.node(old).set_header(Header::new(depth + common + 1, &piece[common + 1..]));
        Ok(())
    }

    /// The header of a node at `depth`. If a crash has left an older one, it is mended.
    fn mended(&self, child: Child, depth: usize) -> Header {
        let node = self.node(child);
        let header = node.header();
        if header.depth == depth {
            return header;
        }
        let header = Header::new(depth, &self.piece(child, depth, header));
        node.set_header(header);
        header
    }

    /// The whole piece from `depth` on that the keys below a node share. If the header does not
    /// hold it, it is a part of any key below.
    fn piece(&self, child: Child, depth: usize, header: Header) -> Vec<u8> {
        if header.depth == depth && header.is_whole() {
            return header.held().to_vec();
        }
        let mut below = child;
        while below.kind() != Kind::Leaf {
            below = self.node(below).next(0).expect("a node has children").1;
        }
        let key = StringKeys::read(&self.space, below.offset() + 8);
        key[depth..header.level()].to_vec()
    }
}

/// How many bytes two strings begin with in common.
fn common(one: &[u8], other: &[u8]) -> usize {
    one.iter().zip(other).take_while(|(one, other)| one == other).count()
}

/// The symbol of a key at a node of this level.
fn symbol(key: &[u8], level: usize) -> Symbol {
    key.get(level).map_or(0, |&byte| 1 + Symbol::from(byte))
}

impl<M: Medium, K: KeyForm> OrderedBaseline<M, K> for Woart<M, K> {
    const NAME: &'static str = "WOART";

    fn create(space: Arc<Space<M>>) -> Result<Self, SpaceFull> {
        Self::create(space)
    }

    fn bytes(&self) -> u64 {
        self.bytes()
    }

    fn get(&self, key: &K::Key) -> Option<u64> {
        self.get(key)
    }

    fn insert(&self, key: &K::Key, value: u64) -> Result<bool, SpaceFull> {
        self.insert(key, value)
    }

    fn update(&self, key: &K::Key, value: u64) -> bool {
        self.update(key, value)
    }

    fn scan(&self, from: &K::Key, most: usize, each: &mut dyn FnMut(u64)) {
        self.scan(from, most, each);
    }
}
