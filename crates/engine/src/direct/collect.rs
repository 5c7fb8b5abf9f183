//! Taking back what a crash left to nobody: marking everything that the store can reach.

use super::counters::Tally;
use super::descriptor::{Descriptor, pending};
use super::store::Direct;
use super::view::Record;
use crate::Memory;
use terrace_medium::MappedMedium;
use terrace_pool::{Guard, Marker};

/// Records between two looks at whether to stop.
const STEP: u64 = 1024;

impl<M: MappedMedium> Direct<M> {
    /// Goes through the store while it is in use, marks what is reachable and lets the pool take the rest. Counts the data again on the way.
    /// Gives up once `is_to_stop` says so.
    pub(super) fn collect_lost(&self, is_to_stop: &dyn Fn() -> bool) {
        let _ = self.pool().collect_until(is_to_stop, &mut |marker| self.trace(marker, is_to_stop));
    }

    /// Every block that the store can reach: where it lies and the bytes that it takes. For tests.
    #[doc(hidden)]
    pub fn reachable(&self) -> Vec<(u64, u64)> {
        self.pool().reachable(&mut |marker| self.trace(marker, &|| false))
    }

    /// See [`Engine::memory`](crate::Engine::memory).
    pub(super) fn count_memory(&self) -> Memory {
        let pool = self.pool();
        // As nobody is at work, this also counts the blocks anew.
        pool.request_collection();
        let garbage = pool.collect(&mut |marker| self.trace(marker, &|| false)).freed;
        while pool.reclaim_blocking() {}
        let (mut blocks, space) = (self.reachable(), pool.space());
        blocks.sort_unstable();
        let overlapping = blocks.windows(2).filter(|pair| pair[0].0 + pair[0].1 > pair[1].0).count() as u64;
        let reachable = blocks.iter().map(|&(_, bytes)| bytes).sum();
        Memory { reachable, used: space.used_by_blocks, waiting: space.waiting_bytes, garbage, overlapping }
    }

