//! The layers in DRAM (4.4.1): a node in the middle layer (*Mnode*) for each node below, and a tree
//! of their low borders above.
//!
//! They are private memory of a process that has the pool alone, and are lost with it. Each Mnode
//! says which keys its node may have, so a search for an absent key seldom reads the pool. It says
//! where the node lies, so no search reads the top layer in the pool.
//!
//! A node need not have an Mnode. One is made by a writer that has the node's lock, or by
//! `maintain`, while there is memory; a search that finds none goes by the pool. So there is no
//! time at which all searches change from one way to the other, and any Mnode can be given up.
//!
//! # Invariants
//! 1. An Mnode is made, changed and given up under the lock of its node. A writer looks for it
//!    after it has taken that lock.
//! 2. The filter of an Mnode has all keys of its node's range, from before they are visible there.
//! 3. An Mnode is *gone* before its node's memory is retired, and before a key of its range is
//!    added anywhere else.
//! 4. A reader believes what it has read of an Mnode if its version is the same before and after,
//!    and settled.
//! 5. What a filter no longer has was removed durably: it is filled anew only under the node's
//!    lock, which persists what is there.

mod filter;
mod mnode;
mod tend;

use super::super::keys::OrderedKind;
use super::super::masstree::Masstree;
use super::border::{Sought, block_of, key_of_border, make};
use crate::{LayerStats, PointIndex};
use mnode::{High, MNODE_BYTES, Mnode};
use std::borrow::Borrow;
use std::cmp::Ordering::Less;
use std::ops::Bound;
use std::sync::Mutex;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicU64};
use terrace_medium::Dram;
use terrace_pool::{Guard, Pool};

/// The least memory of layers, in bytes.
const BYTES_MIN: u64 = 1 << 20;

/// Counters of a thread's slot in the pool of the layers.
const FILTERED: usize = 0;
const FALSE_POSITIVES: usize = 1;
const PASSED: usize = 2;

/// The layers of one tree. They own their memory, and know nothing of the pool of the tree but the
/// offsets of its nodes.
pub(super) struct Layers<K: OrderedKind> {
    pool: Pool<Dram>,
    top: Masstree<Dram, K::Borders>,
    /// Number of Mnodes.
    known: AtomicU64,
    /// No memory was left when the last one was to be made, and none was given up since.
    is_full: AtomicBool,
    /// The low border where the next step of `maintain` begins.
    next: Mutex<Vec<u8>>,
}

/// What the layers know of a key.
pub(super) enum Look {
    /// It is absent. Its node lies there, and at the second offset the Mnode that says so.
    Absent(u64, u64),
    /// It may be in the node there.
    At(u64, u64),
    Unknown,
}

/// What an Mnode is to say of its node.
struct Known<'k> {
    /// The node's offset.
    node: u64,
    low: &'k [u8],
    /// `None` for the last node.
    high: Option<&'k [u8]>,
    /// The bits of its keys' hashes.
    keys: Vec<u64>,
}

impl<K: OrderedKind> Layers<K> {
    /// Empty layers in at most this many bytes, and at least a MiB.
    /// `None` if the process gets no memory.
    pub(super) fn new(bytes: u64) -> Option<Self> {
        let pool = Pool::anonymous(bytes.max(BYTES_MIN)).ok()?;
        let top = Masstree::unnamed(&pool).ok()?;
        let (known, is_full, next) = (AtomicU64::new(0), AtomicBool::new(false), Mutex::default());
        Some(Self { pool, top, known, is_full, next })
    }

