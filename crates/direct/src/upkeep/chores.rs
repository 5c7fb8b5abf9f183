//! Background work in bounded steps, and what the upkeep of a store remembers.

use crate::record::records::Records;
use crate::slot::Slots;
use crate::upkeep::collect::Collection;
use crate::upkeep::compact::{Compaction, Compactor};
use crate::upkeep::evict::{Evictions, Evictor};
use crate::upkeep::expiry::Expiry;
use crate::upkeep::room::Room;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use terrace_engine::{Chore, Rest};
use terrace_index::Place;
use terrace_medium::MappedMedium;
use terrace_pool::Lock;

/// The background work of a store in a pool.
pub(crate) const CHORES: [Chore; 6] =
    [Chore::Collect, Chore::RecoverDead, Chore::Sweep, Chore::Compact, Chore::Maintain, Chore::HugePages];

/// Records that one step reads at most to find expired ones. Ten steps a second then take about 1%
/// of a core.
const SWEEP_BUDGET: usize = 4000;
/// After a step that removes this many entries, more are likely to have expired.
const MANY: u64 = 25;

/// What the upkeep of a store remembers from one step to the next. It owns that state alone, and
/// lends it, with the slots, to the parts that work on it.
#[derive(Default)]
pub(crate) struct Upkeep {
    compactor: Compactor,
    evictor: Evictor,
    /// Where the sweep continues in an index by order.
    swept: Mutex<Place>,
    /// Where the next step requests huge pages.
    collapsed: AtomicU64,
}

impl Upkeep {
    /// How often room was made for a write.
    #[inline(always)]
    pub(crate) fn gains(&self) -> u64 {
        self.compactor.gains()
    }

    /// Number of keys that were evicted.
    pub(crate) fn evicted(&self) -> u64 {
        self.evictor.evicted()
    }

    pub(crate) fn expiry<'s, M: MappedMedium>(&'s self, slots: &'s Slots<M>) -> Expiry<'s, M> {
        Expiry { slots, swept: &self.swept }
    }

    pub(crate) fn compaction<'s, M: MappedMedium>(&'s self, slots: &'s Slots<M>) -> Compaction<'s, M> {
        Compaction { slots, compactor: &self.compactor }
    }

    pub(crate) fn room<'s, M: MappedMedium>(&'s self, slots: &'s Slots<M>) -> Room<'s, M> {
        Room { expiry: self.expiry(slots), compaction: self.compaction(slots) }
    }

    pub(crate) fn evictions<'s, M: MappedMedium>(&'s self, slots: &'s Slots<M>) -> Evictions<'s, M> {
        Evictions { room: self.room(slots), evictor: &self.evictor }
    }

    pub(crate) fn do_step<M: MappedMedium>(
        &self,
        slots: &Slots<M>,
        chore: Chore,
        stop: &dyn Fn() -> bool,
    ) -> Rest {
        let records = slots.records();
        let more = match chore {
            Chore::Collect => {
                if records.pool().needs_collection() {
                    Collection { records }.collect(stop);
                }
                false
            }
            Chore::RecoverDead => {
                slots.claims().recover_dead();
                false
            }
            Chore::Sweep => is_elected(records) && self.expiry(slots).sweep(SWEEP_BUDGET) >= MANY,
            Chore::Compact => is_elected(records) && self.compaction(slots).compact_step(),
            Chore::Maintain => is_elected(records) && maintain_step(records),
            Chore::HugePages => self.collapse_next(records),
            // Of stores in files.
            Chore::Flush | Chore::Merge | Chore::Log => false,
        };
        if more { Rest::More } else { Rest::Idle }
    }

    /// Requests huge pages for the next piece of the pool; starts over after the last. Returns
    /// whether there is a next one.
    fn collapse_next<M: MappedMedium>(&self, records: &Records<M>) -> bool {
        // ORDER: Relaxed: only where to continue; requesting huge pages twice for a piece is
        // harmless.
        let next = records.pool().collapse_step(self.collapsed.load(Relaxed));
        self.collapsed.store(next.unwrap_or(0), Relaxed);
        next.is_some()
    }
}

/// Whether this process does the background work for all processes that share the store.
fn is_elected<M: MappedMedium>(records: &Records<M>) -> bool {
    records.check_writable().is_ok() && Lock::of(records.root.sweeper()).hold_for_process(records.pool())
}

/// A background step of the index. Returns whether it has more to do.
pub(crate) fn maintain_step<M: MappedMedium>(records: &Records<M>) -> bool {
    if records.check_writable().is_err() {
        return false;
    }
    records.pool().reclaim_nonblocking();
    records.index.maintain(&records.pool().pin())
}
