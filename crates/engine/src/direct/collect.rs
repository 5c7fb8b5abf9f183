//! Taking back what a crash left to nobody: marking everything that the store can reach.

use super::counters::Tally;
use super::descriptor::{Descriptor, pending};
use super::store::{Direct, Kind};
use super::view::Record;
use terrace_index::PointIndex;
use terrace_pool::{Guard, Marker};

/// Records between two looks at whether to stop.
const STEP: u64 = 1024;

impl<I: PointIndex<Kind = Kind>> Direct<I> {
    /// Goes through the store while it is in use, marks what is reachable and lets the pool take the rest. Counts the data again on the way.
    /// Gives up once `is_to_stop` says so.
    pub(super) fn collect_lost(&self, is_to_stop: &dyn Fn() -> bool) {
        let _ = self.pool().collect_unless(is_to_stop, &mut |marker| self.trace(marker, is_to_stop));
    }

    /// Every block that the store can reach: where it lies and the bytes that it takes. For tests.
    #[doc(hidden)]
    pub fn reachable(&self) -> Vec<(u64, u64)> {
        self.pool().reachable(&mut |marker| self.trace(marker, &|| false))
    }

    fn trace(&self, marker: &mut Marker<'_>, is_to_stop: &dyn Fn() -> bool) {
        let guard = self.pool().pin();
        let before = self.root.start_recount(&guard);
        let mut tally = Tally::default();
        let (root, size) = self.root.block();
        marker.mark(root, size);
        self.mark_batch(&guard, marker);
        let mut records = 0;
        self.index.trace(&guard, marker, |marker, word| {
            records += 1;
            if records % STEP == 0 && is_to_stop() {
                marker.give_up();
            }
            if !marker.has_given_up() {
                self.mark(&guard, marker, word, &mut tally);
            }
        });
        if !marker.has_given_up() {
            self.root.finish_recount(&guard, before, tally);
        }
    }

    /// What the batch that is under way names: whoever was at it may have died, and somebody will end it. An old record is found in its slot, or behind the new one that is there.
    fn mark_batch(&self, guard: &Guard<'_, I::Medium>, marker: &mut Marker<'_>) {
        let at = self.root.settled_active();
        let Some(descriptor) = Descriptor::find(self.pool().region(), at) else { return };
        marker.mark(descriptor.offset(), descriptor.size());
        let news = (0..descriptor.count()).map(|index| descriptor.entry(index).0);
        news.filter_map(|new| Record::at(guard, new).ok()).for_each(|record| mark_record(marker, &record));
    }

    fn mark(&self, guard: &Guard<'_, I::Medium>, marker: &mut Marker<'_>, word: u64, tally: &mut Tally) {
        let Ok(record) = Record::at(guard, word) else {
            // A damaged record is kept for `check` and `salvage` to tell of.
            return marker.mark_around(word);
        };
        mark_record(marker, &record);
        tally.add(&record);
        // The old record is not in the slot, but it may be there again if the batch is taken back.
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
    // What a damaged head says about its extent may be wrong.
    if let Some(outline) = record.body.outline
        && record.verify().is_ok()
    {
        marker.mark(outline.extent, record.shape.value_len);
    }
}
