//! What all handles of an open pool share, and how it is closed.

use crate::allocator::heap::Heap;
use crate::allocator::units::Units;
use crate::base::{Base, Grounds};
use crate::error::Problem;
use crate::format::layout::Layout;
use crate::format::lifetime::{Start, allocator_sum};
use crate::format::superblock::{self, Superblock};
use crate::reclaim::barrier::{self, Pins};
use crate::reclaim::epoch::Epochs;
use crate::reclaim::limbo::Limbo;
use crate::sharing::fork::ForkSafe;
use crate::sharing::liveness::{self, Liveness};
use crate::sharing::participants;
use crate::sharing::peers::Peers;
use crate::sharing::terms::{SharingTerms, word};
use crate::sync::lock::{Lock, Owner};
use crate::sync::locked::Locked;
use std::ops::{Deref, DerefMut};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering::{Relaxed, Release};
use std::sync::{Mutex, MutexGuard};
use terrace_medium::{MapError, MappedMedium, Region};

/// What an open found and decided.
pub(crate) struct OpenedAs {
    /// The pool's name in messages.
    pub(crate) name: PathBuf,
    pub(crate) start: Start,
    /// Whether the file may be written.
    pub(crate) writes: bool,
    /// Usable bytes; less than in the superblock if the file is cut short.
    pub(crate) size: u64,
    pub(crate) superblock: Superblock,
    /// The copy of the superblock to write first.
    pub(crate) copy: usize,
    pub(crate) pins: Pins,
    /// Tells which participants are alive; `None` if the pool is exclusive.
    pub(crate) liveness: Option<Arc<dyn Liveness>>,
}

/// The state that all handles of this process share. Owns the superblock, the root directory's
/// mutex and the file's registration; stands on [`Peers`].
pub(crate) struct Inner<M: MappedMedium> {
    /// The file's handle and the mapping, registered so that a forked child does not keep the
    /// file's locks. Dropped first.
    pub(crate) _fork_safe: Option<ForkSafe>,
    pub(crate) peers: Peers<M>,
    pub(crate) writes: bool,
    pub(crate) hash_seed: u64,
    /// Held while the superblock changes: growth, close. A lock in the pool excludes other
    /// processes.
    pub(crate) superblock: Mutex<Superblock>,
    /// Held while a root is created; a lock in the pool excludes other processes.
    pub(crate) roots: Mutex<()>,
    /// Whether the close has been done.
    pub(crate) closed: bool,
}

/// Exclusive access to a value, against threads of this process and other processes.
pub(crate) struct Exclusive<'a, M: MappedMedium, T> {
    // Dropped first: the other processes wait for the lock, the other threads for the mutex.
    _locked: Option<Locked<'a, M>>,
    mutex: MutexGuard<'a, T>,
}

impl<M: MappedMedium, T> Deref for Exclusive<'_, M, T> {
    type Target = T;
    fn deref(&self) -> &T {
        &self.mutex
    }
}

impl<M: MappedMedium, T> DerefMut for Exclusive<'_, M, T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.mutex
    }
}

impl<M: MappedMedium> Inner<M> {
    /// Initializes the shared structures as `opened.start` requires.
    pub(crate) fn start(
        region: Region<M>,
        layout: Layout,
        owner: Owner,
        opened: OpenedAs,
    ) -> Result<Self, Problem> {
        let one_kernel = opened.liveness.as_ref().is_none_or(|liveness| liveness.has_common_kernel());
        let light_pins = match opened.pins {
            Pins::Light => one_kernel && barrier::register(),
            Pins::Heavy => false,
            Pins::AsIfLight => true,
        };
        let (size, terms) = (opened.size, SharingTerms { start: opened.start, light_pins });
        let inner = Self::join(region, layout, owner, opened, terms);
        inner.base().set_size(size);
        inner.base().shared_word(word::READY).store(inner.base().medium(), 0, Relaxed);
        inner.base().shared_word(word::TERMS).store(inner.base().medium(), terms.encode(), Release);
        inner.limbo().open_allocator();
        Ok(inner)
    }

    /// Makes a handle to a pool whose shared structures are initialized, as when other processes
    /// have it open.
    pub(crate) fn join(
        region: Region<M>,
        layout: Layout,
        owner: Owner,
        opened: OpenedAs,
        terms: SharingTerms,
    ) -> Self {
        if opened.liveness.is_some() {
            region.medium().mapping().follow_growth();
        }
        let _fork_safe = ForkSafe::mapping(region.medium().mapping(), &opened.name);
        assert_eq!(
            owner.generation, opened.superblock.generation,
            "the locks of this process are of the pool's generation"
        );
        let grounds = Grounds {
            owner,
            open_seq: opened.superblock.open_seq,
            start: terms.start,
            light_pins: terms.light_pins,
            liveness: opened.liveness,
        };
        let heap = Heap::new(Base::new(region, layout, grounds));
        Inner {
            _fork_safe,
            peers: Peers::new(Limbo::new(Epochs::new(heap))),
            writes: opened.writes,
            hash_seed: opened.superblock.hash_seed,
            superblock: Mutex::new(opened.superblock),
            roots: Mutex::new(()),
            closed: false,
        }
    }

