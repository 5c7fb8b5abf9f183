//! The engine's root block.
//!
//! ```text
//!   line 0    | lock of batches | active batch | format | sweep position | sweep slowness | sweeper | 0 ... |
//!   line 1    | bytes of data, base | expiring, base | 0 ... |
//!   lines 2.. | a stripe each: bytes of data | expiring | stamps | expired | 0 ... |
//!   then      | counts of removals, 8 a line (see `absence`)
//! ```
//! Only the active batch has to be durable. The rest are hints and statistics.

use super::absence;
use super::counters::STRIPES;
use crate::OpenError;
use std::sync::atomic::Ordering::{Acquire, Release};
use terrace_medium::{Line, MappedMedium, Offset, Word};
use terrace_pool::Pool;

const LINES: usize = 2 + STRIPES as usize;
const NAME: &str = "engine";
const KIND: &str = "direct";
/// Name of the index's root.
pub(super) const INDEX: &str = "keys";
const FORMAT: u64 = u64::from_le_bytes(*b"direct 2");

/// The root block of a store.
pub(super) struct Root<M: MappedMedium> {
    pool: Pool<M>,
    at: u64,
}

impl<M: MappedMedium> Root<M> {
    /// Makes one and gives it its name in the pool.
    pub(super) fn create(pool: &Pool<M>) -> Result<Self, OpenError> {
        let guard = pool.pin();
        let mut lines = vec![[0; 8]; LINES + absence::lines(&pool.layout().geometry)];
        let fresh = guard.alloc(lines.len() * 64)?;
        lines[0][2] = FORMAT;
        fresh.stream_lines(0, &lines);
        // PERSIST: the block before its name; a crash in between leaves a block that the collector takes back.
        let at = fresh.fenced(&guard.fence()).into_offset();
        pool.set_root(NAME, KIND, at)?;
        drop(guard);
        Ok(Self { pool: pool.clone(), at })
    }

    /// Finds it by its name.
    pub(super) fn find(pool: &Pool<M>) -> Result<Option<Self>, OpenError> {
        let Some(at) = pool.root(NAME, KIND)? else { return Ok(None) };
        let damaged = |what| OpenError::Damaged { offset: at, what };
        let root = Self { pool: pool.clone(), at };
        let last = at.checked_add(root.block().1 as u64 - 64);
        if last.and_then(|last| pool.region().get(Offset::<Line>::new(last))).is_none() {
            return Err(damaged("the store's root lies outside the pool"));
        }
        if root.word(0, 2).load(pool.medium(), Acquire) != FORMAT {
            return Err(damaged("the store's root is not one, or of another format"));
        }
        Ok(Some(root))
    }

    #[inline(always)]
    pub(super) fn word(&self, line: u64, index: usize) -> &Word {
        &self.pool.region().at(Offset::<Line>::new(self.at).element(line)).0[index]
    }

    pub(super) fn lock(&self) -> &Word {
        self.word(0, 0)
    }

    pub(super) fn sweep_slowness(&self) -> &Word {
        self.word(0, 4)
    }

    /// Lock of the process that removes what has expired.
    pub(super) fn sweeper(&self) -> &Word {
        self.word(0, 5)
    }

    pub(super) fn sweep_position(&self) -> &Word {
        self.word(0, 3)
    }

    /// The descriptor of the batch that is under way, 0 if none is.
    pub(super) fn active(&self) -> u64 {
        self.word(0, 1).load(self.pool.medium(), Acquire)
    }

    /// As [`Root::active`], durable on return: whoever named it, or nothing, may have been killed before that was.
    pub(super) fn settled_active(&self) -> u64 {
        // PERSIST: before the caller does what follows from it. If the old name came back with a loss of power, its blocks would long be used again.
        self.pool.region().persist(self.word(0, 1));
        self.active()
    }

    /// As [`Root::active`], durable at the next fence of the caller.
    pub(super) fn settling_active(&self) -> u64 {
        // PERSIST: fenced with the change that the caller makes, before a record that it replaces can be used again.
        self.pool.region().write_back(self.word(0, 1));
        self.active()
    }

    /// Names the batch that is under way, durably.
    pub(super) fn set_active(&self, descriptor: u64) {
        let word = self.word(0, 1);
        word.store(self.pool.medium(), descriptor, Release);
        // PERSIST: see the head of batch.rs.
        self.pool.region().persist(word);
    }

    /// Its block, for the collector.
    pub(super) fn block(&self) -> (u64, usize) {
        (self.at, (LINES + self.removal_lines()) * 64)
    }

    pub(super) fn removal_lines(&self) -> usize {
        absence::lines(&self.pool.layout().geometry)
    }

    pub(super) fn removal_line(&self, line: usize, index: usize) -> &Word {
        self.word((LINES + line) as u64, index)
    }
}
