//! Recovery (3.7, Algorithm 6): completes what a crash has left in the buckets, and recounts the
//! keys, while other threads read and write.
//!
//! The paper gives each data table to a thread. Here the collector's thread divides the work into
//! pieces for as many threads as there are processors, and only if the tables are large. So one
//! large table is divided, too, and a thread that waits for a lock delays only itself.

use super::bucket::{SlotLock, meta};
use super::place::Place;
use super::shape::BucketShape;
use super::stripes::LockedStripes;
use super::tables::DataTables;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;
use std::thread::{Builder, available_parallelism};
use terrace_medium::{BLOCK, MappedMedium};
use terrace_pool::Guard;

/// Buckets, 4 MiB of them, that justify one more thread: a millisecond's work.
const BUCKETS_PER_THREAD: u64 = 1 << 14;
/// Buckets in which a thread looks for locked slots at a time.
const PIECE: u64 = 1 << 10;

impl<M: MappedMedium, K: BucketShape> DataTables<M, K> {
    /// Resolves all locked slots, the only ones with keys that may be there twice, and then counts
    /// the keys.
    pub(super) fn recover_buckets(&self, guard: &Guard<'_, M>) {
        let directory = self.base.view().directory();
        let threads = threads_for(directory.buckets(), || available_parallelism().map_or(1, usize::from));
        for place in directory.all() {
            let pieces = place.buckets().div_ceil(PIECE) as usize;
            self.divide(guard, threads, pieces, |guard, piece| self.repair_piece(guard, place, piece as u64));
        }
        self.divide(guard, threads, self.base.stripes(), |guard, stripe| self.count_stripe(guard, stripe));
    }

    /// Does `work` for each piece, in this thread with its guard and in others with guards of their
    /// own: fewer than `threads` in total if the system has no more.
    fn divide(
        &self,
        guard: &Guard<'_, M>,
        threads: usize,
        pieces: usize,
        work: impl Fn(&Guard<'_, M>, usize) + Sync,
    ) {
        let next = AtomicUsize::new(0);
        let run = |guard: &Guard<'_, M>| {
            // ORDER: Relaxed: it only distributes the pieces; joining the threads orders the rest.
            while let Some(piece) = Some(next.fetch_add(1, Relaxed)).filter(|&piece| piece < pieces) {
                work(guard, piece);
            }
        };
        std::thread::scope(|scope| {
            for _ in 1..threads.min(pieces) {
                let thread = Builder::new().name("terrace-recover".into());
                if thread.spawn_scoped(scope, || run(&self.base.pool.pin())).is_err() {
                    break;
                }
            }
            run(guard);
        });
    }

    /// Looks for locked slots in a piece of a table's buckets, and resolves them.
    fn repair_piece(&self, guard: &Guard<'_, M>, place: Place, piece: u64) {
        let is_marked = |index| {
            meta(self.base.pool.medium(), self.base.bucket(place, index)).slot_lock::<K>() != SlotLock::None
        };
        for index in piece * PIECE..((piece + 1) * PIECE).min(place.buckets()) {
            while is_marked(index) {
                let mut held = self.base.lock_buckets(guard, &[place.bucket(index)]);
                let view = self.base.view();
                let outcome = match is_marked(index) && view.directory().all().any(|table| table == place) {
                    true => self.resolve(guard, &mut held, view, place, index),
                    false => break,
                };
                drop(held);
                if let Err(stripe) = outcome {
                    self.base.wait_for(guard, stripe);
                }
            }
        }
    }

    fn count_stripe(&self, guard: &Guard<'_, M>, stripe: usize) {
        let mut held = LockedStripes::none();
        self.base.lock_stripe(guard, &mut held, stripe);
        let mut keys = 0;
        for place in self.base.view().directory().all() {
            let first =
                (stripe as u64).wrapping_sub(place.start() / BLOCK as u64) & (self.base.stripes() as u64 - 1);
            for index in (first..place.buckets()).step_by(self.base.stripes()) {
                keys += u64::from(meta(self.base.pool.medium(), self.base.bucket(place, index)).keys::<K>());
            }
        }
        self.base.set_keys(stripe, keys);
    }
}

/// The number of threads for this many buckets. Asks for the number of `processors` only for large
/// tables, because the system reads several files for it.
fn threads_for(buckets: u64, processors: impl FnOnce() -> usize) -> usize {
    match (buckets / BUCKETS_PER_THREAD) as usize {
        0 | 1 => 1,
        threads => threads.min(processors()),
    }
}

#[cfg(test)]
#[path = "tests/recover.rs"]
mod tests;
