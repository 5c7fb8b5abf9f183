//! An open pool, as its callers see it. Only this folder and `gc` see all parts of it.
//!
//! Reading order: this file (the handle), `inner` (what all handles share), `guard` (a pinned
//! thread), `fresh` (blocks), `locking` (locks), `roots`, `fixed` (places that were checked once),
//! `memory` (figures, and how to get more), `readers` (waiting for pinned threads), `compaction`,
//! `processes` and `stopped` (the others that have it open), `protection` (data that must not
//! change), `watch` (changes of keys), `check`, `testing` (what only tests do).

pub(crate) mod check;
pub(crate) mod compaction;
pub(crate) mod fixed;
pub(crate) mod fresh;
pub(crate) mod guard;
pub(crate) mod inner;
pub(crate) mod locking;
pub(crate) mod memory;
pub(crate) mod processes;
pub(crate) mod protection;
pub(crate) mod readers;
pub(crate) mod roots;
pub(crate) mod stopped;
pub(crate) mod testing;
pub(crate) mod watch;

use crate::error::{CloseError, OpenError};
use crate::format::layout::{Geometry, Layout};
use crate::format::lifetime::Start;
use crate::format::superblock::{self, Superblock};
use crate::open::options::PoolOptions;
use crate::pool::inner::Inner;
use crate::sharing::terms::word;
use crate::sync::lock::Owner;
use crate::sync::locked::Locked;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use terrace_medium::{MapError, MappedMedium, Region};

/// An open pool. Clones are handles to the same pool; dropping the last one closes it in order.
pub struct Pool<M: MappedMedium>(pub(crate) Arc<Inner<M>>);

impl<M: MappedMedium> Clone for Pool<M> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<M: MappedMedium> Pool<M> {
    /// Creates a pool of `size` bytes in anonymous memory, which ends with the process.
    pub fn anonymous(size: u64) -> Result<Self, OpenError> {
        PoolOptions::anonymous().size(size).create()
    }

    /// As [`Pool::anonymous`], with a given geometry.
    pub fn anonymous_with(size: u64, geometry: Geometry) -> Result<Self, OpenError> {
        PoolOptions::anonymous().size(size).geometry(geometry).create()
    }

    /// The pool's memory.
    #[inline(always)]
    pub fn region(&self) -> &Region<M> {
        &self.0.base().region
    }

    /// The medium below.
    #[inline(always)]
    pub fn medium(&self) -> &M {
        self.0.base().region.medium()
    }

    /// Where its parts lie.
    #[inline(always)]
    pub fn layout(&self) -> &Layout {
        &self.0.base().layout
    }

    /// Its size in bytes, a multiple of the page.
    #[inline(always)]
    pub fn size(&self) -> u64 {
        self.0.base().size()
    }

    /// How often it has been opened by a first process. A lock word of another generation is free.
    #[inline(always)]
    pub fn generation(&self) -> u32 {
        self.0.base().owner.generation
    }

    /// This process, as lock words identify it.
    #[inline(always)]
    pub fn owner(&self) -> Owner {
        self.0.base().owner
    }

    /// The seed of every hash of a key in this pool.
    #[inline(always)]
    pub fn hash_seed(&self) -> u64 {
        self.0.hash_seed
    }

    /// The state in which it was found when it was opened.
    pub fn found(&self) -> Start {
        self.0.base().start
    }

    /// Whether it is open read-only: stores to it stay private to this process.
    pub fn is_read_only(&self) -> bool {
        !self.0.writes
    }

    /// Whether other processes may have it open too.
    pub fn is_shared(&self) -> bool {
        self.0.base().is_shared()
    }

    /// Excludes other processes from initializing the pool's contents until the result is dropped.
    /// For code that opens or creates a store in it.
    pub fn initialize(&self) -> Initializing<'_, M> {
        let locked = self.is_shared().then(|| self.0.peers.acquire(self.0.base().opening_lock()));
        Initializing { pool: self, _locked: locked }
    }

    /// Whether the contents have been initialized since the pool was opened, so that other
    /// processes may be using them.
    pub fn is_initialized(&self) -> bool {
        self.0.base().shared_word(word::READY).load(self.medium(), Ordering::Acquire) != 0
    }

    /// Its unique identifier.
    pub fn uuid(&self) -> u128 {
        self.0.superblock().uuid
    }

    /// The label that was set when it was created.
    pub fn label(&self) -> String {
        self.0.superblock().label.clone()
    }

    /// Makes this a pool of the newest format, for contents that programs before it do not know:
    /// they refuse it from now on. Durable on return.
    pub fn raise_format(&self) -> Result<(), MapError> {
        let mut superblock = self.0.superblock();
        if superblock.version == superblock::VERSION {
            return Ok(());
        }
        let version = superblock::VERSION;
        let raised =
            Superblock { version, sequence: superblock.sequence.wrapping_add(1), ..superblock.clone() };
        raised.store(self.region(), 0)?;
        *superblock = raised;
        Ok(())
    }

    /// Closes the pool in order: the next open finds it clean and, on a disk, intact even if the
    /// machine crashes. Returns [`CloseError::StillOpen`] unless this is the last handle; then
    /// dropping the last handle closes the pool.
    pub fn close(self) -> Result<(), CloseError> {
        let mut inner = Arc::into_inner(self.0).ok_or(CloseError::StillOpen)?;
        inner.close().map_err(CloseError::Map)
    }

    /// Leaves the pool as a crashed process does: the next open finds it in use. For tests.
    #[doc(hidden)]
    pub fn abandon(self) {
        if let Some(mut inner) = Arc::into_inner(self.0) {
            inner.closed = true;
        }
    }

    /// Asks the kernel for huge pages for the next piece of the pool, from `from` on. Returns where
    /// to continue; `None` at the end. Takes some 50 ms, so it belongs in a thread of its own.
    pub fn collapse_step(&self, from: u64) -> Option<u64> {
        const STEP: u64 = 16 << 20;
        if from >= self.size() {
            return None;
        }
        self.medium().mapping().collapse_huge_pages(from as usize, STEP as usize);
        Some(from + STEP)
    }
}

/// See [`Pool::initialize`].
pub struct Initializing<'p, M: MappedMedium> {
    pool: &'p Pool<M>,
    _locked: Option<Locked<'p, M>>,
}

impl<M: MappedMedium> Initializing<'_, M> {
    /// Marks the contents as initialized.
    pub fn done(self) {
        self.pool.0.base().shared_word(word::READY).store(self.pool.medium(), 1, Ordering::Release);
    }
}

#[cfg(test)]
#[path = "tests/pool.rs"]
mod tests;
