//! Collection after a crash: marks everything that the store can reach.

use crate::batch::descriptor::{Descriptor, pending};
use crate::record::counters::Tally;
use crate::record::records::Records;
use crate::record::view::Record;
use terrace_engine::Memory;
use terrace_medium::MappedMedium;
use terrace_pool::{Guard, Marker, Pool};

/// Records between two checks whether to stop.
const STEP: u64 = 1024;

/// The collection of a store. It borrows the records, which it marks.
#[derive(Clone, Copy)]
pub(crate) struct Collection<'s, M: MappedMedium> {
    pub(crate) records: &'s Records<M>,
}

impl<'s, M: MappedMedium> Collection<'s, M> {
    fn pool(&self) -> &'s Pool<M> {
        self.records.pool()
    }

    /// Marks what is reachable while the store is in use, and lets the pool free the rest. Counts
    /// the data again on the way. Gives up once `should_stop` returns true.
    pub(crate) fn collect(&self, should_stop: &dyn Fn() -> bool) {
        let _ = self.pool().collect_until(should_stop, &mut |marker| self.trace(marker, should_stop));
    }

    /// Offset and size of every block that the store can reach.
    pub(crate) fn reachable(&self) -> Vec<(u64, u64)> {
        self.pool().reachable(&mut |marker| self.trace(marker, &|| false))
    }

    /// See [`Engine::memory`](terrace_engine::Pooled::memory).
    pub(crate) fn memory(&self) -> Memory {
        let pool = self.pool();
        // No other thread works, so this also recounts the blocks.
        pool.request_collection();
        let garbage = pool.collect(&mut |marker| self.trace(marker, &|| false)).freed;
        while pool.reclaim_blocking() {}
        let (mut blocks, space) = (self.reachable(), pool.space());
        blocks.sort_unstable();
        let overlapping = blocks.windows(2).filter(|pair| pair[0].0 + pair[0].1 > pair[1].0).count() as u64;
        let reachable = blocks.iter().map(|&(_, bytes)| bytes).sum();
        Memory { reachable, used: space.used_by_blocks, waiting: space.waiting_bytes, garbage, overlapping }
    }

    fn trace(&self, marker: &mut Marker<'_>, should_stop: &dyn Fn() -> bool) {
        let guard = self.pool().pin();
        let before = self.records.root.start_recount(&guard);
        let mut tally = Tally::default();
        let (root, size) = self.records.root.block();
        marker.mark(root, size);
        self.mark_batch(&guard, marker);
        let mut records = 0;
        self.records.index.trace(&guard, marker, &mut |marker, word| {
            records += 1;
            if records % STEP == 0 {
                self.pool().yield_to_waiters();
                if should_stop() {
                    marker.give_up();
                }
            }
            if !marker.has_given_up() {
                self.mark(&guard, marker, word, &mut tally);
            }
        });
        if !marker.has_given_up() {
            self.records.root.finish_recount(&guard, before, tally);
        }
    }

    /// Marks what the running batch names: its thread may have died, and another thread will finish
    /// the batch. An old record is found in its slot, or through the new record there.
    fn mark_batch(&self, guard: &Guard<'_, M>, marker: &mut Marker<'_>) {
        let at = self.records.root.durable_active();
        let Some(descriptor) = Descriptor::find(self.pool().region(), at) else { return };
        marker.mark(descriptor.offset(), descriptor.size());
        let new_records = (0..descriptor.count()).map(|index| descriptor.entry(index).0);
        new_records
            .filter_map(|new| Record::at(guard, new).ok())
            .for_each(|record| mark_record(marker, &record));
    }

    fn mark(&self, guard: &Guard<'_, M>, marker: &mut Marker<'_>, word: u64, tally: &mut Tally) {
        let Ok(record) = Record::at(guard, word) else {
            // A damaged record is kept, for `check` and `salvage` to report.
            return marker.mark_around(word);
        };
        mark_record(marker, &record);
        tally.add(&record);
        // The old record is not in the slot, but is restored if the batch is aborted.
        if let Ok(Some(pending)) = pending(guard, &record)
            && let Some(old) = pending.old
            && let Ok(old) = Record::at(guard, old)
        {
            mark_record(marker, &old);
        }
    }
}

fn mark_record(marker: &mut Marker<'_>, record: &Record<'_>) {
    marker.mark(record.offset, record.shape.size());
    // The extent that a damaged head names may be wrong.
    if let Some(external) = record.body.external
        && record.verify().is_ok()
    {
        marker.mark(external.extent, record.shape.value_len);
    }
}

#[cfg(test)]
#[path = "tests/collect.rs"]
mod tests;
