//! A pool that is open.

use crate::error::{CloseError, OpenError, Problem};
use crate::fixed::Anchor;
use crate::layout::{Geometry, Layout};
use crate::lifetime::allocator_sum;
use crate::lock::LockWords;
use crate::options::PoolOptions;
use crate::participants::{self, Owner};
use crate::shared::{Memory, Shared};
use crate::superblock::Superblock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use terrace_medium::{Line, MapError, MappedMedium, Offset, Region, Word};

/// How a pool was found when it was opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Start {
    /// It was made just now, in zeroed memory.
    Created,
    /// It had been closed in order: what the allocator left is true.
    Clean,
    /// It was in use when its last user died, or was closed before all memory was accounted for: what the allocator left is not
    /// believed.
    Unclean,
}

/// What an opening found and decided.
pub(crate) struct Life {
    pub(crate) start: Start,
    /// Whether the file may be written.
    pub(crate) writes: bool,
    /// Bytes that can be used; less than the superblock says if the file is cut short.
    pub(crate) size: u64,
    pub(crate) superblock: Superblock,
    /// The copy of the superblock to write first.
    pub(crate) copy: usize,
    /// Whether a test wants every run to be the same: then the kernel interrupts nobody.
    pub(crate) reproducible: bool,
}

/// A pool that is open. Clones are handles to the same pool; it is closed, in order, when the last one goes.
pub struct Pool<M: MappedMedium>(pub(crate) Arc<Inner<M>>);

/// What the handles share.
pub(crate) struct Inner<M: MappedMedium> {
    /// Tells this opening from every other of this process, for thread-local caches.
    pub(crate) id: u64,
    pub(crate) region: Region<M>,
    pub(crate) layout: Layout,
    /// The allocator's shared words, read by every pin.
    shared: Anchor<Shared>,
    pub(crate) owner: Owner,
    pub(crate) lock_words: LockWords,
    /// Counts openings: what the allocator left in an older era is believed by and by, as `arrival` says.
    pub(crate) era: u32,
    pub(crate) start: Start,
    pub(crate) writes: bool,
    pub(crate) hash_seed: u64,
    /// Held while the superblock changes: growth, close.
    pub(crate) superblock: Mutex<Superblock>,
    /// Held while a root is made.
    pub(crate) roots: Mutex<()>,
    /// Whether [`Pool::close`] has done its work.
    closed: bool,
    /// Whether pins may leave their barrier to who moves the epoch on.
    pub(crate) light_pins: bool,
    /// The allocator's part that is not in the region: what follows from the geometry.
    pub(crate) memory: Memory,
}

impl<M: MappedMedium> Clone for Pool<M> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<M: MappedMedium> Pool<M> {
    /// A pool of `size` bytes in anonymous memory: gone with the process.
    pub fn anonymous(size: u64) -> Result<Self, OpenError> {
        PoolOptions::anonymous().size(size).create()
    }

    /// As [`Pool::anonymous`], with a geometry of the caller's choice.
    pub fn anonymous_with(size: u64, geometry: Geometry) -> Result<Self, OpenError> {
        PoolOptions::anonymous().size(size).geometry(geometry).create()
    }

    /// Brings the shared structures into the state that `life.start` asks for.
    pub(crate) fn start(
        region: Region<M>,
        layout: Layout,
        owner: Owner,
        life: Life,
    ) -> Result<Self, Problem> {
        static NEXT_ID: AtomicU64 = AtomicU64::new(1);
        let shared = Anchor::new(&region, Offset::new(layout.allocator))
            .expect("every layout has its allocator's words");
        let pool = Self(Arc::new(Inner {
            id: NEXT_ID.fetch_add(1, Ordering::Relaxed),
            region,
            layout,
            shared,
            owner,
            lock_words: LockWords::of(owner),
            era: life.superblock.era,
            start: life.start,
            writes: life.writes,
            hash_seed: life.superblock.hash_seed,
            superblock: Mutex::new(life.superblock),
            roots: Mutex::new(()),
            closed: false,
            light_pins: !life.reproducible && crate::barrier::register(),
            memory: Memory::new(&layout),
        }));
        pool.0.set_size(life.size);
        pool.0.start_memory();
        Ok(pool)
    }

    /// The pool's memory.
    #[inline(always)]
    pub fn region(&self) -> &Region<M> {
        &self.0.region
    }

    /// The medium below.
    #[inline(always)]
    pub fn medium(&self) -> &M {
        self.0.region.medium()
    }

    /// Where its parts lie.
    #[inline(always)]
    pub fn layout(&self) -> &Layout {
        &self.0.layout
    }

