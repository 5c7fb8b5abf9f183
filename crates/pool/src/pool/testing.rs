//! What tests of the layers above do to a pool, and ask of it.

use crate::pool::Pool;
use crate::sharing::participants;
use std::sync::atomic::Ordering::Relaxed;
use terrace_medium::MappedMedium;

impl<M: MappedMedium> Pool<M> {
    /// For tests.
    #[doc(hidden)]
    pub fn testing(&self) -> Testing<'_, M> {
        Testing(self)
    }
}

/// See [`Pool::testing`].
#[doc(hidden)]
pub struct Testing<'p, M: MappedMedium>(&'p Pool<M>);

impl<M: MappedMedium> Testing<'_, M> {
    /// The number of taken entries in the participant table.
    pub fn participants_taken(&self) -> u32 {
        let is_taken =
            |&index: &u32| participants::holder_of(self.0.region(), self.0.layout(), index).is_some();
        (0..self.0.layout().geometry.participants).filter(is_taken).count() as u32
    }

    /// Drops the limbo reserve, as if there had been no room for one: the next collection sets a
    /// new one aside.
    pub fn drop_reserve(&self) {
        let (pool, _guard) = (self.0, self.0.pin());
        let (heap, units) = (pool.0.heap(), pool.0.units());
        let unit = units.unit_at(heap.base().shared().reserve.swap(pool.medium(), 0, Relaxed));
        if let Some(unit) = unit
            && let Some(number) = units.revalidate(unit).class()
            && let Some(class) = units.classes.get(number)
        {
            heap.disown_or_release(unit, number, class);
        }
    }
}
