//! A pool that is open.

use crate::layout::{Geometry, Layout, MAX_POOL, PAGE};
use crate::participants::Owner;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use terrace_medium::{MapError, MappedMedium, Mapping, Region};

/// How a pool was found when it was opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Start {
    /// It was made just now.
    Created,
    /// It had been closed in order: what the allocator left is true.
    Clean,
    /// It was in use when its last user died: what the allocator left is not believed.
    Unclean,
}

/// A pool that is open. Clones are handles to the same pool; it is closed when the last one goes.
pub struct Pool<M: MappedMedium>(pub(crate) Arc<Inner<M>>);

/// What the handles share.
pub(crate) struct Inner<M: MappedMedium> {
    /// Tells this opening from every other of this process, for thread-local caches.
    pub(crate) id: u64,
    pub(crate) region: Region<M>,
    pub(crate) layout: Layout,
    pub(crate) owner: Owner,
    /// Counts unclean openings: allocator state of an older era is not believed.
    pub(crate) era: u32,
    pub(crate) start: Start,
    /// Bytes of the pool: what the superblock says, once that is durable.
    size: AtomicU64,
    hash_seed: u64,
}

impl<M: MappedMedium> Clone for Pool<M> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<M: MappedMedium> Pool<M> {
    /// A pool of `size` bytes in anonymous memory: gone with the process.
    pub fn anonymous(size: u64) -> Result<Self, MapError> {
        Self::anonymous_with(size, Geometry::for_size(size))
    }

    /// As [`Pool::anonymous`], with a geometry of the caller's choice.
    ///
    /// # Panics
    /// Where the geometry is out of range or `size` does not hold it.
    pub fn anonymous_with(size: u64, geometry: Geometry) -> Result<Self, MapError> {
        let layout = Layout::new(geometry).unwrap_or_else(|what| panic!("{what}"));
        let size = size / PAGE * PAGE;
        assert!((layout.smallest()..=MAX_POOL).contains(&size), "{size} bytes do not hold {geometry:?}");
        let reserve = size.saturating_mul(16).min(MAX_POOL);
        let mapping = Mapping::anonymous(size as usize, reserve as usize)?;
        let owner = Owner { participant: 0, incarnation: 1, generation: 1 };
        Ok(Self::start(Inner {
            id: next_id(),
            region: Region::new(M::new(mapping)),
            layout,
            owner,
            era: 1,
            start: Start::Created,
            size: AtomicU64::new(size),
            hash_seed: 0x7465_7272_6163_6521,
        }))
    }

    /// Brings the shared structures into the state that `inner.start` asks for. The allocator's part is called here.
    fn start(inner: Inner<M>) -> Self {
        Self(Arc::new(inner))
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
        self.0.size.load(Ordering::Acquire)
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

    /// Tells this opening from every other one in this process.
    #[inline(always)]
    pub(crate) fn id(&self) -> u64 {
        self.0.id
    }

    /// Counts unclean openings.
    #[inline(always)]
    pub(crate) fn era(&self) -> u32 {
        self.0.era
    }
}

impl<M: MappedMedium> Drop for Inner<M> {
    /// The clean close. The allocator's part is called here, before the clean flag is set.
    fn drop(&mut self) {}
}

fn next_id() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    NEXT.fetch_add(1, Ordering::Relaxed)
}
