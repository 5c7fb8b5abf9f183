//! The layers in DRAM (4.4.1): a node in the middle layer (*Mnode*) for each node below, and a tree
//! of their low borders above, an ART.
//!
//! They are private memory of a process that has the pool alone, and are lost with it. Each Mnode
//! says which keys its node may have, so a search for an absent key seldom reads the pool. It says
//! where the node lies, so no search reads the top layer in the pool.
//!
//! An Mnode that is written to gets a write buffer (`buffer`). While there are too few of these,
//! `maintain` takes them from the nodes that fill theirs slowest.
//!
//! A node need not have an Mnode. One is made by a writer that has the node's lock, or by
//! `maintain`, while there is memory; a search that finds none goes by the pool. So there is no
//! time at which all searches change from one way to the other, and any Mnode can be given up.
//!
//! # Invariants
//! 1. An Mnode is made and given up under the lock of its node, and changed under its own and that.
//!    A writer without one looks for it after it has taken the lock of the node.
//! 2. The filter of an Mnode has all keys of its node's range, from before they are visible there.
//! 3. An Mnode is *gone* before its node's memory is retired, and before a key of its range is
//!    added anywhere else.
//! 4. A reader believes what it has read of an Mnode if its version is the same before and after,
//!    and settled.
//! 5. What a filter no longer has was removed durably: it is filled anew only under the node's
//!    lock, which persists what is there.

mod buffer;
mod buffers;
mod filter;
mod mnode;
mod tend;

pub(super) use buffer::{Buffer, ENTRIES};
pub(super) use mnode::Mnode;

use super::super::art::Art;
use super::super::keys::Found;
use super::super::keys::OrderedKind;
use super::border::{Sought, block_of, key_of_border, make};
use super::find::Probe;
use super::log::{ENTRY_BYTES, Log};
use super::node::{Pair, slots_of};
use super::word::{Entry, hash_bits};
use crate::{LayerOptions, LayerStats, PointIndex};
use buffers::Buffers;
use mnode::{High, MNODE_BYTES, Version};
use std::cmp::Ordering::Less;
use std::sync::Mutex;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicU64};
use terrace_medium::{Dram, MappedMedium};
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
    top: Art<Dram, K::Lows>,
    /// Number of Mnodes.
    known: AtomicU64,
    /// No memory was left when the last one was to be made, and none was given up since.
    is_full: AtomicBool,
    /// The write buffers; `None` if the pool has no memory for a log.
    buffers: Option<Buffers>,
    /// The low border where the next step of `maintain` begins.
    next: Mutex<Vec<u8>>,
}

/// What the layers know of a key.
#[derive(Clone, Copy)]
pub(super) enum Look {
    /// It is absent.
    Absent(At),
    /// Its word, which a write buffer has.
    Buffered(u64, At),
    /// It may be in the node.
    Node(At),
    Unknown,
}

/// An Mnode as a search has seen it.
#[derive(Clone, Copy)]
pub(super) struct At {
    /// The offset of its node in the pool.
    pub(super) node: u64,
    /// Its own place in DRAM.
    pub(super) mnode: u64,
    version: Version,
    /// Slots of the node that do not count.
    pub(super) superseded: u64,
}

/// What an Mnode is to say of its node.
pub(super) struct Known<'k> {
    /// The node's offset.
    node: u64,
    low: &'k [u8],
    /// `None` for the last node.
    high: Option<&'k [u8]>,
    /// The bits of its keys' hashes.
    keys: Vec<u64>,
    /// Its free slots.
    free: usize,
}

impl<K: OrderedKind> Layers<K> {
    /// Empty layers in at most so many bytes, and at least a MiB; with buffers if there is a log.
    /// `None` if the process gets no memory.
    pub(super) fn new(options: LayerOptions, log: Option<&Log>) -> Option<Self> {
        let pool = Pool::anonymous(options.bytes.max(BYTES_MIN)).ok()?;
        let top = Art::unnamed(&pool).ok()?;
        let most = options.buffers / buffer::buffer_bytes::<K>() as u64;
        let buffers = log.filter(|_| most > 0).map(|log| Buffers::new(most, log));
        let (known, is_full, next) = (AtomicU64::new(0), AtomicBool::new(false), Mutex::default());
        Some(Self { pool, top, known, is_full, buffers, next })
    }

