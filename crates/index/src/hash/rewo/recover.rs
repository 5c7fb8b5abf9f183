//! Recovery (3.7, Algorithm 6): ends what a crash has left in the buckets, and counts the keys again, while others read and write.
//!
//! The paper gives each data table to a thread. Here the collector's thread shares the work out a piece at a time, among as many as there are processors and only if the tables are large: so one large table is
//! shared out, too, and a thread that waits for somebody's lock holds nobody up but itself.

use super::bucket::{Mark, meta};
use super::ops::Rewo;
use super::place::Place;
use super::shape::Nests;
use super::stripes::Held;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;
use std::thread::{Builder, available_parallelism};
use terrace_medium::{BLOCK, MappedMedium};
use terrace_pool::Guard;

/// Buckets, 4 MiB of them, for which it pays to start one more thread: a millisecond's work.
const BUCKETS_PER_THREAD: u64 = 1 << 14;
/// Buckets that a thread looks through at a time for locked slots.
const PIECE: u64 = 1 << 10;

impl<M: MappedMedium, K: Nests> Rewo<M, K> {
    /// Resolves all locked slots, the only ones whose keys may be there twice, and then counts the keys.
    pub(super) fn recover_buckets(&self, guard: &Guard<'_, M>) {
        let directory = self.view().directory();
        let threads = threads_for(directory.buckets(), || available_parallelism().map_or(1, usize::from));
        for place in directory.all() {
            let pieces = place.buckets().div_ceil(PIECE) as usize;
            self.share_out(guard, threads, pieces, |guard, piece| {
                self.mend_piece(guard, place, piece as u64)
            });
        }
        self.share_out(guard, threads, self.stripes(), |guard, stripe| self.count_stripe(guard, stripe));
    }

    /// Does `work` for each piece, this thread with its guard and others with guards of their own; fewer than `threads` in all if the system has no more.
    fn share_out(
        &self,
        guard: &Guard<'_, M>,
        threads: usize,
        pieces: usize,
        work: impl Fn(&Guard<'_, M>, usize) + Sync,
    ) {
        let next = AtomicUsize::new(0);
        let run = |guard: &Guard<'_, M>| {
            // ORDER: Relaxed: only who gets a piece is decided by it; the threads' end orders the rest.
            while let Some(piece) = Some(next.fetch_add(1, Relaxed)).filter(|&piece| piece < pieces) {
                work(guard, piece);
            }
        };
        std::thread::scope(|scope| {
            for _ in 1..threads.min(pieces) {
                let thread = Builder::new().name("terrace-recover".into());
                if thread.spawn_scoped(scope, || run(&self.pool.pin())).is_err() {
                    break;
                }
            }
            run(guard);
        });
    }

    /// Looks for locked slots in a piece of a table's buckets, and resolves them.
    fn mend_piece(&self, guard: &Guard<'_, M>, place: Place, piece: u64) {
        let is_marked = |index| meta(self.pool.medium(), self.bucket(place, index)).mark::<K>() != Mark::None;
        for index in piece * PIECE..((piece + 1) * PIECE).min(place.buckets()) {
            while is_marked(index) {
                let mut held = self.hold(guard, &[place.bucket(index)]);
                let view = self.view();
                let outcome = match is_marked(index) && view.directory().all().any(|table| table == place) {
                    true => self.resolve(guard, &mut held, view, place, index),
                    false => break,
                };
                drop(held);
                if let Err(stripe) = outcome {
                    self.wait_for(guard, stripe);
                }
            }
        }
    }

    fn count_stripe(&self, guard: &Guard<'_, M>, stripe: usize) {
        let mut held = Held::none();
        self.hold_stripe(guard, &mut held, stripe);
        let mut keys = 0;
        for place in self.view().directory().all() {
            let first =
                (stripe as u64).wrapping_sub(place.start() / BLOCK as u64) & (self.stripes() as u64 - 1);
            for index in (first..place.buckets()).step_by(self.stripes()) {
                keys += u64::from(meta(self.pool.medium(), self.bucket(place, index)).keys::<K>());
            }
        }
        self.set_keys(stripe, keys);
    }
}

