//! The units: their buckets, the locks that exclude writers from them, and what a reader checks.

use super::bucket::{Bucket, lock_word, meta};
use super::root::*;
use super::shape::{BucketShape, Entry, positions};
use crate::Damage;
use crate::count::{Count, Stripes};
use std::marker::PhantomData;
use std::sync::OnceLock;
use std::sync::atomic::Ordering::{Acquire, Relaxed};
use terrace_medium::{MappedMedium, Offset};
use terrace_pool::{Fixed, Guard, Lock, Locked, Pool};

/// The units of a table at any moment of its life. It owns the handle of the pool, the root and the
/// counters. It knows neither when a resize is due nor how a key is changed.
pub(super) struct Units<M: MappedMedium, K> {
    pub(super) pool: Pool<M>,
    pub(super) root: Fixed<M, Root>,
    pub(super) stripes: Fixed<M, Stripes>,
    pub(super) seed: u64,
    pub(super) damage: OnceLock<Damage>,
    pub(super) kind: PhantomData<fn() -> K>,
}

/// The table was resized while a reader searched it; the reader must search again.
#[derive(Debug)]
pub(super) struct Changed;

/// A key's two sides, locked. No other thread changes the key's state, nor anything in these two
/// units.
pub(super) struct LockedUnits<'g, M: MappedMedium> {
    pub(super) view: View,
    pub(super) sides: [Side; 2],
    /// Only one, if it is the lock of both.
    pub(super) locks: [Option<Locked<'g, M>>; 2],
}

/// A slot, and the side of the key on which it lies.
#[derive(Clone, Copy)]
pub(super) struct SlotRef<'t> {
    pub(super) bucket: &'t Bucket,
    pub(super) slot: usize,
    pub(super) side: usize,
}

impl<M: MappedMedium, K: BucketShape> Units<M, K> {
    #[inline(always)]
    pub(super) fn state(&self) -> State {
        state(self.pool.medium(), &self.root)
    }

    pub(super) fn count(&self) -> Count<'_, M> {
        Count { medium: self.pool.medium(), line: &self.root[2], stripes: &self.stripes }
    }

    #[cold]
    pub(super) fn record_damage(&self, offset: u64, what: &'static str) {
        let _ = self.damage.set(Damage { offset, what });
    }

    /// The tiers at one instant. Their blocks are not reused while the caller is pinned.
    #[inline(always)]
    pub(super) fn view(&self) -> View {
        let tier = |log2: u32| {
            Tier(tier_word(&self.root, log2).load(self.pool.medium().point("level.tier"), Acquire))
        };
        loop {
            let state = self.state();
            let top = state.top();
            let low = if state.is_resting() { Tier::NONE } else { tier(top.wrapping_sub(2)) };
            let view = View { state, high: tier(top), mid: tier(top.wrapping_sub(1)), low };
            if self.state() == state {
                return view;
            }
        }
    }

    #[inline(always)]
    pub(super) fn bucket(&self, at: Offset<Bucket>) -> &Bucket {
        self.pool.region().at(at)
    }

    /// The place of a key at a position: in the two upper tiers of three, or in the two lower ones.
    #[inline(always)]
    pub(super) fn side(&self, view: &View, position: u64) -> Side {
        let (upper, lower) = match view.state.is_moving() && !self.uses_upper(view, position) {
            true => (view.mid, view.low),
            false => (view.high, view.mid),
        };
        Side { position, upper, lower }
    }

    /// Whether the unit at a position uses the two upper tiers.
    #[inline(always)]
    pub(super) fn uses_upper(&self, view: &View, position: u64) -> bool {
        let bucket = self.bucket(view.low.bucket(view.low.index(position)));
        meta(self.pool.medium(), bucket).uses_upper::<K>()
    }

    /// Whether a side still uses the tiers that it used when it was looked up.
    #[inline(always)]
    pub(super) fn is_current(&self, view: &View, side: &Side) -> bool {
        self.state() == view.state
            && (!view.state.is_moving() || self.side(view, side.position).lower == side.lower)
    }

    #[inline(always)]
    pub(super) fn lock(&self, side: &Side) -> &Lock {
        Lock::of(lock_word(self.bucket(side.lower_at())))
    }

    /// The buckets of both sides of a key, the fuller level first.
    #[inline(always)]
    pub(super) fn places(&self, sides: &[Side; 2]) -> [Offset<Bucket>; 4] {
        let [one, other] = sides;
        // Positive if the upper level has more keys.
        let balance = self.root[0].0[BALANCE].load(self.pool.medium(), Relaxed) as i64;
        match balance >= 0 {
            true => [one.upper_at(), other.upper_at(), one.lower_at(), other.lower_at()],
            false => [one.lower_at(), other.lower_at(), one.upper_at(), other.upper_at()],
        }
    }

    /// Validates what a reader saw on a side: the unit must not have used other tiers by then,
    /// because its keys change there from then on. Persists the unit if its lock is held or
    /// unfenced (invariant 3).
    #[inline(always)]
    pub(super) fn persist_read(&self, view: &View, side: &Side) -> Result<(), Changed> {
        // ORDER: the loads are Acquire: this check comes after the reads, and the load of the lock
        // after it is clear that it is this lock.
        if !self.is_current(view, side) {
            return Err(Changed);
        }
        if M::VOLATILE_CACHE && Lock::may_be_unfenced(self.lock(side).load_word(self.pool.medium())) {
            self.persist_unit(view, side.position);
        }
        Ok(())
    }

    /// Persists the unit at a position, in all tiers: a dead holder of one of its locks may have
    /// changed any of its buckets.
    #[cold]
    pub(super) fn persist_unit(&self, view: &View, position: u64) {
        let region = self.pool.region();
        let lowest = if view.state.is_moving() { view.low } else { view.mid };
        let unit = lowest.index(position);
        for tier in [view.high, view.mid, lowest] {
            let above = tier.log2() - lowest.log2();
            for index in unit << above..(unit + 1) << above {
                // PERSIST: the stores of a writer that holds a lock of the unit, or released it
                // before its fence. Only then does a reader return what it saw, or a writer build
                // upon it.
                region.write_back(self.bucket(tier.bucket(index)));
            }
        }
        region.fence();
    }

    /// As `persist_read`, for the root: a state is durable before anything that depends on it. The
    /// thread fences that itself before it makes it count.
    pub(super) fn write_back_state(&self) {
        let root = &self.root[0];
        // ORDER: Relaxed: after the Acquire of the state, which was stored under this lock. If the
        // lock is free and fenced, the fence is over.
        if M::VOLATILE_CACHE && Lock::may_be_unfenced(root.0[ROOT_LOCK].load(self.pool.medium(), Relaxed)) {
            // PERSIST: fenced at the latest before the mark of a unit that moves, the slot of a
            // key, or what a collection frees; see `turn`.
            self.pool.region().write_back(root);
        }
    }

    /// The position because of which an entry lies in a bucket of a tier.
    pub(super) fn position_in(&self, guard: &Guard<'_, M>, tier: Tier, index: u64, entry: Entry) -> u64 {
        let known = K::hash_of(guard, entry, self.seed).map(positions);
        let position = known.into_iter().flatten().find(|&position| tier.index(position) == index);
        position.unwrap_or_else(|| {
            // The slot is kept, although no key leads to it, so that `check` and `salvage` can name
            // its record.
            self.record_damage(entry.word, "a record that the index points to is unsound");
            tier.first_position(index)
        })
    }
}
