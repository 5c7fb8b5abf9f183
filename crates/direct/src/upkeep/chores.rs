//! Background work in bounded steps.

use crate::engine::Direct;
use std::sync::atomic::Ordering::Relaxed;
use terrace_engine::{Chore, Rest};
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

impl<M: MappedMedium> Direct<M> {
    pub(crate) fn do_step(&self, chore: Chore, stop: &dyn Fn() -> bool) -> Rest {
        let more = match chore {
            Chore::Collect => {
                if self.pool().needs_collection() {
                    self.collect(stop);
                }
                false
            }
            Chore::RecoverDead => {
                self.recover_dead();
                false
            }
            Chore::Sweep => self.is_elected() && self.sweep(SWEEP_BUDGET) >= MANY,
            Chore::Compact => self.is_elected() && self.compact_step(),
            Chore::Maintain => self.is_elected() && self.maintain_step(),
            Chore::HugePages => self.collapse_next(),
            // Of stores in files.
            Chore::Flush | Chore::Merge | Chore::Log => false,
        };
        if more { Rest::More } else { Rest::Idle }
    }

    /// Whether this process does the background work for all processes that share the store.
    fn is_elected(&self) -> bool {
        self.check_writable().is_ok() && Lock::of(self.root.sweeper()).hold_for_process(self.pool())
    }

    pub(crate) fn maintain_step(&self) -> bool {
        if self.check_writable().is_err() {
            return false;
        }
        self.pool().reclaim_nonblocking();
        self.index.maintain(&self.pool().pin())
    }

    /// Requests huge pages for the next piece of the pool; starts over after the last. Returns
    /// whether there is a next one.
    fn collapse_next(&self) -> bool {
        // ORDER: Relaxed: only where to continue; requesting huge pages twice for a piece is
        // harmless.
        let next = self.pool().collapse_step(self.collapsed.load(Relaxed));
        self.collapsed.store(next.unwrap_or(0), Relaxed);
        next.is_some()
    }
}