    fn trace(&self, marker: &mut Marker<'_>, is_to_stop: &dyn Fn() -> bool) {
        let guard = self.pool().pin();
        let before = self.root.start_recount(&guard);
        let mut tally = Tally::default();
        let (root, size) = self.root.block();
        marker.mark(root, size);
        self.mark_batch(&guard, marker);
        let mut records = 0;
        self.index.trace(&guard, marker, &mut |marker, word| {
            records += 1;
            if records % STEP == 0 {
                self.pool().yield_to_waiters();
                if is_to_stop() {
                    marker.give_up();
                }
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
    fn mark_batch(&self, guard: &Guard<'_, M>, marker: &mut Marker<'_>) {
        let at = self.root.settled_active();
        let Some(descriptor) = Descriptor::find(self.pool().region(), at) else { return };
        marker.mark(descriptor.offset(), descriptor.size());
        let news = (0..descriptor.count()).map(|index| descriptor.entry(index).0);
        news.filter_map(|new| Record::at(guard, new).ok()).for_each(|record| mark_record(marker, &record));
    }

    fn mark(&self, guard: &Guard<'_, M>, marker: &mut Marker<'_>, word: u64, tally: &mut Tally) {
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::direct::small::{self, settings};
    use crate::direct::{Key, Settings};
    use crate::{Durably, Engine, Pooled, Put};
    use std::cell::Cell;
    use std::collections::BTreeMap;
    use std::sync::atomic::Ordering::Relaxed;
    use terrace_index::{Bytes, Swapped, hash::Clht};
    use terrace_medium::{Pmem, Shm};
    use terrace_pool::{Pool, PoolOptions};
    use terrace_testkit::Counting;

    /// Who ended a batch may have died between its store of that and the fence. What the batch named is given to others then: with the old name on the medium, a loss of power would find their
    /// blocks for the batch's.
    #[test]
    fn the_collector_makes_durable_which_batch_is_under_way_before_it_frees_what_that_does_not_name() {
        let pool = Pool::<Counting<Pmem>>::anonymous(16 << 20).unwrap();
        let settings = Settings { expected_keys: 1, ..settings() };
        let store = Direct::open::<Clht<_, Bytes<Key>>>(pool.clone(), settings).unwrap();
        store.put(Put { key: b"key", value: b"value", expires_at: None }, Durably::Store).unwrap();
        let (counts, reachable) = pool.medium().during(|| store.reachable());
        // The other fence is the index's.
        assert_eq!((counts.write_backs, counts.fences, reachable.is_empty()), (1, 2, false));
    }

    #[test]
    fn memory_that_nothing_reaches_and_memory_that_is_free_and_can_be_reached_are_told() {
        let folder = tempfile::tempdir().unwrap();
        let pool = PoolOptions::at(folder.path().join("pool")).size(16 << 20).create::<Shm>().unwrap();
        let store = Direct::open::<Clht<Shm, Bytes<Key>>>(pool, settings()).unwrap();
        for n in 0..3000u64 {
            // Small ones and large ones, that come and go.
            let value = vec![7; 1 << (n % 15)];
            store
                .put(Put { key: &(n % 500).to_be_bytes(), value: &value, expires_at: None }, Durably::Store)
                .unwrap();
            store.remove(&(n / 3).to_be_bytes(), Durably::Store).unwrap();
        }
        let sound = store.memory();
        let Memory { reachable, .. } = sound;
        assert_eq!(sound, Memory { reachable, used: reachable, waiting: 0, garbage: 0, overlapping: 0 });
        assert!(reachable > 50_000, "{sound:?}");

        let lose = |bytes: usize| store.pool().pin().alloc(bytes).unwrap().persist().into_offset();
        for bytes in [64, 100_000] {
            lose(bytes);
            assert!(store.memory().garbage >= bytes as u64);
            assert_eq!(store.memory(), sound, "it was found and is free again");
        }
        // The smallest is a record.
        let (at, bytes) = *store.reachable().iter().min_by_key(|block| block.1).unwrap();
        store.pool().pin().free(at, bytes as usize);
        assert_eq!(store.memory(), Memory { used: reachable - bytes, ..sound });
    }

    #[test]
    fn blocks_that_overlap_are_told() {
        let (store, _) = small::store();
        [&b"one"[..], b"two"].iter().for_each(|key| store.give(key, b"value", None));
        assert_eq!(store.memory().overlapping, 0);
        // Both keys have one record.
        let (one, two) = (store.place(b"one"), store.place(b"two"));
        let guard = store.pool().pin();
        store.index.compare_and_swap(&guard, b"one", Some(one), None).unwrap();
        store.raw(one).store(store.pool().medium(), 0, Relaxed);
        assert_eq!(store.index.compare_and_swap(&guard, b"other", None, Some(two)), Ok(Swapped::Done));
        drop(guard);
        assert_eq!(store.memory().overlapping, 1);
    }

    #[test]
    fn a_walk_asks_now_and_then_whether_to_stop_and_leaves_all_as_it_is_if_it_is() {
        let (store, _) = small::store();
        (0..5000u32).for_each(|n| store.give(&n.to_le_bytes(), b"value", None));
        let asked = Cell::new(0);
        let trace = |stop_at: u32, marker: &mut Marker<'_>| {
            asked.set(0);
            store.trace(marker, &|| {
                asked.set(asked.get() + 1);
                asked.get() == stop_at
            });
        };
        let all = store.pool().reachable(&mut |marker| trace(0, marker)).len();
        assert_eq!(asked.get(), 5000 / STEP as u32);
        assert!(all >= 5000);
        // What was counted of a part counts for nothing.
        let before = store.stats().data_bytes;
        let some = store.pool().reachable(&mut |marker| trace(2, marker)).len();
        assert!(some < all - 2000, "{some} of {all}");
        assert_eq!(store.stats().data_bytes, before);
        assert!(asked.get() < 5, "it goes on asking");

        store.pool().request_collection();
        store.collect(&|| true);
        assert!(store.needs_collection());
        store.collect(&|| false);
        assert!(!store.needs_collection());
        assert_eq!(store.memory().garbage, 0);
    }

    #[test]
    fn a_record_that_is_damaged_is_kept_and_what_it_says_of_a_value_elsewhere_not_believed() {
        let (store, _) = small::store();
        let long = vec![7; 9000];
        [&b"shape"[..], b"sum", b"whole"].iter().for_each(|key| store.give(key, &long, None));
        let [shape, sum, whole] = [&b"shape"[..], b"sum", b"whole"].map(|key| store.place(key));
        let guard = store.pool().pin();
        let extent = |at| Record::at(&guard, at).unwrap().body.outline.unwrap().extent;
        let extents = [shape, sum, whole].map(extent);
        store.damage(shape);
        store.damage(sum + 16);
        let reachable: BTreeMap<u64, u64> = store.reachable().into_iter().collect();
        let is_there = |at: &u64| reachable.contains_key(at);
        assert!([shape, sum, whole].iter().all(is_there));
        assert_eq!(extents.each_ref().map(is_there), [false, false, true]);
        assert!(reachable[&extents[2]] >= 9000);
    }
}