    /// Writes the current superblock.
    pub(crate) fn store_superblock(&self) -> Result<(), MapError> {
        self.superblock().store(&self.base().region, 0)
    }

    #[inline(always)]
    pub(crate) fn base(&self) -> &Base<M> {
        self.peers.base()
    }

    #[inline(always)]
    pub(crate) fn units(&self) -> &Units<M> {
        self.peers.units()
    }

    #[inline(always)]
    pub(crate) fn heap(&self) -> &Heap<M> {
        self.peers.heap()
    }

    #[inline(always)]
    pub(crate) fn epochs(&self) -> &Epochs<M> {
        self.peers.epochs()
    }

    #[inline(always)]
    pub(crate) fn limbo(&self) -> &Limbo<M> {
        &self.peers.limbo
    }
}

impl<M: MappedMedium> Inner<M> {
    /// The current superblock, with exclusive access.
    pub(crate) fn superblock(&self) -> Exclusive<'_, M, Superblock> {
        let mut exclusive = self.exclusive(&self.superblock, self.base().superblock_lock());
        if self.base().is_shared()
            && let Ok(found) = superblock::load(&self.base().region)
        {
            // Another process may have grown the pool.
            *exclusive = found.superblock;
        }
        exclusive
    }

    /// Exclusive access to the root directory.
    pub(crate) fn roots(&self) -> Exclusive<'_, M, ()> {
        self.exclusive(&self.roots, self.base().roots_lock())
    }

    /// Excludes the other threads of this process, and then the other processes.
    fn exclusive<'a, T>(&'a self, mutex: &'a Mutex<T>, lock: &'a Lock) -> Exclusive<'a, M, T> {
        let mutex = mutex.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        let locked = self.base().is_shared().then(|| self.peers.acquire(lock));
        Exclusive { _locked: locked, mutex }
    }

    /// Leaves the pool. The caller has the last handle of this process.
    pub(crate) fn close(&mut self) -> Result<(), MapError> {
        if std::mem::replace(&mut self.closed, true) || !self.writes || self.base().is_forked_copy() {
            return Ok(());
        }
        // Closing recovers dead participants, and the last process stores final allocator words;
        // both write to protected memory.
        std::mem::forget(self.peers.allow_stores());
        let Some(liveness) = &self.base().liveness else { return self.close_exclusive() };
        liveness.enter().map_err(|error| MapError::Os("lock the pool's file", error))?;
        let outcome =
            if self.base().has_other_participants() { self.detach() } else { self.close_exclusive() };
        if let Some(liveness) = &self.base().liveness {
            liveness.release(u32::from(self.base().owner.participant));
            liveness.leave();
        }
        outcome
    }

    /// Leaves the pool while other processes continue to use it.
    fn detach(&self) -> Result<(), MapError> {
        self.limbo().release_slots(&|lock| self.peers.recover_holder(lock));
        let Owner { participant, incarnation, .. } = self.base().owner;
        participants::release(&self.base().region, &self.base().layout, u32::from(participant), incarnation);
        Ok(())
    }

    /// Leaves the pool so that the next open finds it clean.
    fn close_exclusive(&mut self) -> Result<(), MapError> {
        if self.base().is_shared() {
            self.peers.recover_all_dead();
        }
        let complete = self.limbo().close_allocator(&|lock| self.peers.recover_holder(lock));
        let Owner { participant, incarnation, .. } = self.base().owner;
        participants::release(&self.base().region, &self.base().layout, u32::from(participant), incarnation);
        // PERSIST: everything before the clean flag. A crash before leaves the pool in use.
        self.base().region.fence();
        self.base().region.medium().mapping().sync(0, usize::MAX)?;
        let mut superblock = self.superblock();
        superblock.sequence = superblock.sequence.wrapping_add(1);
        superblock.clean = true;
        superblock.collection_pending = !complete;
        superblock.allocator_sum = allocator_sum(&self.base().region, &self.base().layout);
        superblock.store(&self.base().region, 0)
    }
}

impl<M: MappedMedium> Drop for Inner<M> {
    /// Closes in order, except during a panic: then the next open should trust less.
    fn drop(&mut self) {
        if self.base().is_forked_copy() {
            return;
        }
        if !std::thread::panicking() {
            let _ = self.close();
        }
        if let Some(file) = self.base().region.medium().mapping().as_file() {
            // Unlocks explicitly, since closing may not suffice: a process that is just being
            // started may hold a copy of the handle.
            let _ = file.unlock();
            liveness::release_all(file);
        }
    }
}