/// How many threads look through so many buckets. Only for large tables it is asked how many `processors` there are, as the system reads several files to tell.
fn threads_for(buckets: u64, processors: impl FnOnce() -> usize) -> usize {
    match (buckets / BUCKETS_PER_THREAD) as usize {
        0 | 1 => 1,
        threads => threads.min(processors()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hash::rewo::bucket::store_passed;
    use crate::hash::rewo::shape::{Entry, sealed::Shape};
    use crate::hash::rewo::write::Slot;
    use crate::{PointIndex, Stored, U64};
    use std::sync::Barrier;
    use terrace_medium::Shm;
    use terrace_pool::{Marker, Pool, PoolOptions};

    #[test]
    fn pieces_are_shared_out_among_threads_and_each_is_done_once() {
        let pool = Pool::<Shm>::anonymous(4 << 20).unwrap();
        let map = Rewo::<_, U64>::with_shape(&pool, "map", 4, 2).unwrap();
        for (threads, pieces) in [(1, 5), (2, 2), (3, 3), (4, 100), (5, 3), (2, 0)] {
            let together = threads.min(pieces);
            let done: Vec<_> = (0..pieces).map(|_| AtomicUsize::new(0)).collect();
            let meeting = Barrier::new(together);
            map.share_out(&pool.pin(), threads, pieces, |guard, piece| {
                assert_eq!(guard.depth(), 1);
                // The first pieces are only done once so many threads are at them.
                if piece < together {
                    meeting.wait();
                }
                done[piece].fetch_add(1, Relaxed);
            });
            assert!(done.iter().all(|times| times.load(Relaxed) == 1), "{threads} threads");
        }
    }

    /// As a crash leaves it in the middle of an eviction, in every eighth bucket: the slot is locked, and its key may be in its second bucket already.
    #[test]
    fn locked_slots_of_a_large_table_are_resolved_and_its_keys_counted() {
        const BUCKETS_LOG2: u32 = 16;
        const KEYS: u64 = 300_000;
        let pool = PoolOptions::anonymous().size(64 << 20).create::<Shm>().unwrap();
        let map = Rewo::<_, U64>::with_shape(&pool, "map", 8, BUCKETS_LOG2).unwrap();
        let guard = pool.pin();
        (0..KEYS).for_each(|key| _ = map.insert(&guard, &key, !key).unwrap());
        let place = map.view().directory().cells[0];
        assert_eq!(place.log2(), BUCKETS_LOG2);
        let (mut copied, mut locked) = (0, 0);
        for index in (0..place.buckets()).step_by(8) {
            let bucket = map.bucket(place, index);
            let homely = |entry: &Entry| !U64::is_second(*entry, place, index, map.seed);
            let found =
                (0..14).find_map(|slot| Some((slot, U64::read(&guard, bucket, slot).filter(homely)?)));
            let Some((slot, entry)) = found else { continue };
            map.lock_slots(place, index, Mark::Slot(slot));
            locked += 1;
            let to = place.second(index, entry.tag);
            let free = meta(pool.medium(), map.bucket(place, to)).free::<U64>();
            if locked % 2 == 0 && to != index && free != 0 {
                let at = Slot { place, index: to, slot: free.trailing_zeros() as usize };
                store_passed::<_, U64>(pool.medium(), bucket, entry.tag);
                map.install(&guard, at, U64::turned(entry, true));
                copied += 1;
            }
        }
        assert!(copied > 1000 && locked > 2 * copied - 100, "{locked} are locked, {copied} have copies");
        assert_eq!(map.len(), KEYS + copied);
        map.set_keys(3, 1 << 40);
        drop(guard);

        pool.doubt();
        pool.collect(&mut |marker: &mut Marker<'_>| map.trace(&pool.pin(), marker, |_, _| {}));
        let guard = pool.pin();
        assert_eq!((map.len(), map.verify(&guard)), (KEYS, vec![]));
        let is_there = |key: &u64| map.get(&guard, key) == Some(!key);
        assert!((0..KEYS).all(|key| is_there(&key)));
        let is_marked = |index| meta(pool.medium(), map.bucket(place, index)).mark::<U64>() != Mark::None;
        assert!(!(0..place.buckets()).any(is_marked));
    }

    #[test]
    fn there_is_a_thread_for_every_four_mebibytes_but_none_more_than_processors() {
        let threads = |buckets| threads_for(buckets, || 4);
        assert_eq!([0, 1, (2 << 14) - 1, 2 << 14, (3 << 14) - 1].map(threads), [1, 1, 1, 2, 2]);
        assert_eq!([4 << 14, 5 << 14, 1 << 31].map(threads), [4, 4, 4]);
        let nobody_asks = |buckets| threads_for(buckets, || unreachable!());
        assert_eq!([0, (2 << 14) - 1].map(nobody_asks), [1, 1]);
    }

    /// Who has noted a table may come to it when another has taken its place; nobody writes to it any more.
    #[test]
    fn a_table_that_was_given_back_meanwhile_is_left_alone() {
        let pool = Pool::<Shm>::anonymous(4 << 20).unwrap();
        let map = Rewo::<_, U64>::with_shape(&pool, "map", 4, 0).unwrap();
        let (guard, mut keys) = (pool.pin(), 0..);
        let first = map.view().directory().cells[0];
        let is_gone = || map.view().directory().all().all(|place| place != first);
        while !is_gone() {
            map.insert(&guard, &keys.next().unwrap(), 1).unwrap();
        }
        let is_marked = |place| meta(pool.medium(), map.bucket(place, 0)).mark::<U64>() != Mark::None;
        for (place, is_left) in [(first, true), (map.view().directory().cells[0], false)] {
            map.lock_slots(place, 0, Mark::Slot(13));
            map.mend_piece(&guard, place, 0);
            assert_eq!(is_marked(place), is_left);
        }
    }

    #[test]
    fn a_piece_is_its_own_buckets_and_no_others() {
        let pool = Pool::<Shm>::anonymous(4 << 20).unwrap();
        let map = Rewo::<_, U64>::with_shape(&pool, "map", 4, 12).unwrap();
        let (guard, place) = (pool.pin(), map.view().directory().cells[0]);
        let indexes = [0, PIECE - 1, PIECE, 2 * PIECE - 1, 2 * PIECE, 4 * PIECE - 1];
        indexes.iter().for_each(|&index| map.lock_slots(place, index, Mark::Slot(3)));
        let marked = || {
            let is_marked = |index| meta(pool.medium(), map.bucket(place, index)).mark::<U64>() != Mark::None;
            indexes.map(is_marked)
        };
        map.mend_piece(&guard, place, 1);
        assert_eq!(marked(), [true, true, false, false, true, true]);
        map.mend_piece(&guard, place, 3);
        assert_eq!(marked(), [true, true, false, false, true, false]);
        map.mend_piece(&guard, place, 0);
        assert_eq!(marked(), [false, false, false, false, true, false]);
    }
}
