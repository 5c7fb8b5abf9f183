//! An Mnode: what is known in DRAM of a node.
//!
//! ```text
//!   line 0  | version | node | false positives | buffer | free 15:8, last 0 | high | low | lock |
//!   line 1  | filter |
//! ```
//! `high` and `low` are integers, or links to borders in the pool of the layers. Word 6 is `low`,
//! as in a node, so the ART above reads Mnodes as records; an integer has its highest byte first
//! there. The node has at least so many *free* slots.

use super::Known;
use super::filter::Filter;
use crate::ordered::OrderedKind;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use terrace_medium::{Dram, LINE, Line, Offset, Word};
use terrace_pool::{Lock, Pool};

pub(super) const MNODE_BYTES: usize = 2 * LINE;

const VERSION: usize = 0;
const NODE: usize = 1;
const FALSE_POSITIVES: usize = 2;
const BUFFER: usize = 3;
const FLAGS: usize = 4;
const HIGH: usize = 5;
const LOCK: usize = 7;

const IS_LAST: u64 = 1;
const FREE_AT: u32 = 8;

/// What a reader compares to know that all it has read is of one time.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(in super::super) struct Version(u64);

impl Version {
    const CHANGING: u64 = 1;
    const GONE: u64 = 1 << 63;

    #[inline(always)]
    pub(in super::super) fn is_settled(self) -> bool {
        self.0 & (Self::CHANGING | Self::GONE) == 0
    }

    pub(in super::super) fn is_gone(self) -> bool {
        self.0 & Self::GONE != 0
    }
}

/// Where the range of a node ends: the border, unless it is the last one.
pub(super) type High = Option<u64>;

#[derive(Clone, Copy)]
pub(in super::super) struct Mnode<'g>(&'g [Line; 2]);

impl<'g> Mnode<'g> {
    #[inline(always)]
    pub(super) fn at(pool: &'g Pool<Dram>, offset: u64) -> Option<Self> {
        pool.region().get(Offset::new(offset)).map(Self)
    }

    /// The words of a new one with these borders, but for its filter, which is empty.
    pub(super) fn words<K: OrderedKind>(
        known: &Known<'_>,
        (low, high): (u64, High),
    ) -> [u64; MNODE_BYTES / 8] {
        let mut words = [0; MNODE_BYTES / 8];
        // An integer lies there as a key's bytes do: see `IntegerLows`.
        let low = if K::LEAF_BYTES > 0 { low.to_be() } else { low };
        let flags = u64::from(high.is_none()) | (known.free as u64) << FREE_AT;
        words[..7].copy_from_slice(&[0, known.node, 0, 0, flags, high.unwrap_or(0), low]);
        words
    }

    pub(super) fn offset(self, pool: &Pool<Dram>) -> u64 {
        pool.region().offset_of(self.0).raw()
    }

    #[inline(always)]
    fn word(self, index: usize) -> &'g Word {
        &self.0[0].0[index]
    }

    pub(in super::super) fn filter(self) -> Filter<'g> {
        Filter(&self.0[1])
    }

    /// ORDER: Acquire: what follows is read after it. At the end of a read: what it has read came
    /// by loads with Acquire, so this one is not done before them.
    #[inline(always)]
    pub(in super::super) fn version(self, medium: &Dram) -> Version {
        Version(self.word(VERSION).load(medium, Acquire))
    }

    /// Never changes.
    #[inline(always)]
    pub(in super::super) fn node(self, medium: &Dram) -> u64 {
        self.word(NODE).load(medium, Relaxed)
    }

    /// ORDER: Acquire: the version is read after it.
    #[inline(always)]
    pub(super) fn high(self, medium: &Dram) -> High {
        let is_last = self.word(FLAGS).load(medium, Acquire) & IS_LAST != 0;
        let high = self.word(HIGH).load(medium, Acquire);
        (!is_last).then_some(high)
    }

    /// Called while it is changing. ORDER: Release: after the version became odd.
    pub(super) fn set_high(self, medium: &Dram, high: High) {
        let others = self.word(FLAGS).load(medium, Relaxed) & !IS_LAST;
        self.word(FLAGS).store(medium, others | u64::from(high.is_none()), Release);
        self.word(HIGH).store(medium, high.unwrap_or(0), Release);
    }

    /// Taken before the lock of the node.
    pub(in super::super) fn lock(self) -> &'g Lock {
        Lock::of(self.word(LOCK))
    }

    /// Free slots of the node. Called under the lock, as the next one.
    pub(in super::super) fn free(self, medium: &Dram) -> usize {
        (self.word(FLAGS).load(medium, Relaxed) >> FREE_AT & 0xff) as usize
    }

    pub(in super::super) fn set_free(self, medium: &Dram, free: usize) {
        let others = self.word(FLAGS).load(medium, Relaxed) & IS_LAST;
        self.word(FLAGS).store(medium, others | (free as u64) << FREE_AT, Release);
    }

    /// The place of its write buffer; 0 if it has none.
    ///
    /// ORDER: Acquire: the buffer's words are read after it, and the version after those.
    #[inline(always)]
    pub(super) fn buffer(self, medium: &Dram) -> u64 {
        self.word(BUFFER).load(medium, Acquire)
    }

    pub(in super::super) fn set_buffer(self, medium: &Dram, buffer: u64) {
        self.word(BUFFER).store(medium, buffer, Release);
    }

    /// A link, or an integer. Never changes.
    pub(super) fn low<K: OrderedKind>(self, medium: &Dram) -> u64 {
        let low = self.word(super::super::border::LOW).load(medium, Relaxed);
        if K::LEAF_BYTES > 0 { u64::from_be(low) } else { low }
    }

    /// From here on, readers do without it, until it is settled. Called under the node's lock.
    pub(in super::super) fn begin(self, medium: &Dram) {
        let version = self.version(medium).0 | Version::CHANGING;
        // ORDER: Release: a search that does without it finds in the pool what was merged before.
        // What is stored next is stored with Release, too.
        self.word(VERSION).store(medium, version, Release);
    }

    pub(in super::super) fn settle(self, medium: &Dram) {
        let version = (self.version(medium).0 | Version::CHANGING) + 1;
        // ORDER: Release: a reader that sees it sees what was stored before.
        self.word(VERSION).store(medium, version, Release);
    }

    /// What a reader has read of the buffer is not of one time any more.
    pub(in super::super) fn turn(self, medium: &Dram) {
        let version = self.version(medium).0 + (Version::CHANGING + 1);
        // ORDER: Release: after the entry became free. A reader that sees what comes there next
        // sees this version.
        self.word(VERSION).store(medium, version, Release);
    }

    /// Never settles again.
    pub(super) fn set_gone(self, medium: &Dram) {
        // ORDER: Release, and a search that loads it later does without the Mnode.
        self.word(VERSION).store(medium, Version::GONE, Release);
    }

    /// A search for an absent key went to the node. Not exact: threads may count at a time.
    pub(super) fn count_false_positive(self, medium: &Dram) {
        let count = self.word(FALSE_POSITIVES);
        count.store(medium, count.load(medium, Relaxed) + 1, Relaxed);
    }
}