    /// Its size in bytes, a multiple of the page.
    #[inline(always)]
    pub fn size(&self) -> u64 {
        self.0.size()
    }

    /// How often it has been opened with nobody else in it: a lock of another generation is free.
    #[inline(always)]
    pub fn generation(&self) -> u32 {
        self.0.owner.generation
    }

    /// This process, as lock words name it.
    #[inline(always)]
    pub fn owner(&self) -> Owner {
        self.0.owner
    }

    /// The seed of every hash of a key in this pool.
    #[inline(always)]
    pub fn hash_seed(&self) -> u64 {
        self.0.hash_seed
    }

    /// How it was found when it was opened.
    pub fn found(&self) -> Start {
        self.0.start
    }

    /// Whether it was opened to be read only: what is stored in it stays with this process.
    pub fn is_read_only(&self) -> bool {
        !self.0.writes
    }

    /// Its name among all pools.
    pub fn uuid(&self) -> u128 {
        self.0.superblock().uuid
    }

    /// The label that it was made with.
    pub fn label(&self) -> String {
        self.0.superblock().label.clone()
    }

    /// Closes it in order, so that the next open finds it clean and, on a disk, whole through a crash of the machine. It is the
    /// last handle; else [`CloseError::StillOpen`], and the last one closes it when it goes.
    pub fn close(self) -> Result<(), CloseError> {
        let mut inner = Arc::into_inner(self.0).ok_or(CloseError::StillOpen)?;
        inner.close().map_err(CloseError::Map)
    }

    /// Lets go of the pool as a process does that dies: the next open finds it left in use. For tests.
    #[doc(hidden)]
    pub fn abandon(self) {
        if let Some(mut inner) = Arc::into_inner(self.0) {
            inner.closed = true;
        }
    }

    /// Asks the kernel for huge pages for the next piece of the pool from `from` on, and says where to go on; `None` at the end. Takes
    /// some 50 ms, so it belongs in a thread of its own.
    pub fn collapse_step(&self, from: u64) -> Option<u64> {
        const STEP: u64 = 16 << 20;
        if from >= self.size() {
            return None;
        }
        self.medium().mapping().collapse_huge_pages(from as usize, STEP as usize);
        Some(from + STEP)
    }

    /// Writes the superblock as it stands.
    pub(crate) fn store_superblock(&self) -> Result<(), MapError> {
        self.0.superblock().store(self.region(), 0)
    }
}

impl<M: MappedMedium> Inner<M> {
    #[inline(always)]
    pub(crate) fn shared(&self) -> &Shared {
        // SAFETY: the region lives as long as `self`, which holds it.
        unsafe { self.shared.get() }
    }

    #[inline(always)]
    fn size_word(&self) -> &Word {
        &self.region.at::<Line>(Offset::new(self.layout.shared)).0[0]
    }

    /// See [`Pool::size`].
    #[inline(always)]
    pub(crate) fn size(&self) -> u64 {
        // ORDER: Acquire: pairs with `set_size`; whoever sees the size sees the mapping that long.
        self.size_word().load(self.region.medium(), Ordering::Acquire)
    }

    /// Tells everyone that the pool has `size` bytes. The superblock says so already, durably.
    pub(crate) fn set_size(&self, size: u64) {
        // ORDER: Release: pairs with `Pool::size`.
        self.size_word().store(self.region.medium(), size, Ordering::Release);
    }

    pub(crate) fn superblock(&self) -> MutexGuard<'_, Superblock> {
        self.superblock.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// Leaves the pool so that the next open finds it clean. Whoever calls this is alone.
    fn close(&mut self) -> Result<(), MapError> {
        if std::mem::replace(&mut self.closed, true) || !self.writes {
            return Ok(());
        }
        let settled = self.stop_memory();
        participants::release(&self.region, &self.layout, u32::from(self.owner.participant));
        // PERSIST: everything before the clean flag. A crash before leaves the pool in use.
        self.region.fence();
        self.region.medium().mapping().sync(0, usize::MAX)?;
        let mut superblock = self.superblock();
        superblock.sequence = superblock.sequence.wrapping_add(1);
        superblock.clean = true;
        superblock.unsettled = !settled;
        superblock.allocator_sum = allocator_sum(&self.region, &self.layout);
        superblock.store(&self.region, 0)
    }
}

impl<M: MappedMedium> Drop for Inner<M> {
    /// The orderly close, unless something has gone wrong: then the next open had better trust less.
    fn drop(&mut self) {
        if !std::thread::panicking() {
            let _ = self.close();
        }
        if let Some(file) = self.region.medium().mapping().as_file() {
            // By name and not by closing the file: a process that this one is just starting may hold a copy of it.
            let _ = file.unlock();
        }
    }
}