    pub(super) fn pin(&self) -> Guard<'_, Dram> {
        self.pool.pin()
    }

    /// The Mnode in whose range a key seems to lie.
    #[inline(always)]
    fn last_up_to<'g>(&'g self, guard: &Guard<'_, Dram>, key: &K::Key) -> Option<Mnode<'g>> {
        Mnode::at(&self.pool, self.top.floor(guard, Bound::Included(key))?)
    }

    /// What the layers know of a key. The pool of the tree is pinned.
    #[inline(always)]
    pub(super) fn look(
        &self,
        guard: &Guard<'_, Dram>,
        (key, sought): (&K::Key, &Sought<'_>),
        hash_bits: u64,
    ) -> Look {
        let medium = self.pool.medium();
        let Some(mnode) = self.last_up_to(guard, key) else { return self.pass(guard) };
        let version = mnode.version(medium);
        if !version.is_settled() || !Self::reaches(guard, mnode.high(medium), sought) {
            return self.pass(guard);
        }
        let may_have = mnode.filter().has(medium, hash_bits);
        let (node, place) = (mnode.node(medium), mnode.offset(&self.pool));
        if mnode.version(medium) != version {
            return self.pass(guard);
        }
        if may_have {
            return Look::At(node, place);
        }
        self.count(guard, FILTERED);
        Look::Absent(node, place)
    }

    /// The node that has a key or leads to it, if the layers know.
    pub(super) fn node_of(&self, guard: &Guard<'_, Dram>, key: &K::Key, sought: &Sought<'_>) -> Option<u64> {
        let (mnode, medium) = (self.last_up_to(guard, key)?, self.pool.medium());
        let version = mnode.version(medium);
        let is_its = version.is_settled() && Self::reaches(guard, mnode.high(medium), sought);
        (is_its && mnode.version(medium) == version).then(|| mnode.node(medium))
    }

    #[inline(always)]
    fn reaches(guard: &Guard<'_, Dram>, high: High, sought: &Sought<'_>) -> bool {
        high.is_none_or(|high| sought.compare::<Dram, K>(guard, high) == Some(Less))
    }

    #[cold]
    fn pass(&self, guard: &Guard<'_, Dram>) -> Look {
        self.count(guard, PASSED);
        Look::Unknown
    }

    fn count(&self, guard: &Guard<'_, Dram>, counter: usize) {
        let (word, medium) = (guard.slot_counter(counter), self.pool.medium());
        word.store(medium, word.load(medium, Relaxed) + 1, Relaxed);
    }

    /// An absent key was looked for in the node of an Mnode.
    pub(super) fn count_false_positive(&self, guard: &Guard<'_, Dram>, mnode: u64) {
        self.count(guard, FALSE_POSITIVES);
        if let Some(mnode) = Mnode::at(&self.pool, mnode) {
            mnode.count_false_positive(self.pool.medium());
        }
    }

    /// Whether an Mnode that was looked at is that of a node, whose lock is held.
    fn is_of(&self, mnode: Mnode<'_>, node: u64) -> bool {
        let medium = self.pool.medium();
        !mnode.version(medium).is_gone() && mnode.node(medium) == node
    }

    /// The Mnode of a node, whose lock is held. `looked` was found by a search under this guard; 0:
    /// nothing was. Otherwise `low` says the low border.
    fn of<'g>(
        &'g self,
        guard: &Guard<'_, Dram>,
        (node, looked): (u64, u64),
        low: impl FnOnce() -> Option<K::Owned>,
    ) -> Option<Mnode<'g>> {
        let at = |offset| Mnode::at(&self.pool, offset).filter(|&mnode| self.is_of(mnode, node));
        if looked != 0
            && let Some(mnode) = at(looked)
        {
            return Some(mnode);
        }
        at(self.top.get(guard, low()?.borrow())?)
    }

    /// Makes the Mnode of a node that has none; `None` without memory. Called under the node's
    /// lock.
    fn make(&self, guard: &Guard<'_, Dram>, known: &Known<'_>) -> Option<Mnode<'_>> {
        if self.is_full.load(Relaxed) {
            return None;
        }
        let made = self.make_blocks(guard, known);
        match &made {
            Some(_) => _ = self.known.fetch_add(1, Relaxed),
            None => self.is_full.store(true, Relaxed),
        }
        made
    }

    fn make_blocks(&self, guard: &Guard<'_, Dram>, known: &Known<'_>) -> Option<Mnode<'_>> {
        let (medium, key) = (self.pool.medium(), K::owned(known.low)?);
        let low = self.border(guard, known.low)?;
        let Some(high) = self.high(guard, known) else {
            self.free_border(guard, low);
            return None;
        };
        let fresh = guard.alloc(MNODE_BYTES).map(|fresh| {
            let words = Mnode::words(known.node, low, high);
            // ORDER: Relaxed: the tree above publishes it.
            (words.iter().enumerate())
                .for_each(|(at, &word)| fresh.word(8 * at).store(medium, word, Relaxed));
            fresh.fenced_later().into_offset()
        });
        let mnode = fresh.ok().and_then(|offset| Mnode::at(&self.pool, offset));
        if let Some(mnode) = mnode {
            mnode.filter().fill(medium, &known.keys);
            if self.top.insert(guard, key.borrow(), mnode.offset(&self.pool)).is_ok() {
                return Some(mnode);
            }
            guard.free(mnode.offset(&self.pool), MNODE_BYTES);
        }
        [Some(low), high].into_iter().flatten().for_each(|border| self.free_border(guard, border));
        None
    }

    /// Settles an Mnode that was changing: with another end, and the keys of its node. Called under
    /// the node's lock. Without memory, gives it up.
    fn settle(&self, guard: &Guard<'_, Dram>, mnode: Mnode<'_>, known: &Known<'_>) {
        let (medium, old) = (self.pool.medium(), mnode.high(self.pool.medium()));
        let is_end = |border| key_of_border::<Dram, K>(guard, border).as_deref() == known.high;
        if !old.map_or(known.high.is_none(), is_end) {
            let Some(high) = self.high(guard, known) else {
                self.give_up(guard, mnode);
                self.is_full.store(true, Relaxed);
                return;
            };
            mnode.set_high(medium, high);
            old.inspect(|&old| self.retire_border(guard, old));
        }
        mnode.filter().fill(medium, &known.keys);
        mnode.settle(medium);
    }

    /// Ends an Mnode. Called under its node's lock.
    fn give_up(&self, guard: &Guard<'_, Dram>, mnode: Mnode<'_>) {
        let medium = self.pool.medium();
        mnode.set_gone(medium);
        let (low, high) = (mnode.low(medium), mnode.high(medium));
        if let Some(key) = key_of_border::<Dram, K>(guard, low).and_then(|low| K::owned(&low)) {
            self.top.remove(guard, key.borrow());
        }
        [Some(low), high].into_iter().flatten().for_each(|border| self.retire_border(guard, border));
        guard.retire(mnode.offset(&self.pool), MNODE_BYTES);
        self.known.fetch_sub(1, Relaxed);
        self.is_full.store(false, Relaxed);
    }

    /// A border in DRAM; `None` without memory.
    fn border(&self, guard: &Guard<'_, Dram>, bytes: &[u8]) -> Option<u64> {
        match bytes.first_chunk() {
            Some(bytes) if K::LEAF_BYTES > 0 => Some(u64::from_be_bytes(*bytes)),
            _ if bytes.is_empty() => Some(0),
            _ => Some(make(guard, bytes).ok()?.0),
        }
    }

    /// What an Mnode is to have as its high border; `None` without memory.
    fn high(&self, guard: &Guard<'_, Dram>, known: &Known<'_>) -> Option<High> {
        match known.high {
            Some(high) => self.border(guard, high).map(Some),
            None => Some(None),
        }
    }

    fn free_border(&self, guard: &Guard<'_, Dram>, border: u64) {
        if let Some((offset, bytes)) = block_of::<Dram, K>(guard, border) {
            guard.free(offset, bytes);
        }
    }

    fn retire_border(&self, guard: &Guard<'_, Dram>, border: u64) {
        if let Some((offset, bytes)) = block_of::<Dram, K>(guard, border) {
            guard.retire(offset, bytes);
        }
    }

    fn stats(&self) -> LayerStats {
        let space = self.pool.space();
        LayerStats {
            budget: self.pool.size(),
            bytes: space.used_by_blocks,
            nodes: [0, self.known.load(Relaxed)],
            filtered: self.pool.sum_counter(FILTERED),
            false_positives: self.pool.sum_counter(FALSE_POSITIVES),
            passed: self.pool.sum_counter(PASSED),
            ..LayerStats::default()
        }
    }
}
