//! The way of a block: it is closed, goes to the tier, and gives its pages back.
//!
//! *Sealing* a block (the first stage of 4.1.2) closes it for changes in place, waits for the
//! writers that have begun some, writes its live records, and notes it in the manifest. The log is
//! synced before that: a block must not have what the log could lose, nor leave out a version whose
//! successor could be lost. Then its part of the log is let go, but not before an open has read all
//! of it. *Freeing* takes the pages of the
//! oldest sealed block, when pages are needed.

use crate::cache::Touched;
use crate::shortage::Shortage;
use crate::space::addresses::RecordAt;
use crate::space::memory::{Here, Memory};
use crate::space::open_blocks::records_of;
use crate::space::pages::{NoRoom, Resident};
use crate::space::record::{Kind, large_of};
use crate::space::stripes::Locked;
use crate::store::Tiered;
use crate::tier::edit::{Edit, Name};
use crate::tier::read::{self as block, Block, BlockWriter, path_of};
use std::collections::BTreeSet;
use std::io::ErrorKind;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::{Arc, PoisonError};
use std::time::Duration;
use terrace_disk::{DiskError, Manifest, Need};
use terrace_engine::Retry;
use terrace_engine::{Durability, ReadError, Rest, WriteError};

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
pub(crate) struct Tries {
    need: Need,
    pub(crate) all: u32,
    /// Times that nothing was left to flush.
    idle: u32,
}

impl Tries {
    pub(crate) fn of(need: Need) -> Self {
        Self { need, all: 0, idle: 0 }
    }
}

impl Tiered {
    /// Makes room for a write that found none, or waits for the thread that makes some. Refuses the
    /// write at once where nothing is left to make or to wait for.
    pub(crate) fn make_room(&self, why: NoRoom, wanted: usize, tries: &mut Tries) -> Result<(), WriteError> {
        let began = self.settings.clock.now_ms();
        tries.all += 1;
        if tries.all == 1 {
            self.counters.stalls.fetch_add(1, Relaxed);
        }
        let made = match self.try_to_make_room(tries.idle > 0) {
            // Removals are how a full tier gets room: what is dead there goes for them.
            Err(error) if tries.need == Need::Reserve && error.lacks_room() => match self.reclaim_some()? {
                true => Ok(true),
                false => Err(error),
            },
            made => made,
        };
        let took = self.settings.clock.now_ms().saturating_sub(began);
        self.counters.stalled_ms.fetch_add(took, Relaxed);
        let made = made?;
        self.standing.check_writable()?;
        let mut is_over = tries.all > TRIES_MAX;
        if !made {
            // Readers may hold what was freed.
            let memory = self.memory.load_full();
            let pages = &memory.pages;
            pages.pool.reclaim_blocking();
            tries.idle += 1;
            // Other writes may end, and readers; or others were faster.
            let may_change = pages.pool.waiting_bytes() > 0 || pages.leaves_some();
            is_over |= tries.idle > if may_change { IDLE_MAX } else { RACES_MAX };
            if !is_over {
                self.wait_for_pages(Duration::from_millis(2));
            }
        }
        match (is_over, &why) {
            (false, _) => Ok(()),
            (true, NoRoom::Pages) => Err(self.memory().is_full()),
            (true, NoRoom::Numbers) => Err(why.error(wanted, self.memory().pages.pool.size())),
        }
    }

    /// Returns whether room was made, or a thread that makes some was waited for.
    fn try_to_make_room(&self, is_last: bool) -> Result<bool, WriteError> {
        match self.flushing.try_lock() {
            Ok(_flushing) => self.make_pages(true, is_last),
            Err(_) => {
                self.wait_for_pages(Duration::from_millis(2));
                Ok(true)
            }
        }
    }

    /// The error that an attempt of this kind would meet: the last one lacked room, and the tier
    /// has not become emptier. So a full store refuses each write at once.
    pub(crate) fn lacks_room(&self, shortage: &Shortage) -> Option<WriteError> {
        shortage.error(|| self.files.free_bytes(self.path()).ok(), || self.settings.clock.now_ms())
    }

