//! Memory for baselines.

use crate::machine::touch;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{Acquire, Relaxed};
use terrace_medium::{BLOCK, LINE, MapError, Mapping, Medium, Offset, Region, Word};

/// Memory of a medium that is allocated once and never freed. Allocating costs nothing and persists
/// nothing, like the hot path of the pool's allocator.
pub struct Space<M> {
    region: Region<M>,
    next: AtomicU64,
}

/// The first offset that is allocated; 0 is null.
pub(super) const FIRST: u64 = BLOCK as u64;

/// The table or its memory is full.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SpaceFull;

impl std::fmt::Display for SpaceFull {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("the table, or the memory that it may take, is full")
    }
}

impl std::error::Error for SpaceFull {}

impl<M: Medium> Space<M> {
    /// `bytes` of touched anonymous memory, on huge pages if possible, on the medium that `medium`
    /// makes.
    pub fn anonymous(bytes: u64, medium: impl FnOnce(Mapping) -> M) -> Result<Self, MapError> {
        let mapping = Mapping::anonymous(bytes as usize, bytes as usize)?;
        mapping.advise_huge_pages();
        let space = Self::over(medium(mapping), FIRST);
        touch(&space.region);
        Ok(space)
    }

    /// A medium whose memory before `next` is in use, and zeroed from there on.
    pub(super) fn over(medium: M, next: u64) -> Self {
        Self { region: Region::new(medium), next: AtomicU64::new(next) }
    }

    /// Bytes that were allocated, with what alignment left unused.
    pub fn used(&self) -> u64 {
        self.next.load(Relaxed) - FIRST
    }

    /// Zeroed memory that starts at a media block.
    pub(super) fn alloc(&self, bytes: u64) -> Result<u64, SpaceFull> {
        self.alloc_aligned(bytes.next_multiple_of(BLOCK as u64), BLOCK as u64)
    }

    /// Zeroed memory that starts at a multiple of `align`, a power of two.
    pub(super) fn alloc_aligned(&self, bytes: u64, align: u64) -> Result<u64, SpaceFull> {
        assert!(align.is_power_of_two() && align >= 8, "words at multiples of {align} bytes");
        let end = (self.region.medium().len() / LINE * LINE) as u64;
        let start = |next: u64| next.checked_next_multiple_of(align);
        let take = |next: u64| start(next)?.checked_add(bytes).filter(|&after| after <= end);
        let next = self.next.fetch_update(Relaxed, Relaxed, take).map_err(|_| SpaceFull)?;
        start(next).ok_or(SpaceFull)
    }

    #[inline(always)]
    pub(super) fn word(&self, at: u64) -> &Word {
        self.region.at(Offset::new(at))
    }

    #[inline(always)]
    pub(super) fn load(&self, at: u64) -> u64 {
        self.word(at).load(self.medium(), Acquire)
    }

    #[inline(always)]
    pub(super) fn region(&self) -> &Region<M> {
        &self.region
    }

    /// The medium.
    pub fn medium(&self) -> &M {
        self.region.medium()
    }
}
