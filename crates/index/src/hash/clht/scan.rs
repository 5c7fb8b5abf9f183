//! Scans and the collector's walk, both in the order of hashes, so a position means the same in
//! every table.

use super::ops::Clht;
use super::shape::BucketShape;
use super::table::*;
use crate::Position;
use crate::cursor::POSITION_BITS;
use terrace_medium::MappedMedium;
use terrace_pool::{Guard, Marker};

// The bits of a bucket's first hash fit into a cursor.
const _: () = assert!(LOG2_MAX <= POSITION_BITS);

impl<M: MappedMedium, K: BucketShape> Clht<M, K> {
    /// See [`PointIndex::scan`](crate::PointIndex::scan). Takes no lock: a key that is present
    /// throughout stays in its slot, or is moved with its whole group; then the old buckets do not
    /// change until this reader has been unpinned.
    pub(super) fn scan_from(
        &self,
        guard: &Guard<'_, M>,
        from: Position,
        at_least: usize,
        mut each: impl FnMut(u64),
    ) -> Position {
        let mut position = from;
        let mut seen = 0;
        loop {
            let table = self.table_of(position);
            let index = table.index(position);
            let head = self.pool.region().at(table.bucket(index));
            let _ = self.walk(head, |bucket| -> Option<()> {
                for entry in (0..K::SLOTS).filter_map(|slot| K::read(guard, bucket, slot)) {
                    seen += 1;
                    each(entry.word);
                }
                None
            });
            self.persist_read(head);
            position = end_of(table, index);
            if position == 0 || seen >= at_least {
                return position;
            }
        }
    }

    /// See [`PointIndex::trace`](crate::PointIndex::trace). Visits bucket by bucket under the
    /// bucket's lock, and recounts the keys.
    pub(super) fn trace_all(
        &self,
        guard: &Guard<'_, M>,
        marker: &mut Marker<'_>,
        mut each: impl FnMut(&mut Marker<'_>, u64),
    ) {
        marker.mark(self.root.offset().raw(), size_of::<Root>());
        marker.mark(self.stripes.offset().raw(), crate::count::STRIPES as usize * 64);
        let count = self.count();
        count.start_recount();
        let (mut position, mut total) = (0, 0);
        // A later table is younger than the collection, which does not touch it.
        let view = self.view();
        self.write_back_root();
        // PERSIST: the root, before anything is freed that it named before. The thread that stored
        // it may have died before it was durable.
        self.pool.region().fence();
        for table in [Some(view.current), view.next].into_iter().flatten() {
            marker.mark(table.start(), table.bytes());
        }
        loop {
            let held = self.lock_chain(guard, position);
            let _ = self.walk(held.head, |bucket| -> Option<()> {
                if !std::ptr::eq(bucket, held.head) {
                    marker.mark(self.pool.region().offset_of(bucket).raw(), 64);
                }
                for entry in (0..K::SLOTS).filter_map(|slot| K::read(guard, bucket, slot)) {
                    total += 1;
                    each(marker, entry.word);
                }
                None
            });
            position = end_of(held.table, held.table.index(position));
            count.advance_frontier(position);
            held.lock.release();
            if position == 0 {
                return count.finish_recount(total);
            }
        }
    }
}

/// The first hash behind a bucket; 0 behind the last.
pub(super) fn end_of(table: Table, index: u64) -> Position {
    table.first_hash(index + 1)
}