    /// Notes whether an attempt lacked room.
    pub(crate) fn note_room<T>(&self, shortage: &Shortage, done: &Result<T, WriteError>) {
        if let Some(error) = done.as_ref().err().filter(|error| error.lacks_room()) {
            let free = self.files.free_bytes(self.path()).unwrap_or(0);
            shortage.note(error, free, self.settings.clock.now_ms());
        }
    }

    /// Seals a block, in the room that is kept for that if there is no other, and notes what that
    /// lacked.
    fn seal_oldest(&self, memory: &Arc<Memory>, block: &Arc<Resident>) -> Result<(), WriteError> {
        let sealed = self.with_reserve(|| self.seal(memory, block));
        self.note_room(&self.unsealed, &sealed);
        sealed
    }

    /// Makes room on the tier for a removal whose record the log has refused: seals a block, so
    /// that the log may become shorter, or rewrites one. Returns whether it has.
    pub(crate) fn make_room_in_log(&self, tries: &mut Tries) -> Result<bool, WriteError> {
        tries.all += 1;
        if tries.all > LOG_TRIES_MAX || self.is_recovering.load(Relaxed) {
            return Ok(false);
        }
        let sealed = {
            let _flushing = self.flushing.lock().unwrap_or_else(PoisonError::into_inner);
            let memory = self.memory.load_full();
            let residents = memory.open.resident();
            let oldest = residents.iter().find(|one| !one.is_sealed.load(Acquire));
            oldest
                .filter(|_| self.lacks_room(&self.unsealed).is_none())
                .map(|one| self.seal_oldest(&memory, one))
        };
        match sealed {
            Some(Ok(())) => Ok(true),
            Some(Err(error)) if !error.lacks_room() => Err(error),
            _ => self.reclaim_some(),
        }
    }

    /// Ends the pauses of background work that lacked room, where there is so much now that it does
    /// not lack it.
    pub(crate) fn look_for_room(&self) {
        let now = self.settings.clock.now_ms();
        let lacks_room = |work: &Retry| work.too_early(now).is_some_and(|error| error.lacks_room());
        if lacks_room(&self.flushes) || lacks_room(&self.rewrites) {
            let block = self.memory().pages.block_bytes();
            if self.files.free_bytes(self.path()).is_ok_and(|free| free > block + block / 4) {
                self.forget_shortage();
            }
        }
    }

    /// Forgets what background work and flushes lacked: there is room now.
    pub(crate) fn forget_shortage(&self) {
        self.flushes.succeed();
        self.rewrites.succeed();
        self.unsealed.forget();
        self.unreclaimed.forget();
        self.unlogged.forget();
    }

    /// Frees pages if few are free, or if `is_urgent`, and seals a block if few are sealed, or if
    /// `is_last` and nothing else can be done. Returns whether it has done something.
    fn make_pages(&self, is_urgent: bool, is_last: bool) -> Result<bool, WriteError> {
        let memory = self.memory.load_full();
        let pages = &memory.pages;
        pages.update_limit();
        let (free, block) = (memory.pages.free_left(), memory.pages.spare());
        let residents = memory.open.resident();
        let is_sealed = |one: &&Arc<Resident>| one.is_sealed.load(Acquire);
        let sealed: usize = residents.iter().filter(is_sealed).map(|one| one.pages()).sum();
        let mut has_done = self.divide(&memory)?;
        if is_urgent && sealed == 0 {
            has_done |= self.drop_copies(&memory, Touched::Go)?;
        }
        if (free < block / 2 || is_urgent) && sealed > 0 {
            memory.open.free_pages((pages, &pages.pool.try_pin()?), block / 4 + 1);
            self.freed.notify_all();
            has_done = true;
        }
        let copies = memory.copies.pages().saturating_sub(self.copies_most(&memory));
        let is_short = free + sealed + copies < 2 * block;
        let open = residents.iter().find(|one| !is_sealed(one));
        // A few pages between copies would only make a small block.
        let is_worth = |block: &Resident| is_urgent || 4 * block.pages() >= memory.pages.block_pages();
        let is_due =
            |oldest: &Resident| self.log_is_long() || oldest.first_seq() < self.seal_below.load(Relaxed);
        // Free pages may be in pieces.
        let is_last = is_last && !has_done;
        let oldest = open.filter(|oldest| is_due(oldest) || is_last || is_short && is_worth(oldest));
        if let Some(oldest) = oldest {
            let lacks_room = self.lacks_room(&self.unsealed).filter(|_| is_urgent);
            let sealed = lacks_room.map_or_else(|| self.seal_oldest(&memory, oldest), Err);
            // What was done before makes room for the write all the same.
            sealed.or_else(|error| if has_done && error.lacks_room() { Ok(()) } else { Err(error) })?;
            has_done = true;
        }
        Ok(has_done)
    }

