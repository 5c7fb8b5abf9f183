//! The way of a block: it is closed, goes to the tier, and gives its pages back.
//!
//! *Sealing* a block (the first stage of 4.1.2) closes it for changes in place, waits for the
//! writers that have begun some, writes its live records, and notes it in the manifest. The log is
//! synced before that: a block must not have what the log could lose, nor leave out a version whose
//! successor could be lost. Then its part of the log is let go, but not before an open has read all
//! of it. *Freeing* takes the pages of the
//! oldest sealed block, when pages are needed.

use super::work::Upkeep;
use crate::space::addresses::RecordAt;
use crate::space::memory::{Here, Memory};
use crate::space::open_blocks::records_of;
use crate::space::pages::Resident;
use crate::space::record::{Kind, large_of};
use crate::space::stripes::Locked;
use crate::tier::edit::{Edit, Name};
use crate::tier::format::path_of;
use crate::tier::read::Block;
use crate::tier::write::BlockWriter;
use std::sync::Arc;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use terrace_disk::Manifest;
use terrace_engine::WriteError;

impl Upkeep {
    /// Seals all blocks that have records, so that the tier has everything.
    pub(crate) fn seal_all(&self) -> Result<(), WriteError> {
        let _flushing = self.stop_flushes();
        if !self.journal().has_log() {
            let mut manifest = self.journal().manifest();
            return self.seal_at_once(&mut manifest, &self.records().stripes.lock_each());
        }
        let memory = self.records().memory.load_full();
        let residents = memory.open.resident();
        residents
            .iter()
            .filter(|one| !one.is_sealed.load(Acquire))
            .try_for_each(|block| self.journal().with_reserve(|| self.seal(&memory, block)))
    }

    /// Seals all blocks while nothing is written. Without a log, a block must not leave out a
    /// version whose successor is in DRAM alone: that was visible before, and is asked for. The
    /// caller is the thread that flushes, and has locked all stripes.
    pub(crate) fn seal_at_once(
        &self,
        manifest: &mut Option<Manifest>,
        all: &Locked<'_>,
    ) -> Result<(), WriteError> {
        let memory = self.records().memory.load_full();
        let residents = memory.open.resident();
        residents.iter().filter(|one| !one.is_sealed.load(Acquire)).try_for_each(|block| {
            self.journal().with_reserve(|| {
                let Some(clean) = self.begin_seal(&memory, block)? else { return Ok(()) };
                let written = self.write_block(&memory, block, (clean, Some(all)))?;
                self.end_seal(manifest, (&memory, block), written, clean)
            })
        })
    }

    /// Writes a block to the tier. Called by one thread at a time.
    pub(super) fn seal(&self, memory: &Arc<Memory>, resident: &Arc<Resident>) -> Result<(), WriteError> {
        let Some(clean) = self.begin_seal(memory, resident)? else { return Ok(()) };
        self.records().stripes.pass_all();
        let written = self.write_block(memory, resident, (clean, None))?;
        self.end_seal(&mut self.journal().manifest(), (memory, resident), written, clean)
    }

    /// Closes a block. Returns the number below which it will be clean; `None` if it is sealed.
    fn begin_seal(&self, memory: &Memory, resident: &Resident) -> Result<Option<u64>, WriteError> {
        self.tier().standing.check_writable()?;
        if resident.is_sealed.load(Acquire) {
            // A second try: only what came behind that has failed.
            return Ok(None);
        }
        memory.open.close(&memory.pages, resident);
        // While the store is opened, what replaces these records may lie anywhere: in the part of
        // the log that is to come, or in a block of before. So nothing is claimed then.
        Ok(Some(if self.journal().is_recovering() { 0 } else { self.journal().next_seq.load(Acquire) }))
    }

    /// Notes a block that was written, unless nothing of it had to be.
    fn end_seal(
        &self,
        manifest: &mut Option<Manifest>,
        (memory, resident): (&Arc<Memory>, &Resident),
        written: Option<Arc<Block>>,
        clean: u64,
    ) -> Result<(), WriteError> {
        assert!(
            Arc::ptr_eq(memory, &self.records().memory.load()),
            "a store is not cleared while it is flushed"
        );
        if let Some(block) = written {
            let edit = Edit { added: vec![block.summed()], ..Edit::default() };
            self.records().write_edit(manifest, &edit).inspect_err(|_| self.tier().discard(block.name()))?;
            self.tier().place(resident.number, Some(block));
        } else {
            resident.is_empty.store(true, Release);
        }
        // ORDER: Release: the block can be found before its pages go.
        resident.is_sealed.store(true, Release);
        self.records().counters.flushes.fetch_add(1, Relaxed);
        // With the manifest locked: a checkpoint has all files of its time.
        self.records().release_log(clean)
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
        let name = (resident.number, self.tier().number_file());
        self.tier().remove_strays()?;
        let opened = self.write_records(memory, resident, (name, clean), all).and_then(|has_some| {
            let open = || Block::open(&self.tier().files, self.tier().path(), self.tier().id(), name);
            Ok(has_some.then(open).transpose()?)
        });
        match &opened {
            Ok(Some(_)) => {}
            Ok(None) => self.tier().remove_unfinished(name),
            Err(_) => self.tier().discard(name),
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
        let path = path_of(self.tier().path(), name.0, name.1);
        self.tier().check_place()?;
        let file = terrace_disk::create_file(&self.tier().files, &path)?;
        let mut writer = BlockWriter::new(&*file, &path, self.tier().id(), name);
        let mut bytes = Vec::new();
        let records = records_of((&memory.pages, &memory.pages.pool.try_pin()?), resident);
        // In pieces, so that no guard is held for long.
        for piece in records.chunks(256) {
            let here = Here::enter(memory)?;
            for found in piece.iter().filter(|(_, record)| !record.is_locked(&here.guard)) {
                self.write_record(&here, *found, (&mut writer, &mut bytes), all)?;
            }
        }
        // What was left out has a successor, which the log must not lose.
        self.journal().sync_log()?;
        if writer.is_empty() {
            return Ok(false);
        }
        let foot = writer.finish(clean)?;
        self.records().counters.flushed_bytes.fetch_add(foot.file_bytes(), Relaxed);
        self.tier().sync_names()?;
        Ok(true)
    }

    /// Writes a record if it is live. `bytes` is memory for it.
    fn write_record(
        &self,
        here: &Here<'_>,
        (address, record): (u64, RecordAt),
        (writer, bytes): (&mut BlockWriter<'_>, &mut Vec<u8>),
        all: Option<&Locked<'_>>,
    ) -> Result<(), WriteError> {
        if self.is_live(here, address, record, all)? {
            bytes.clear();
            record.copy_to(&here.guard, bytes);
            writer.add(here.map().offset_of(address), bytes)?;
        } else if !self.journal().has_log()
            && let Some(large) = record.read(&here.guard).as_ref().and_then(large_of)
        {
            // Writes have left its large value to what removes it from the tier.
            let probe = record.probe(&here.guard).expect("a record in DRAM");
            self.records().doom(here, probe, large, all)?;
        }
        Ok(())
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
            Some(_) => Ok(self.records().look_up(here, probe)?.0 == Some(address)),
            None => Ok(self.records().names(here, probe, |word| word == address)?),
        }
    }
}