    pub(super) fn pin(&self) -> Guard<'_, Dram> {
        self.pool.pin()
    }

    /// The Mnode in whose range a key seems to lie.
    #[inline(always)]
    fn last_up_to<'g>(&'g self, guard: &Guard<'_, Dram>, sought: &Sought<'_>) -> Option<Mnode<'g>> {
        Mnode::at(&self.pool, self.top.floor(guard, &sought.bytes)?)
    }

    /// What the layers know of a key.
    #[inline(always)]
    pub(super) fn look<M: MappedMedium>(
        &self,
        guard: &Guard<'_, M>,
        lower: &Guard<'_, Dram>,
        probe: &Probe<'_, K::Key>,
    ) -> Look {
        loop {
            let Some(mnode) = self.last_up_to(lower, &probe.sought) else { return self.pass(lower) };
            let version = mnode.version(self.pool.medium());
            if !version.is_settled() || !self.reaches(lower, mnode, &probe.sought) {
                return self.pass(lower);
            }
            let look = self.look_at(guard, mnode, version, probe);
            if mnode.version(self.pool.medium()) == version {
                if let Look::Absent(_) = look {
                    self.count(lower, FILTERED);
                }
                return look;
            }
        }
    }

    /// What an Mnode of this version says of a key, if it has the version afterwards.
    #[inline(always)]
    fn look_at<M: MappedMedium>(
        &self,
        guard: &Guard<'_, M>,
        mnode: Mnode<'_>,
        version: Version,
        probe: &Probe<'_, K::Key>,
    ) -> Look {
        let medium = self.pool.medium();
        let (node, place) = (mnode.node(medium), mnode.offset(&self.pool));
        let mut at = At { node, mnode: place, version, superseded: 0 };
        if !mnode.filter().has(medium, hash_bits(probe.hash)) {
            return Look::Absent(at);
        }
        if let Some(buffer) = self.buffer_of(mnode) {
            at.superseded = buffer.superseded(medium);
            if let Some((_, word)) = self.find_buffered(guard, buffer, probe) {
                return Look::Buffered(word, at);
            }
        }
        Look::Node(at)
    }

    /// Whether an Mnode is as a search has seen it, under the same guard.
    #[inline(always)]
    pub(super) fn is_unchanged(&self, at: &At) -> bool {
        Mnode::at(&self.pool, at.mnode).is_some_and(|mnode| mnode.version(self.pool.medium()) == at.version)
    }

    /// The write buffer of an Mnode.
    #[inline(always)]
    pub(super) fn buffer_of(&self, mnode: Mnode<'_>) -> Option<Buffer<'_>> {
        match mnode.buffer(self.pool.medium()) {
            0 => None,
            buffer => Buffer::at::<K>(&self.pool, buffer),
        }
    }

    /// The entry of a key in a buffer, and its word.
    #[inline(always)]
    pub(super) fn find_buffered<M: MappedMedium>(
        &self,
        guard: &Guard<'_, M>,
        buffer: Buffer<'_>,
        probe: &Probe<'_, K::Key>,
    ) -> Option<(usize, u64)> {
        let medium = self.pool.medium();
        slots_of(buffer.used(medium)).find_map(|entry| {
            let (key, word) = buffer.pair::<K>(medium, entry);
            if K::LEAF_BYTES > 0 {
                return (key == probe.sought.integer).then_some((entry, word));
            }
            let slot = Entry(word);
            if !slot.is_sound() || slot.hash_bits() != hash_bits(probe.hash) {
                return None;
            }
            match K::find(guard, slot.offset(), probe.key) {
                Found::Word(word) => Some((entry, word)),
                Found::Other => None,
            }
        })
    }

    /// What the buffer of a node has: the slots of the node that do not count, and the pairs that
    /// count instead; and how to see whether that has changed. `None` without an Mnode.
    pub(super) fn overlay(&self, lower: &Guard<'_, Dram>, node: u64, low: &[u8]) -> Option<(At, Vec<Pair>)> {
        let medium = self.pool.medium();
        let mnode = Mnode::at(&self.pool, self.top.get(lower, low)?)?;
        let (version, place) = (mnode.version(medium), mnode.offset(&self.pool));
        if mnode.node(medium) != node || !version.is_settled() {
            return None;
        }
        let buffer = self.buffer_of(mnode);
        let superseded = buffer.map_or(0, |buffer| buffer.superseded(medium));
        let pairs = buffer.map_or_else(Vec::new, |buffer| buffer.pairs::<K>(medium).collect());
        Some((At { node, mnode: place, version, superseded }, pairs))
    }

    /// The node that has a key or leads to it, if the layers know.
    pub(super) fn node_of(&self, guard: &Guard<'_, Dram>, key: &K::Key) -> Option<u64> {
        let sought = Sought::new(K::bytes(key));
        let (mnode, medium) = (self.last_up_to(guard, &sought)?, self.pool.medium());
        let version = mnode.version(medium);
        let is_its = version.is_settled() && self.reaches(guard, mnode, &sought);
        (is_its && mnode.version(medium) == version).then(|| mnode.node(medium))
    }

    /// Whether a key lies below the end of an Mnode's range.
    #[inline(always)]
    pub(super) fn reaches(&self, guard: &Guard<'_, Dram>, mnode: Mnode<'_>, sought: &Sought<'_>) -> bool {
        let high = mnode.high(self.pool.medium());
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

    /// The Mnode of a node with this low border.
    pub(super) fn of(&self, guard: &Guard<'_, Dram>, node: u64, low: &[u8]) -> Option<Mnode<'_>> {
        let (mnode, medium) = (Mnode::at(&self.pool, self.top.get(guard, low)?)?, self.pool.medium());
        (!mnode.version(medium).is_gone() && mnode.node(medium) == node).then_some(mnode)
    }

    pub(super) fn place_of(&self, mnode: Mnode<'_>) -> u64 {
        mnode.offset(&self.pool)
    }

    /// The Mnode at a place that was read under this guard.
    pub(super) fn mnode_at(&self, place: u64) -> Option<Mnode<'_>> {
        if place == 0 { None } else { Mnode::at(&self.pool, place) }
    }

    /// The buffer of a node, which gets one if there is any. Called under the lock of its Mnode.
    pub(super) fn buffer_for(&self, guard: &Guard<'_, Dram>, mnode: Mnode<'_>) -> Option<Buffer<'_>> {
        if let Some(buffer) = self.buffer_of(mnode) {
            return Some(buffer);
        }
        let buffer = self.buffers.as_ref()?.take::<K>(&self.pool, guard)?;
        buffer.set_owner(self.pool.medium(), mnode.offset(&self.pool));
        mnode.set_buffer(self.pool.medium(), buffer.offset(&self.pool));
        Some(buffer)
    }

    /// Takes an empty buffer from a node. Called under the lock of its Mnode.
    fn detach(&self, mnode: Mnode<'_>, buffer: Buffer<'_>) {
        mnode.set_buffer(self.pool.medium(), 0);
        mnode.turn(self.pool.medium());
        self.buffers.iter().for_each(|buffers| buffers.give_back(&self.pool, buffer));
    }

    /// A number for the next change of a buffer. Called under the lock of its Mnode.
    pub(super) fn number(&self, log: &Log, buffer: Buffer<'_>) -> Option<u64> {
        self.buffers.as_ref()?.number(&self.pool, log, buffer)
    }

    pub(super) fn medium(&self) -> &Dram {
        self.pool.medium()
    }

    /// Makes the Mnode of a node that has none; `None` without memory. Called under the node's
    /// lock.
    pub(super) fn make(&self, guard: &Guard<'_, Dram>, known: &Known<'_>) -> Option<Mnode<'_>> {
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
        let medium = self.pool.medium();
        let low = self.border(guard, known.low)?;
        let Some(high) = self.high(guard, known) else {
            self.free_border(guard, low);
            return None;
        };
        let fresh = guard.alloc(MNODE_BYTES).map(|fresh| {
            let words = Mnode::words::<K>(known, (low, high));
            // ORDER: Relaxed: the tree above publishes it.
            (words.iter().enumerate())
                .for_each(|(at, &word)| fresh.word(8 * at).store(medium, word, Relaxed));
            fresh.fenced_later().into_offset()
        });
        let mnode = fresh.ok().and_then(|offset| Mnode::at(&self.pool, offset));
        if let Some(mnode) = mnode {
            mnode.filter().fill(medium, &known.keys);
            if self.top.insert(guard, known.low, mnode.offset(&self.pool)).is_ok() {
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
        mnode.set_free(medium, known.free);
        mnode.settle(medium);
    }

    /// Ends an Mnode. Called under its node's lock.
    fn give_up(&self, guard: &Guard<'_, Dram>, mnode: Mnode<'_>) {
        let medium = self.pool.medium();
        if let (Some(buffers), Some(buffer)) = (&self.buffers, self.buffer_of(mnode)) {
            assert!(buffer.is_empty(medium), "a buffer is merged before its node goes");
            buffer.clear(medium);
            buffers.give_back(&self.pool, buffer);
        }
        mnode.set_gone(medium);
        let (low, high) = (mnode.low::<K>(medium), mnode.high(medium));
        if let Some(key) = key_of_border::<Dram, K>(guard, low) {
            self.top.remove(guard, &key);
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

    fn stats(&self, log: Option<&Log>) -> LayerStats {
        let space = self.pool.space();
        let buffers = self.buffers.as_ref();
        LayerStats {
            budget: self.pool.size(),
            bytes: space.used_by_blocks,
            nodes: [0, self.known.load(Relaxed)],
            buffers: buffers.map_or(0, |buffers| buffers.in_use()),
            buffered: buffers.map_or(0, |buffers| buffers.keys::<K>(&self.pool)),
            log_bytes: buffers.zip(log).map_or(0, |(buffers, log)| buffers.places_used(log) * ENTRY_BYTES),
            filtered: self.pool.sum_counter(FILTERED),
            false_positives: self.pool.sum_counter(FALSE_POSITIVES),
            passed: self.pool.sum_counter(PASSED),
        }
    }
}