    /// Frees the pages of all sealed blocks. For tests.
    #[doc(hidden)]
    pub fn evict(&self) {
        let memory = self.memory.load_full();
        let Ok(guard) = memory.pages.pool.try_pin() else { return };
        while memory.open.free_pages((&memory.pages, &guard), usize::MAX) > 0 {}
    }

    fn log_is_long(&self) -> bool {
        let shorter = if self.log.reserve().is_kept() { 1 } else { 8 };
        // An open lets go of no log.
        let keeps_one = self.settings.durability != Durability::None && !self.is_recovering.load(Relaxed);
        keeps_one && self.log.bytes() > self.settings.log_bytes / shorter
    }

    /// Whether files of large values that nothing names, but which the log keeps, take much room.
    fn has_much_doomed(&self) -> bool {
        let smaller = if self.log.reserve().is_kept() { 1 } else { 64 };
        !self.is_recovering.load(Relaxed)
            && self.doomed_bytes.load(Relaxed) > self.settings.log_bytes / smaller
    }

    /// Begins a segment of the log, so that all of before goes once the blocks of now are sealed.
    fn move_on(&self) -> Result<(), WriteError> {
        let seq = self.next_seq.fetch_add(1, Relaxed);
        let bytes = self.doomed_bytes.swap(0, Relaxed);
        if self.settings.durability != Durability::None {
            // An empty record: the log needs nothing that lies before it.
            let begun = self.log.cut().and_then(|_| self.log.append((seq, 1), &[], Need::Reserve));
            begun.map_err(|error| {
                self.doomed_bytes.fetch_add(bytes, Relaxed);
                self.standing.failed(error)
            })?;
        }
        // Of writes that were appended before, the numbers are lower.
        self.seal_below.fetch_max(self.next_seq.load(Relaxed), Relaxed);
        Ok(())
    }

    /// Removes the files of all large values that nothing needs any more.
    pub(crate) fn end_doomed(&self) -> Result<(), WriteError> {
        if self.doomed.lock().unwrap_or_else(PoisonError::into_inner).is_empty() {
            return Ok(());
        }
        self.with_reserve(|| self.move_on())?;
        self.seal_all()?;
        let bound = self.next_seq.load(Acquire);
        self.stripes.pass_all();
        let _manifest = self.manifest();
        self.release_log(bound)
    }

    /// As [`Standing::with_reserve`](terrace_engine::Standing::with_reserve), with the log's.
    pub(crate) fn with_reserve<T>(
        &self,
        job: impl FnMut() -> Result<T, WriteError>,
    ) -> Result<T, WriteError> {
        self.standing.with_reserve(self.log.reserve(), job)
    }

    /// A step of the background work that keeps pages free.
    pub(crate) fn step_flush(&self) -> Result<Rest, WriteError> {
        let Ok(_flushing) = self.flushing.try_lock() else { return Ok(Rest::Idle) };
        if self.has_much_doomed() {
            self.with_reserve(|| self.move_on())?;
        }
        let has_done = self.make_pages(false, false)?;
        self.freed.notify_all();
        Ok(if has_done { Rest::More } else { Rest::Idle })
    }

