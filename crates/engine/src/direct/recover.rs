//! After a crash: ends the batch that it cut off. Constant time but for that.

use super::descriptor::{Descriptor, Status};
use super::store::{Direct, Kind};
use super::view::Record;
use crate::OpenError;
use terrace_index::PointIndex;

impl<I: PointIndex<Kind = Kind>> Direct<I> {
    /// Finishes the batch that was under way if it was committed, else takes it back; says which, or `None` if there was none.
    /// Nobody else is in the pool. Its blocks are left to the collector.
    pub(super) fn end_batch(&self) -> Result<Option<bool>, OpenError> {
        let at = self.root.settled_active();
        if at == 0 {
            return Ok(None);
        }
        let guard = self.pool().pin();
        let damaged = |what| OpenError::Damaged { offset: at, what };
        let descriptor = Descriptor::find(self.pool().region(), at);
        let descriptor = descriptor.ok_or(damaged("the descriptor of the batch that was under way"))?;
        let status = descriptor.status().ok_or(damaged("the status of the batch that was under way"))?;
        // PERSIST: before anything is settled by it. Whoever decided may have been killed before it was durable; a loss of power would then find some keys settled,
        // and the batch open again.
        descriptor.persist_status();
        for index in 0..descriptor.count() {
            let (new, old) = descriptor.entry(index);
            for offset in [Some(new), old].into_iter().flatten() {
                let sound = Record::at(&guard, offset).and_then(|record| record.verify());
                sound.map_err(|_| OpenError::Damaged {
                    offset,
                    what: "a record of the batch that was under way",
                })?;
            }
        }
        self.settle_entries(&guard, &descriptor, status);
        self.root.set_active(0);
        Ok(Some(status == Status::Committed))
    }
}
