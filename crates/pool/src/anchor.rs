//! The address of a value in a region, looked up once.

use std::ptr::NonNull;
use terrace_medium::{Medium, Offset, Persistent, Region};

/// The address of a `T` in a region, valid while the region is mapped.
pub(crate) struct Anchor<T>(pub(crate) NonNull<T>);

// SAFETY: only shared references to the T are made from it.
unsafe impl<T: Sync> Send for Anchor<T> {}
// SAFETY: as above.
unsafe impl<T: Sync> Sync for Anchor<T> {}

impl<T: Persistent> Anchor<T> {
    /// The `T` at `offset` of `region`; `None` if it is out of bounds or misaligned.
    pub(crate) fn new<M: Medium>(region: &Region<M>, offset: Offset<T>) -> Option<Self> {
        region.get(offset).map(|at| Self(NonNull::from_ref(at)))
    }

    /// The `T`.
    ///
    /// # Safety
    /// The region lives as long as `'a`.
    #[inline(always)]
    pub(crate) unsafe fn get<'a>(&self) -> &'a T {
        // SAFETY: it was in the region when it was looked up; a region neither moves nor shrinks,
        // and the caller guarantees that it still exists.
        unsafe { self.0.as_ref() }
    }
}