    /// Seals all blocks that have records, so that the tier has everything.
    pub(crate) fn seal_all(&self) -> Result<(), WriteError> {
        let _flushing = self.flushing.lock().unwrap_or_else(PoisonError::into_inner);
        if self.settings.durability == Durability::None {
            let mut manifest = self.manifest();
            return self.seal_at_once(&mut manifest, &self.stripes.lock_each());
        }
        let memory = self.memory.load_full();
        let residents = memory.open.resident();
        residents
            .iter()
            .filter(|one| !one.is_sealed.load(Acquire))
            .try_for_each(|block| self.with_reserve(|| self.seal(&memory, block)))
    }

    /// Seals all blocks while nothing is written. Without a log, a block must not leave out a
    /// version whose successor is in DRAM alone: that was visible before, and is asked for. The
    /// caller is the thread that flushes, and has locked all stripes.
    pub(crate) fn seal_at_once(
        &self,
        manifest: &mut Option<Manifest>,
        all: &Locked<'_>,
    ) -> Result<(), WriteError> {
        let memory = self.memory.load_full();
        let residents = memory.open.resident();
        residents.iter().filter(|one| !one.is_sealed.load(Acquire)).try_for_each(|block| {
            self.with_reserve(|| {
                let Some(clean) = self.begin_seal(&memory, block)? else { return Ok(()) };
                let written = self.write_block(&memory, block, (clean, Some(all)))?;
                self.end_seal(manifest, (&memory, block), written, clean)
            })
        })
    }

    /// Writes a block to the tier. Called by one thread at a time.
    fn seal(&self, memory: &Arc<Memory>, resident: &Arc<Resident>) -> Result<(), WriteError> {
        let Some(clean) = self.begin_seal(memory, resident)? else { return Ok(()) };
        self.stripes.pass_all();
        let written = self.write_block(memory, resident, (clean, None))?;
        self.end_seal(&mut self.manifest(), (memory, resident), written, clean)
    }

    /// Closes a block. Returns the number below which it will be clean; `None` if it is sealed.
    fn begin_seal(&self, memory: &Memory, resident: &Resident) -> Result<Option<u64>, WriteError> {
        self.standing.check_writable()?;
        if resident.is_sealed.load(Acquire) {
            // A second try: only what came behind that has failed.
            return Ok(None);
        }
        memory.open.close(&memory.pages, resident);
        // While the store is opened, what replaces these records may lie anywhere: in the part of
        // the log that is to come, or in a block of before. So nothing is claimed then.
        Ok(Some(if self.is_recovering.load(Relaxed) { 0 } else { self.next_seq.load(Acquire) }))
    }

    /// Notes a block that was written, unless nothing of it had to be.
    fn end_seal(
        &self,
        manifest: &mut Option<Manifest>,
        (memory, resident): (&Arc<Memory>, &Resident),
        written: Option<Arc<Block>>,
        clean: u64,
    ) -> Result<(), WriteError> {
        assert!(Arc::ptr_eq(memory, &self.memory.load()), "a store is not cleared while it is flushed");
        if let Some(block) = written {
            let edit = Edit { added: vec![block.summed()], ..Edit::default() };
            self.write_edit(manifest, &edit).inspect_err(|_| self.discard(block.name()))?;
            self.blocks[resident.number as usize].store(Some(block));
        } else {
            resident.is_empty.store(true, Release);
        }
        // ORDER: Release: the block can be found before its pages go.
        resident.is_sealed.store(true, Release);
        self.counters.flushes.fetch_add(1, Relaxed);
        // With the manifest locked: a checkpoint has all files of its time.
        self.release_log(clean)
    }

    /// Removes a file that did not come into use, though it may be whole. After a failed edit the
    /// manifest may name it, and the store takes no more writes: then the next open decides.
    pub(crate) fn discard(&self, name: Name) {
        if !self.standing.is_stopped() {
            self.strays.lock().unwrap_or_else(PoisonError::into_inner).push(name);
            self.remove_unfinished(name);
        }
    }

    /// Removes the file of a block that has no records, and so no end.
    pub(crate) fn remove_unfinished(&self, (number, generation): Name) {
        if !self.standing.is_stopped() {
            // The next open removes what is left here.
            let _ = self.files.remove(&path_of(self.path(), number, generation));
        }
    }

