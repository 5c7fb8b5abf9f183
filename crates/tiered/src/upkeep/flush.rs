//! Pages that are kept free: which blocks go to the tier, and when.

use super::work::Upkeep;
use crate::cache::Touched;
use crate::space::memory::Memory;
use crate::space::pages::Resident;
use std::sync::Arc;
use std::sync::atomic::Ordering::{Acquire, Relaxed};
use terrace_engine::{Rest, WriteError};

impl Upkeep {
    /// Seals a block, in the room that is kept for that if there is no other, and notes what that
    /// lacked.
    pub(super) fn seal_oldest(&self, memory: &Arc<Memory>, block: &Arc<Resident>) -> Result<(), WriteError> {
        let sealed = self.journal().with_reserve(|| self.seal(memory, block));
        self.journal().note_room(&self.unsealed, &sealed);
        sealed
    }

    /// Frees pages if few are free, or if `is_urgent`, and seals a block if few are sealed, or if
    /// `is_last` and nothing else can be done. Returns whether it has done something.
    pub(super) fn make_pages(&self, is_urgent: bool, is_last: bool) -> Result<bool, WriteError> {
        let memory = self.records().memory.load_full();
        let pages = &memory.pages;
        pages.update_limit();
        let (free, block) = (pages.free_left(), pages.spare());
        let residents = memory.open.resident();
        let is_sealed = |one: &&Arc<Resident>| one.is_sealed.load(Acquire);
        let sealed: usize = residents.iter().filter(is_sealed).map(|one| one.pages()).sum();
        let mut has_done = self.reads.cache.divide(self.records(), &memory)?;
        if is_urgent && sealed == 0 {
            has_done |= self.reads.cache.drop_copies(self.records(), &memory, Touched::Go)?;
        }
        if (free < block / 2 || is_urgent) && sealed > 0 {
            memory.open.free_pages((pages, &pages.pool.try_pin()?), block / 4 + 1);
            self.reads.cache.note_freed();
            has_done = true;
        }
        let Some(oldest) = residents.iter().find(|one| !is_sealed(one)) else { return Ok(has_done) };
        let copies = memory.copies.pages().saturating_sub(self.reads.cache.copies_most(&memory));
        let is_short = free + sealed + copies < 2 * block;
        // A few pages between copies would only make a small block.
        let is_worth = is_urgent || 4 * oldest.pages() >= pages.block_pages();
        // Free pages may be in pieces.
        let is_last = is_last && !has_done;
        if self.is_due(oldest) || is_last || is_short && is_worth {
            let lacks_room = self.journal().lacks_room(&self.unsealed).filter(|_| is_urgent);
            let sealed = lacks_room.map_or_else(|| self.seal_oldest(&memory, oldest), Err);
            // What was done before makes room for the write all the same.
            sealed.or_else(|error| if has_done && error.lacks_room() { Ok(()) } else { Err(error) })?;
            has_done = true;
        }
        Ok(has_done)
    }

    /// Whether a block is to go to the tier for the sake of the log.
    fn is_due(&self, oldest: &Resident) -> bool {
        let journal = self.journal();
        journal.log_is_long() || oldest.first_seq() < journal.seal_below.load(Relaxed)
    }

    /// Removes the files of all large values that nothing needs any more.
    pub(crate) fn end_doomed(&self) -> Result<(), WriteError> {
        if !self.journal().large.has_doomed() {
            return Ok(());
        }
        self.journal().with_reserve(|| self.journal().move_on())?;
        self.seal_all()?;
        let bound = self.journal().next_seq.load(Acquire);
        self.records().stripes.pass_all();
        let _manifest = self.journal().manifest();
        self.records().release_log(bound)
    }

    /// A step of the background work that keeps pages free.
    pub(crate) fn step_flush(&self) -> Result<Rest, WriteError> {
        let Ok(_flushing) = self.flushing.try_lock() else { return Ok(Rest::Idle) };
        if self.journal().has_much_doomed() {
            self.journal().with_reserve(|| self.journal().move_on())?;
        }
        let has_done = self.make_pages(false, false)?;
        self.reads.cache.note_freed();
        Ok(if has_done { Rest::More } else { Rest::Idle })
    }
}
