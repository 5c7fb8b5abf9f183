//! An Mnode: what is known in DRAM of a node.
//!
//! ```text
//!   line 0  | version | node | false positives | 0 | is last | high | low | 0 |
//!   line 1  | filter |
//! ```
//! `high` and `low` are integers, or links to borders in the pool of the layers. Word 6 is `low`,
//! as in a node, so the tree above reads Mnodes as nodes.

use super::filter::Filter;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use terrace_medium::{Dram, LINE, Line, Offset, Word};
use terrace_pool::Pool;

pub(super) const MNODE_BYTES: usize = 2 * LINE;

const VERSION: usize = 0;
const NODE: usize = 1;
const FALSE_POSITIVES: usize = 2;
const IS_LAST: usize = 4;
const HIGH: usize = 5;

/// What a reader compares to know that all it has read is of one time.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Version(u64);

impl Version {
    const CHANGING: u64 = 1;
    const GONE: u64 = 1 << 63;

    #[inline(always)]
    pub(super) fn is_settled(self) -> bool {
        self.0 & (Self::CHANGING | Self::GONE) == 0
    }

    pub(super) fn is_gone(self) -> bool {
        self.0 & Self::GONE != 0
    }
}

/// Where the range of a node ends: the border, unless it is the last one.
pub(super) type High = Option<u64>;

#[derive(Clone, Copy)]
pub(super) struct Mnode<'g>(&'g [Line; 2]);

impl<'g> Mnode<'g> {
    #[inline(always)]
    pub(super) fn at(pool: &'g Pool<Dram>, offset: u64) -> Option<Self> {
        pool.region().get(Offset::new(offset)).map(Self)
    }

    /// The words of a new one for a node, but for its filter, which is empty.
    pub(super) fn words(node: u64, low: u64, high: High) -> [u64; MNODE_BYTES / 8] {
        let mut words = [0; MNODE_BYTES / 8];
        words[..7].copy_from_slice(&[0, node, 0, 0, u64::from(high.is_none()), high.unwrap_or(0), low]);
        words
    }

    pub(super) fn offset(self, pool: &Pool<Dram>) -> u64 {
        pool.region().offset_of(self.0).raw()
    }

    #[inline(always)]
    fn word(self, index: usize) -> &'g Word {
        &self.0[0].0[index]
    }

    pub(super) fn filter(self) -> Filter<'g> {
        Filter(&self.0[1])
    }

    /// ORDER: Acquire: what follows is read after it. At the end of a read: what it has read came
    /// by loads with Acquire, so this one is not done before them.
    #[inline(always)]
    pub(super) fn version(self, medium: &Dram) -> Version {
        Version(self.word(VERSION).load(medium, Acquire))
    }

    /// Never changes.
    #[inline(always)]
    pub(super) fn node(self, medium: &Dram) -> u64 {
        self.word(NODE).load(medium, Relaxed)
    }

    /// ORDER: Acquire: the version is read after it.
    #[inline(always)]
    pub(super) fn high(self, medium: &Dram) -> High {
        let is_last = self.word(IS_LAST).load(medium, Acquire) != 0;
        let high = self.word(HIGH).load(medium, Acquire);
        (!is_last).then_some(high)
    }

    /// Called while it is changing. ORDER: Release: after the version became odd.
    pub(super) fn set_high(self, medium: &Dram, high: High) {
        self.word(IS_LAST).store(medium, u64::from(high.is_none()), Release);
        self.word(HIGH).store(medium, high.unwrap_or(0), Release);
    }

    /// A link, or an integer. Never changes.
    pub(super) fn low(self, medium: &Dram) -> u64 {
        self.word(super::super::border::LOW).load(medium, Relaxed)
    }

    /// From here on, readers do without it, until it is settled. Called under the node's lock.
    pub(super) fn begin(self, medium: &Dram) {
        let version = self.version(medium).0 | Version::CHANGING;
        // ORDER: Relaxed: what is stored next is stored with Release.
        self.word(VERSION).store(medium, version, Relaxed);
    }

    pub(super) fn settle(self, medium: &Dram) {
        let version = (self.version(medium).0 | Version::CHANGING) + 1;
        // ORDER: Release: a reader that sees it sees what was stored before.
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
