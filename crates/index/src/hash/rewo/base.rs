//! What no kind of keys touches: the pool's handle, the root with the present view, and the locks.

use super::bucket::Bucket;
use super::place::Place;
use super::view::*;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use terrace_medium::{Line, MappedMedium, Offset};
use terrace_pool::{Fixed, FixedRow, Lock, Pool};

/// The lowest part of a table. It owns the handle of the pool, the root and the stripes of locks
/// (`stripes.rs`). It finds buckets, and knows nothing of what is in them.
pub(super) struct Base<M: MappedMedium> {
    pub(super) pool: Pool<M>,
    pub(super) root: Fixed<M, Root>,
    pub(super) stripe_lines: FixedRow<M, Line>,
}

impl<M: MappedMedium> Base<M> {
    #[inline(always)]
    pub(super) fn view_offset(&self) -> Offset<ViewBlock> {
        // ORDER: Acquire: pairs with the Release of a resize: the view is visible as it was
        // written.
        Offset::new(self.root[1].0[VIEW].load(self.pool.medium(), Acquire))
    }

    /// The current directory.
    #[inline(always)]
    pub(super) fn view(&self) -> View<'_, M> {
        let offset = self.view_offset();
        View { offset, block: self.pool.region().at(offset), medium: self.pool.medium() }
    }

    #[inline(always)]
    pub(super) fn bucket(&self, place: Place, index: u64) -> &Bucket {
        self.pool.region().at(place.bucket(index))
    }

    pub(super) fn resize_lock(&self) -> &Lock {
        Lock::of(&self.root[1].0[RESIZE_LOCK])
    }

    /// Persists the view that this thread builds upon: a key that it adds to a new table must not
    /// be lost with the way there. The thread that stored the view may not have reached its fence,
    /// or may have died.
    #[inline(always)]
    pub(super) fn persist_view(&self, view: Offset<ViewBlock>) {
        let (medium, durable) = (self.pool.medium(), &self.root[2].0[DURABLE_VIEW]);
        // ORDER: Relaxed, both: the word says that a fence has happened, and nothing about other
        // memory. That fence keeps the store behind it. What depends on the view are stores with
        // Release, which the load stays before; or, if something is retired, the decision of this
        // branch.
        if M::VOLATILE_CACHE && durable.load(medium, Relaxed) != view.raw() {
            // PERSIST: `view` in the root, before anything follows from it.
            self.pool.region().persist(&self.root[1]);
            if self.view_offset() == view {
                durable.store(medium, view.raw(), Relaxed);
            }
        }
    }

    /// Publishes another view in the root, durably. The resizes' lock is held.
    pub(super) fn publish_view(&self, view: u64) {
        let medium = self.pool.medium();
        // ORDER: Relaxed: stays before the view by the Release of that store. With 0 every thread
        // fences.
        self.root[2].0[DURABLE_VIEW].store(medium, 0, Relaxed);
        self.root[1].0[VIEW].store(medium.point("rewo.view"), view, Release);
        // Durable before anything depends on it, and before the replaced view is retired. A thread
        // that sees it earlier does the same.
        self.persist_view(view_at(view));
    }

    /// Evictions that any thread has begun.
    pub(super) fn evictions(&self) -> u64 {
        self.root[3].0[EVICTIONS].load(self.pool.medium(), Acquire)
    }

    /// Fences between stores to two buckets with the same lock.
    pub(super) fn fence_between(&self, place: Place, one: u64, other: u64) {
        if self.stripe_of(place.bucket(one)) == self.stripe_of(place.bucket(other)) {
            // PERSIST: under one lock only one bucket may be not durable.
            self.pool.region().fence();
        }
    }

    /// Whether the root names a sound view, and that one another if keys move.
    pub(super) fn has_sound_views(&self) -> bool {
        let region = self.pool.region();
        // Another process may resize meanwhile: the guard keeps a view's block from being reused.
        let _guard = self.pool.pin();
        let is_sound = |offset: Offset<ViewBlock>| {
            let block = region.get(offset).filter(|_| !offset.is_null());
            block
                .map(|block| View { offset, block, medium: region.medium() })
                .filter(|view| view.is_sound(region.refreshed_len()))
        };
        let now = is_sound(self.view_offset()).map(View::directory);
        now.is_some_and(|now| now.moving == 0 || is_sound(Offset::new(now.after)).is_some())
    }
}