    /// Makes sure that no discarded file is there, or comes back. To an open, one with records that
    /// neither the log nor a block has would prove that edits are lost: so this comes before each
    /// edit, and before the log lets go of records.
    pub(crate) fn remove_strays(&self) -> Result<(), WriteError> {
        let mut strays = self.strays.lock().unwrap_or_else(PoisonError::into_inner);
        if strays.is_empty() {
            return Ok(());
        }
        self.standing.check_place(&self.directory)?;
        for (number, generation) in strays.iter() {
            let path = path_of(self.path(), *number, *generation);
            match self.files.remove(&path) {
                Err(error) if error.kind() != ErrorKind::NotFound => {
                    return Err(DiskError::room("remove", &path)(error).into());
                }
                _ => {}
            }
        }
        self.sync_names()?;
        strays.clear();
        Ok(())
    }

    /// Writes the live records of a closed block to a file. `None` if there are none.
    fn write_block(
        &self,
        memory: &Arc<Memory>,
        resident: &Resident,
        (clean, all): (u64, Option<&Locked<'_>>),
    ) -> Result<Option<Arc<Block>>, WriteError> {
        // A record that dies from now on is counted, though it may be left out.
        memory.dead(resident.number).store(0, Relaxed);
        let name = (resident.number, self.next_file.fetch_add(1, Relaxed));
        self.remove_strays()?;
        let opened = self.write_records(memory, resident, (name, clean), all).and_then(|has_some| {
            let open = || Block::open(&self.files, self.path(), self.id(), name);
            Ok(has_some.then(open).transpose()?)
        });
        match &opened {
            Ok(Some(_)) => {}
            Ok(None) => self.remove_unfinished(name),
            Err(_) => self.discard(name),
        }
        Ok(opened?.map(Arc::new))
    }

    /// Returns whether there were some.
    fn write_records(
        &self,
        memory: &Arc<Memory>,
        resident: &Resident,
        (name, clean): (Name, u64),
        all: Option<&Locked<'_>>,
    ) -> Result<bool, WriteError> {
        let path = path_of(self.path(), name.0, name.1);
        self.standing.check_place(&self.directory)?;
        let file = terrace_disk::create_file(&self.files, &path)?;
        let mut writer = BlockWriter::new(&*file, &path, self.id(), name);
        let (mut bytes, map) = (Vec::new(), memory.pages.map);
        let records = records_of((&memory.pages, &memory.pages.pool.try_pin()?), resident);
        // In pieces, so that no guard is held for long.
        for piece in records.chunks(256) {
            let here = Here::enter(memory)?;
            for (address, record) in piece.iter().filter(|(_, record)| !record.is_locked(&here.guard)) {
                if self.is_live(&here, *address, *record, all)? {
                    bytes.clear();
                    record.copy_to(&here.guard, &mut bytes);
                    writer.add(map.offset_of(*address), &bytes)?;
                } else if self.settings.durability == Durability::None
                    && let Some(large) = record.read(&here.guard).as_ref().and_then(large_of)
                {
                    // Writes have left its large value to what removes it from the tier.
                    self.doom(&here, record.probe(&here.guard).expect("a record in DRAM"), large, all)?;
                }
            }
        }
        // What was left out has a successor, which the log must not lose.
        self.sync_log()?;
        if writer.is_empty() {
            return Ok(false);
        }
        let foot = writer.finish(clean)?;
        self.counters.flushed_bytes.fetch_add(foot.file_bytes(), Relaxed);
        self.sync_names()?;
        Ok(true)
    }

    pub(crate) fn sync_names(&self) -> Result<(), WriteError> {
        let synced = self.files.sync_directory(self.path());
        synced.map_err(|error| self.standing.failed(DiskError::room("sync", self.path())(error)))
    }

    /// Whether a record in DRAM is the present one of its key, or a tombstone.
    /// `all` are the locks of all stripes, if this thread has them.
    fn is_live(
        &self,
        here: &Here<'_>,
        address: u64,
        record: RecordAt,
        all: Option<&Locked<'_>>,
    ) -> Result<bool, WriteError> {
        if record.head(&here.guard).0.kind == Kind::Tombstone {
            return Ok(true);
        }
        here.search.forget();
        let probe = record.probe(&here.guard).expect("a record in DRAM");
        match all {
            Some(_) => Ok(self.look_up(here, probe)?.0 == Some(address)),
            None => Ok(self.names(here, probe, |word| word == address)?),
        }
    }

    /// Whether the index's word of a key is one of these. A writer that has changed it, and takes
    /// that back, does not count.
    pub(crate) fn names(
        &self,
        here: &Here<'_>,
        probe: &[u8],
        is_one: impl Fn(u64) -> bool,
    ) -> Result<bool, ReadError> {
        self.settled(here, probe, |word| word.is_some_and(&is_one), |is_named| *is_named)
    }

    /// What the index's word of a key tells: at once if it `is_enough`, or when no writer is about
    /// to change it, or to take that back.
    pub(crate) fn settled<T>(
        &self,
        here: &Here<'_>,
        probe: &[u8],
        tell: impl Fn(Option<u64>) -> T,
        is_enough: impl Fn(&T) -> bool,
    ) -> Result<T, ReadError> {
        let hash = crate::space::record::hash_in(probe);
        let before = self.stripes.of(hash).changes();
        let look = || Ok::<_, ReadError>(tell(self.look_up(here, probe)?.0));
        let told = look()?;
        if is_enough(&told) || before.is_some() && self.stripes.of(hash).changes() == before {
            return Ok(told);
        }
        let _stripe = self.stripes.lock(hash);
        look()
    }

    /// An edit that makes the present blocks out of nothing. Called under the manifest's lock.
    pub(crate) fn whole(&self) -> Edit {
        Edit {
            cleared: Some(self.cleared_at.load(Relaxed)),
            added: self.all_blocks().map(|block| block.summed()).collect(),
            removed: Vec::new(),
            block_shift: self.memory().pages.block_bytes().ilog2(),
        }
    }

    /// Makes an edit durable. A failure stops all writes: what the manifest has is unknown then.
    pub(crate) fn write_edit(&self, manifest: &mut Option<Manifest>, edit: &Edit) -> Result<(), WriteError> {
        let manifest = manifest.as_mut().ok_or(WriteError::ReadOnly)?;
        self.standing.check_writable()?;
        self.standing.check_place(&self.directory)?;
        self.remove_strays()?;
        if manifest.bytes() > 1 << 20 {
            let mut whole = self.whole();
            // Other files are known as well, so that an open does not take them for blocks of lost
            // edits.
            let names = self.files.list(self.path()).map_err(DiskError::room("list", self.path()))?;
            let of_blocks = names.iter().filter_map(|name| block::numbers_of(name.to_str()?));
            let named: BTreeSet<Name> = whole.added.iter().map(|(name, _)| *name).collect();
            let removed: Vec<Name> = of_blocks.filter(|name| !named.contains(name)).collect();
            whole.added.extend(removed.iter().map(|name| (*name, 0)));
            let others = Edit { removed, ..Edit::default() };
            manifest
                .rewrite(&mut [whole, others].iter().map(Edit::to_bytes))
                .map_err(|error| self.standing.failed(error))?;
        }
        manifest.append(&edit.to_bytes()).map_err(|error| self.standing.failed(error))
    }

    /// Lets go of the log up to the first record that the tier does not have. All writes with lower
    /// numbers than `bound` are noted in their blocks, and in the log.
    pub(crate) fn release_log(&self, bound: u64) -> Result<(), WriteError> {
        if self.is_recovering.load(Relaxed) {
            // An open that a crash ends is repeated: it needs all of the log.
            return Ok(());
        }
        if self.remove_strays().is_err() {
            // The block is sealed all the same. The log waits for the next one.
            return Ok(());
        }
        if self.settings.durability != Durability::None {
            let first = self.memory().open.first_unsealed_seq().min(bound);
            let released = self.with_large_synced(|| self.log.release(first))?;
            match released {
                // The block is sealed. The next one tries again.
                Err(DiskError::Full { .. }) => {}
                released => released.map_err(|error| self.standing.failed(error))?,
            }
        }
        self.remove_doomed()
    }
}
