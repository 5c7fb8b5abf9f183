//! References to places in a pool whose bounds were checked once.

use crate::anchor::Anchor;
use crate::pool::Pool;
use std::ops::Deref;
use terrace_medium::{MappedMedium, Offset, Persistent};

/// A `T` in a pool whose bounds were checked when this was made, and that keeps the pool open. For
/// what every operation reads, where even a bounds check matters. A pool's memory neither moves nor
/// shrinks while it is open.
pub struct Fixed<M: MappedMedium, T> {
    at: Anchor<T>,
    pool: Pool<M>,
}

impl<M: MappedMedium> Pool<M> {
    /// The `T` at `offset`; `None` if it is out of bounds or misaligned.
    pub fn fix<T: Persistent>(&self, offset: Offset<T>) -> Option<Fixed<M, T>> {
        Some(Fixed { at: Anchor::new(self.region(), offset)?, pool: self.clone() })
    }
}

impl<M: MappedMedium, T: Persistent> Fixed<M, T> {
    /// Its offset in the pool.
    pub fn offset(&self) -> Offset<T> {
        self.pool.region().offset_of(&**self)
    }
}

impl<M: MappedMedium, T: Persistent> Deref for Fixed<M, T> {
    type Target = T;
    #[inline(always)]
    fn deref(&self) -> &T {
        // SAFETY: the pool, and with it its region, stays open as long as `self`.
        unsafe { self.at.get() }
    }
}

/// As [`Fixed`], for a row of `T`s whose number is stored in the pool only.
pub struct FixedRow<M: MappedMedium, T> {
    /// The first one. The bounds of the others were checked together with it.
    first: Anchor<T>,
    count: usize,
    pool: Pool<M>,
}

impl<M: MappedMedium> Pool<M> {
    /// A row of `count` `T`s from `offset` on; `None` if `count` is 0 or one of them is out of
    /// bounds or misaligned.
    pub fn fix_row<T: Persistent>(&self, offset: Offset<T>, count: usize) -> Option<FixedRow<M, T>> {
        let behind_first = (count as u64).checked_sub(1)?.checked_mul(size_of::<T>() as u64)?;
        // Checks the last one, and with it all others.
        self.region().get(Offset::<T>::new(offset.raw().checked_add(behind_first)?))?;
        Some(FixedRow { first: Anchor::new(self.region(), offset)?, count, pool: self.clone() })
    }
}

impl<M: MappedMedium, T: Persistent> FixedRow<M, T> {
    /// The offset of the first one in the pool.
    pub fn offset(&self) -> Offset<T> {
        // SAFETY: the pool, and with it its region, stays open as long as `self`.
        self.pool.region().offset_of(unsafe { self.first.get() })
    }

    /// All of them.
    #[inline(always)]
    pub fn as_slice(&self) -> &[T] {
        // SAFETY: `count` of them lie in the region, contiguous (checked when this was made), and
        // the pool stays open as long as `self`. T: Persistent, so any bytes are a valid T that may
        // be shared.
        unsafe { std::slice::from_raw_parts(self.first.0.as_ptr(), self.count) }
    }
}

#[cfg(test)]
#[path = "tests/fixed.rs"]
mod tests;
