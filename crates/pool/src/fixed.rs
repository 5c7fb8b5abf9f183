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

/// As [`Fixed`], for a number of `T`s in a row that only the pool knows.
pub struct FixedRow<M: MappedMedium, T> {
    /// The first one. Those behind it were looked up together with it.
    first: Anchor<T>,
    count: usize,
    pool: Pool<M>,
}

impl<M: MappedMedium> Pool<M> {
    /// `count` of `T`, at least one, in a row from `offset` on, kept; or `None` where one would be out of bounds or misaligned.
    pub fn fix_row<T: Persistent>(&self, offset: Offset<T>, count: usize) -> Option<FixedRow<M, T>> {
        let behind_first = (count as u64).checked_sub(1)?.checked_mul(size_of::<T>() as u64)?;
        // The last one, and with it all before.
        self.region().get(Offset::<T>::new(offset.raw().checked_add(behind_first)?))?;
        Some(FixedRow { first: Anchor::new(self.region(), offset)?, count, pool: self.clone() })
    }
}

impl<M: MappedMedium, T: Persistent> FixedRow<M, T> {
    /// Where the first one lies in the pool.
    pub fn offset(&self) -> Offset<T> {
        // SAFETY: the pool is open as long as `self`, and with it its region.
        self.pool.region().offset_of(unsafe { self.first.get() })
    }

    /// All of them.
    #[inline(always)]
    pub fn as_slice(&self) -> &[T] {
        // SAFETY: `count` of them lie in the region, one behind the other (checked when this was made), and the pool is open as long as `self`. T: Persistent, so any
        // bytes are a valid T that may be shared.
        unsafe { std::slice::from_raw_parts(self.first.0.as_ptr(), self.count) }
    }
}

#[cfg(test)]
mod tests {
    use crate::Pool;
    use std::sync::atomic::Ordering::Relaxed;
    use terrace_medium::{Dram, Line, Offset, Word};

    #[test]
    fn a_place_is_kept_with_its_pool_or_is_none() {
        let pool = Pool::<Dram>::anonymous(1 << 20).unwrap();
        let fixed = pool.fix::<Line>(Offset::new((1 << 20) - 64)).unwrap();
        assert_eq!(fixed.offset().raw(), (1 << 20) - 64);
        assert!(std::ptr::eq(&raw const *fixed, pool.region().at(fixed.offset())));
        assert!(pool.fix::<Line>(Offset::new(1 << 20)).is_none(), "beyond the end");
        assert!(pool.fix::<Line>(Offset::new(32)).is_none(), "not at a line");
        assert!(matches!(pool.close(), Err(crate::error::CloseError::StillOpen)), "it keeps the pool open");
        fixed.0[0].store(fixed.pool.medium(), 1, Relaxed);
    }

    #[test]
    fn a_row_lies_in_the_pool_as_a_whole_or_is_none() {
        let pool = Pool::<Dram>::anonymous(1 << 20).unwrap();
        let row = pool.fix_row::<Line>(Offset::new((1 << 20) - 192), 3).unwrap();
        assert_eq!((row.as_slice().len(), row.offset().raw()), (3, (1 << 20) - 192));
        assert!(std::ptr::eq(&raw const row.as_slice()[2], pool.region().at(Offset::new((1 << 20) - 64))));
        assert!(pool.fix_row::<Line>(Offset::new((1 << 20) - 192), 4).is_none(), "beyond the end");
        assert!(pool.fix_row::<Line>(Offset::new(32), 1).is_none(), "not at a line");
        assert!(pool.fix_row::<Word>(Offset::new(64), 0).is_none(), "none at all");
        assert!(pool.fix_row::<Word>(Offset::new(64), usize::MAX / 4).is_none(), "more than can be counted");
    }
}
