//! Room for a write that found none.

use super::work::Upkeep;
use crate::changes::Stuck;
use crate::space::memory::Memory;
use crate::space::pages::NoRoom;
use std::sync::Arc;
use std::sync::atomic::Ordering::{Acquire, Relaxed};
use std::time::Duration;
use terrace_disk::{Need, cold};
use terrace_engine::WriteError;

/// Times that a write looks for room while others flush or take what was freed. Each waits for a
/// few milliseconds.
const TRIES_MAX: u32 = 4000;
/// The same where nothing is left to flush, but some of DRAM is in use for a moment: by readers of
/// what was freed, or for another write.
const IDLE_MAX: u32 = 1000;
/// The same where that is not so either.
const RACES_MAX: u32 = 8;
/// Blocks that a removal seals or rewrites so that the log takes it.
const LOG_TRIES_MAX: u32 = 16;

/// What a write has tried to find room.
struct Tries {
    need: Need,
    all: u32,
    /// Times that nothing was left to flush.
    idle: u32,
}

impl Tries {
    fn of(need: Need) -> Self {
        Self { need, all: 0, idle: 0 }
    }
}

impl Upkeep {
    /// Makes room for a write that found none, or waits for the thread that makes some. Refuses the
    /// write at once where nothing is left to make or to wait for.
    fn make_room(&self, why: NoRoom, wanted: usize, tries: &mut Tries) -> Result<(), WriteError> {
        let began = self.journal().settings.clock.now_ms();
        tries.all += 1;
        if tries.all == 1 {
            self.records().counters.stalls.fetch_add(1, Relaxed);
        }
        let made = match self.try_to_make_room(tries.idle > 0) {
            // Removals are how a full tier gets room: what is dead there goes for them.
            Err(error) if tries.need == Need::Reserve && error.lacks_room() => match self.reclaim_some()? {
                true => Ok(true),
                false => Err(error),
            },
            made => made,
        };
        let took = self.journal().settings.clock.now_ms().saturating_sub(began);
        self.records().counters.stalled_ms.fetch_add(took, Relaxed);
        let made = made?;
        self.tier().standing.check_writable()?;
        let is_over = tries.all > TRIES_MAX;
        let is_over = if made { is_over } else { self.wait_for_room(is_over, tries) };
        match (is_over, &why) {
            (false, _) => Ok(()),
            (true, NoRoom::Pages) => Err(self.records().memory().is_full()),
            (true, NoRoom::Numbers) => Err(why.error(wanted, self.records().memory().pages.pool.size())),
        }
    }

    /// Waits for pages where nothing is left to flush, unless it `is_over`. Returns whether it is
    /// now.
    fn wait_for_room(&self, mut is_over: bool, tries: &mut Tries) -> bool {
        // Readers may hold what was freed.
        let memory = self.records().memory.load_full();
        let pages = &memory.pages;
        pages.pool.reclaim_blocking();
        tries.idle += 1;
        // Other writes may end, and readers; or others were faster.
        let may_change = pages.pool.waiting_bytes() > 0 || pages.leaves_some();
        is_over |= tries.idle > if may_change { IDLE_MAX } else { RACES_MAX };
        if !is_over {
            self.reads.cache.wait_for_pages(Duration::from_millis(2));
        }
        is_over
    }

    /// Has pages leave a piece of so many bytes to the index. There are pages between those that
    /// were freed: so more and more of them go, but for some that the write itself needs.
    fn leave_to_index(&self, wanted: u64, left: &mut Vec<(Arc<Memory>, u64)>) {
        let memory = self.records().memory.load_full();
        let has_left = left.iter().map(|(_, bytes)| bytes).sum::<u64>();
        if has_left + wanted <= memory.pages.pool.size() / 4 {
            memory.pages.leave_to_index(wanted);
            left.push((memory, wanted));
        }
    }

    /// Returns whether room was made, or a thread that makes some was waited for.
    fn try_to_make_room(&self, is_last: bool) -> Result<bool, WriteError> {
        match self.flushing.try_lock() {
            Ok(_flushing) => self.make_pages(true, is_last),
            Err(_) => {
                self.reads.cache.wait_for_pages(Duration::from_millis(2));
                Ok(true)
            }
        }
    }

    /// Makes room on the tier for a removal whose record the log has refused: seals a block, so
    /// that the log may become shorter, or rewrites one. Returns whether it has.
    fn make_room_in_log(&self, tries: &mut Tries) -> Result<bool, WriteError> {
        tries.all += 1;
        if tries.all > LOG_TRIES_MAX || self.journal().is_recovering() {
            return Ok(false);
        }
        let sealed = {
            let _flushing = self.stop_flushes();
            let memory = self.records().memory.load_full();
            let residents = memory.open.resident();
            let oldest = residents.iter().find(|one| !one.is_sealed.load(Acquire));
            oldest
                .filter(|_| self.journal().lacks_room(&self.unsealed).is_none())
                .map(|one| self.seal_oldest(&memory, one))
        };
        match sealed {
            Some(Ok(())) => Ok(true),
            Some(Err(error)) if !error.lacks_room() => Err(error),
            _ => self.reclaim_some(),
        }
    }

    /// Runs a write, and again when there is room, if it finds none. `need` says what it may do for
    /// that.
    pub(crate) fn with_room<T>(
        &self,
        need: Need,
        write: impl FnMut() -> Result<T, Stuck>,
    ) -> Result<T, WriteError> {
        let mut left = Vec::new();
        let done = self.try_with_room(need, write, &mut left);
        left.iter().for_each(|(memory, bytes)| memory.pages.take_back(*bytes));
        done
    }

    /// See [`Upkeep::with_room`]. Notes what pages have `left` to the index.
    fn try_with_room<T>(
        &self,
        need: Need,
        mut write: impl FnMut() -> Result<T, Stuck>,
        left: &mut Vec<(Arc<Memory>, u64)>,
    ) -> Result<T, WriteError> {
        let mut tries = Tries::of(need);
        loop {
            match write() {
                Ok(done) => return Ok(done),
                Err(Stuck::Failed(WriteError::PoolFull { .. })) if tries.all > 256 => {
                    return Err(self.records().memory().is_full());
                }
                Err(Stuck::Failed(WriteError::PoolFull { wanted, .. })) => {
                    self.leave_to_index(wanted, left);
                    cold::waiting(|| self.make_room(NoRoom::Pages, wanted as usize, &mut tries))?;
                }
                Err(Stuck::Failed(error)) if need == Need::Reserve && error.lacks_room() => {
                    if !cold::waiting(|| self.make_room_in_log(&mut tries))? {
                        return Err(error);
                    }
                }
                Err(Stuck::Failed(error)) => return Err(error),
                Err(Stuck::NoRoom(why, wanted)) => {
                    cold::waiting(|| self.make_room(why, wanted, &mut tries))?;
                }
            }
        }
    }
}
