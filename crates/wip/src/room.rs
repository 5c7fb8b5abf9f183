//! Room for writes: how a write waits for flushes and merges, and does a part of them.

use crate::engine::Wip;
use crate::jobs::choice::MAX_COUNT;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;
use terrace_disk::Need;
use terrace_engine::{Draft, need_of};
use terrace_engine::{Rest, WriteError};

/// Bytes that are written between two delays of a millisecond when flushes are furthest behind.
const PACE: u64 = 64 << 10;

impl Wip {
    /// Waits for room for a write: does a part of the background work that makes it, if no thread
    /// does.
    pub(crate) fn make_room(&self, drafts: &[Draft<'_>], bytes: usize) -> Result<(), WriteError> {
        let Some(first) = drafts.first() else { return Ok(()) };
        // What the log would refuse need not wait for flushes and merges, which fail as well.
        self.store.log.check_room(need_of(drafts)).map_err(|error| self.store.standing.failed(error))?;
        self.slow_down(bytes);
        if self.store.frozen_bytes() > self.store.frozen_max() {
            let began = self.store.settings.clock.now_ms();
            self.wait_for_room().or_else(|error| {
                // Removals are how a full disk gets room.
                let may_go_on = need_of(drafts) == Need::Reserve
                    && self.store.frozen_bytes() <= 2 * self.store.frozen_max();
                if may_go_on { self.store.standing.check_writable() } else { Err(error) }
            })?;
            self.store.counters.stalls.fetch_add(1, Relaxed);
            let took = self.store.settings.clock.now_ms().saturating_sub(began);
            self.store.counters.stalled_ms.fetch_add(took, Relaxed);
        }
        let mut is_first = true;
        let tables = || self.store.state.load().bucket(first.key).levels[0].tables.len();
        while is_first && tables() >= 2 * MAX_COUNT {
            is_first = false;
            // Where it fails, others tell: the write itself needs no merge.
            let _ = self.jobs.retry_merge(&self.store);
        }
        Ok(())
    }

    /// Delays a write of so many bytes while flushes fall behind, the longer the more they do, so
    /// that no write has to wait for a whole flush.
    fn slow_down(&self, bytes: usize) {
        let free = self.store.frozen_max() / 2;
        let debt = self.store.frozen_bytes().saturating_sub(free);
        if debt == 0 {
            return;
        }
        let share = (bytes as u64).saturating_mul(debt.min(free)) / free.max(1);
        if self.owed.fetch_add(share, Relaxed) + share >= PACE {
            self.owed.store(0, Relaxed);
            self.store.counters.delays.fetch_add(1, Relaxed);
            self.store.bell.wait(Duration::from_millis(1));
        }
    }

    fn wait_for_room(&self) -> Result<(), WriteError> {
        while self.store.frozen_bytes() > self.store.frozen_max() {
            self.store.standing.check_writable()?;
            if let Some(error) = self.jobs.flushes.too_early(self.store.settings.clock.now_ms())
                && !self.has_room_for_flush()
            {
                return Err(error);
            }
            if self.jobs.step_flush(&self.store)? == Rest::Idle {
                self.store.bell.wait(Duration::from_millis(100));
            }
        }
        Ok(())
    }

    /// Whether the disk has room for a flush, as far as it can tell.
    fn has_room_for_flush(&self) -> bool {
        let state = self.store.state.load();
        let frozen = state.memtables().map(|memtable| memtable.memory()).max().unwrap_or(0);
        self.store.files.free_bytes(self.store.path()).is_ok_and(|free| free >= frozen)
    }
}
