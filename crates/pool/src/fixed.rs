//! Places of a pool that were looked up once.

use crate::Pool;
use std::ops::Deref;
use std::ptr::NonNull;
use terrace_medium::{MappedMedium, Medium, Offset, Persistent, Region};

/// Where a `T` lies in memory, for as long as the region that it was found in is mapped.
pub(crate) struct Anchor<T>(NonNull<T>);

// SAFETY: only a shared reference to the T is ever made from it.
unsafe impl<T: Sync> Send for Anchor<T> {}
// SAFETY: as above.
unsafe impl<T: Sync> Sync for Anchor<T> {}

impl<T: Persistent> Anchor<T> {
    /// The `T` at `offset` of `region`, or `None` where it would be out of bounds or misaligned.
    pub(crate) fn new<M: Medium>(region: &Region<M>, offset: Offset<T>) -> Option<Self> {
        region.get(offset).map(|at| Self(NonNull::from_ref(at)))
    }

    /// The `T`.
    ///
    /// # Safety
    /// The region lives as long as `'a`.
    #[inline(always)]
    pub(crate) unsafe fn get<'a>(&self) -> &'a T {
        // SAFETY: it lay in the region when it was looked up; a region neither moves nor shrinks, and lives (the caller says).
        unsafe { self.0.as_ref() }
    }
}

/// A `T` of a pool whose place was checked once, when it was made, and which keeps the pool open: for what every operation reads, where even a
/// comparison of bounds counts. A pool's memory neither moves nor shrinks while it is open.
pub struct Fixed<M: MappedMedium, T> {
    at: Anchor<T>,
    pool: Pool<M>,
}

impl<M: MappedMedium> Pool<M> {
    /// The `T` at `offset`, kept; or `None` where it would be out of bounds or misaligned.
    pub fn fix<T: Persistent>(&self, offset: Offset<T>) -> Option<Fixed<M, T>> {
        Some(Fixed { at: Anchor::new(self.region(), offset)?, pool: self.clone() })
    }
}

impl<M: MappedMedium, T: Persistent> Fixed<M, T> {
    /// Where it lies in the pool.
    pub fn offset(&self) -> Offset<T> {
        self.pool.region().offset_of(&**self)
    }
}

impl<M: MappedMedium, T: Persistent> Deref for Fixed<M, T> {
    type Target = T;
    #[inline(always)]
    fn deref(&self) -> &T {
        // SAFETY: the pool is open as long as `self`, and with it its region.
        unsafe { self.at.get() }
    }
}
