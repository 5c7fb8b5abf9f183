//! Expired entries, checks, salvage, checkpoints.

use crate::space::memory::Here;
use crate::space::record::{Copied, Kind, LargeValue, Record};
use crate::store::Tiered;
use crate::tier::large;
use crate::tier::read::{Held, path_of};
use crate::write::New;
use std::path::Path;
use std::sync::PoisonError;
use std::sync::atomic::Ordering::Relaxed;
use terrace_disk::{Directory, DiskError, Ends, Manifest, Need, cold};
use terrace_engine::Draft;
use terrace_engine::Salvage;
use terrace_engine::Standing;
use terrace_engine::finding;
use terrace_engine::{Cursor, Durability, Finding, ReadError, Remedy, Report, Rest, WriteError};
use terrace_index::Place;

/// Words of the index that a step of the sweep looks at.
const SWEPT: usize = 1024;
/// A block is swept again when so large a part of the time has passed that its records have left.
const LOOKS: u64 = 8;
/// Findings that a report has at most.
const FINDINGS_MAX: usize = 1000;

impl Tiered {
    /// Removes some entries that have expired: those in DRAM as the sweep goes through the index,
    /// those of a block when some of it are due.
    pub(crate) fn step_sweep(&self) -> Result<Rest, WriteError> {
        if self.counters.expiring.load(Relaxed) == 0 {
            return Ok(Rest::Idle);
        }
        let now = self.settings.clock.now_ms();
        if let Some(block) = self.all_blocks().find(|block| block.next_expiry.load(Relaxed) <= now) {
            return self.sweep_block(&block, now);
        }
        let mut removed = 0;
        for probe in self.expired_in_memory()? {
            removed += u64::from(self.remove_expired(&probe)?);
        }
        Ok(if removed > SWEPT as u64 / 4 { Rest::More } else { Rest::Idle })
    }

    /// The probes of some records in DRAM that have expired.
    fn expired_in_memory(&self) -> Result<Vec<Vec<u8>>, WriteError> {
        let memory = self.memory();
        let here = Here::enter(&memory)?;
        let mut swept = self.swept.lock().unwrap_or_else(PoisonError::into_inner);
        let mut expired = Vec::new();
        let next = here.index().scan(&here.guard, &swept, SWEPT, &mut |word| {
            let Some(record) = here.record(word) else { return };
            let is_due = record.read_head(&here.guard).is_some_and(|expires_at| self.has_expired(expires_at));
            if is_due {
                expired.extend(record.probe(&here.guard).map(<[u8]>::to_vec));
            }
        });
        *swept = if next.is_end() { Place::Start } else { next };
        Ok(expired)
    }

    fn sweep_block(&self, block: &Held, now: u64) -> Result<Rest, WriteError> {
        let (mut expired, mut next) = (Vec::new(), u64::MAX);
        let read = block.for_each(&mut |_, bytes| {
            let Some(record) = bytes.ok().and_then(Record::read) else { return };
            match record.expires_at {
                Some(at) if at <= now => expired.push(record.probe.to_vec()),
                Some(at) => next = next.min(at),
                None => {}
            }
        });
        // Damage is found by reads and checks.
        let _ = read;
        for probe in expired {
            self.remove_expired(&probe)?;
        }
        // Each look reads all of the block. So some of what expires waits for others, and the looks
        // are few, however its records expire.
        let left = block.foot.last_expiry.saturating_sub(now);
        block.next_expiry.store(next.max(now.saturating_add(left / LOOKS)), Relaxed);
        Ok(Rest::More)
    }

    /// Removes the entry of a key if it has expired.
    fn remove_expired(&self, probe: &[u8]) -> Result<bool, WriteError> {
        let probe = self.probe(&probe[8..]);
        self.with_room(Need::Reserve, || {
            let _stripe = self.stripes.lock(probe.hash());
            let memory = self.memory();
            let here = Here::enter(&memory)?;
            let old = self.old(&here, &probe)?.filter(|old| self.has_expired(old.copied.expires_at));
            let Some(old) = old else { return Ok(false) };
            let new = New::small(Draft::removal(probe.key()));
            self.write_locked(&here, &probe, Some(&old), &new)?;
            self.counters.expired.fetch_add(1, Relaxed);
            Ok(true)
        })
    }

    /// Reads every record of every block, and compares it with its checksum.
    pub(crate) fn check_all(&self, progress: &mut dyn FnMut(u64, u64)) -> Report {
        let mut report = Report::default();
        let blocks: Vec<Held> = self.all_blocks().collect();
        let all: u64 = blocks.iter().map(|block| block.foot.records).sum();
        let note = |report: &mut Report, error: &DiskError, affected: Option<&[u8]>| {
            if report.findings.len() < FINDINGS_MAX {
                let keys = affected.map(|key| (key.to_vec(), key.to_vec()));
                report.findings.push(finding(error, "block", keys.as_ref()));
            }
        };
        for block in &blocks {
            let mut records = 0;
            if let Err(error) = block.verify() {
                note(&mut report, &error, None);
            }
            let read = block.for_each(&mut |_, bytes| {
                records += 1;
                if records % (1 << 16) == 0 {
                    progress(report.records + records, all);
                }
                match bytes.map(Record::read) {
                    Ok(Some(record)) => self.check_large(&record).err().iter().for_each(|error| {
                        note(&mut report, error, Some(record.key()));
                    }),
                    Ok(None) => {}
                    Err(error) => note(&mut report, &error, None),
                }
            });
            if let Err(error) = read {
                note(&mut report, &error, None);
            }
            report.records += records;
        }
        // An error here is one of the index, which the opening tells of.
        let _ = self.check_large_in_memory(&mut |key, error| note(&mut report, &error, Some(key)));
        report.findings.extend(self.files.check().into_iter().map(|found| Finding {
            place: terrace_engine::Place::Pool(0),
            what: "the files of the tier",
            expected: "names and extents that fit together".into(),
            found,
            bytes: 0,
            affected: None,
            remedy: Remedy::Dropped,
        }));
        let memory = self.memory.load_full();
        if let Ok(here) = Here::enter(&memory) {
            report.buckets = here.index().stats(&here.guard).buckets;
            // What is only in memory was compared with its checksums when it was read from the log.
            // In blocks are dead records, too: they were read, but do not count.
            report.records = here.index().len();
        }
        progress(report.records, report.records);
        report
    }

    /// Compares the large value that a live record names with its checksum.
    fn check_large(&self, record: &Record<'_>) -> Result<(), DiskError> {
        if record.shape.kind != Kind::Large {
            return Ok(());
        }
        match self.find(record.probe).ok().flatten() {
            Some(present) if present.seq == record.seq => self.check_value(&present),
            _ => Ok(()),
        }
    }

    /// Compares the large values of records that are in DRAM alone with their checksums.
    fn check_large_in_memory(&self, each: &mut dyn FnMut(&[u8], DiskError)) -> Result<(), ReadError> {
        let (memory, mut place) = (self.memory.load_full(), Place::Start);
        while !place.is_end() {
            let mut probes: Vec<Vec<u8>> = Vec::new();
            {
                let here = Here::enter(&memory)?;
                place = here.index().scan(&here.guard, &place, SWEPT, &mut |word| {
                    let Some(record) = here.record(word).filter(|record| !record.is_copy()) else { return };
                    let is_large = record.head(&here.guard).0.kind == Kind::Large;
                    let is_on_tier = self.block(memory.pages.map.block_of(word)).is_some();
                    if is_large && !is_on_tier {
                        probes.extend(record.probe(&here.guard).map(<[u8]>::to_vec));
                    }
                });
            }
            for probe in probes {
                let present = self.find(&probe)?.filter(|present| present.shape.kind == Kind::Large);
                let checked = present.map_or(Ok(()), |present| self.check_value(&present));
                checked.err().into_iter().for_each(|error| each(&probe[8..], error));
            }
        }
        Ok(())
    }

    /// Compares the large value that a record names with its checksum.
    fn check_value(&self, named: &Copied) -> Result<(), DiskError> {
        let large = LargeValue::read(&named.inline).expect("as long as a reference");
        let path = large::path_of(self.path(), large.number);
        match self.read_large(large, named.shape.value_len) {
            Ok(Some(_)) => Ok(()),
            Ok(None) => Err(DiskError::corrupt(&path, 0, "the file of a large value is missing")),
            Err(_) => Err(DiskError::corrupt(&path, 0, "a large value does not match its checksum")),
        }
    }

    /// Visits every entry of the store, and what is damaged.
    pub(crate) fn salvage_all(&self, each: &mut Salvage<'_>) {
        let report = self.check_all(&mut |_, _| {});
        report.findings.into_iter().for_each(|finding| each(Err(finding)));
        let mut cursor = Cursor::START;
        while !cursor.is_end() {
            match self.scan_from(&cursor, 1024, &mut |key, entry| each(Ok((key, entry)))) {
                Ok(next) | Err(ReadError::Skipped { next, .. }) => cursor = next,
                Err(_) => return,
            }
        }
    }

    /// A copy of the store as it is now, in a new directory: links to its blocks, its large values
    /// and the log, and a manifest of its own.
    pub(crate) fn make_checkpoint(&self, directory: &Path) -> Result<(), WriteError> {
        self.standing.check_writable()?;
        Standing::check_copy(&self.directory, directory)?;
        // Nothing changes the blocks meanwhile, and nothing is removed.
        let _reorganising = self.reorganising.lock().unwrap_or_else(PoisonError::into_inner);
        // Without a log, the tier has to have all that there is at one instant.
        let has_log = self.settings.durability != Durability::None;
        let flushing = (!has_log).then(|| self.flushing.lock().unwrap_or_else(PoisonError::into_inner));
        let mut manifest = self.manifest();
        let locked = self.stripes.lock_each();
        if !has_log {
            cold::waiting(|| self.seal_at_once(&mut manifest, &locked))?;
        }
        drop(flushing);
        let cut = self.log.cut().map_err(|error| self.standing.failed(error))?;
        let doomed = std::mem::take(&mut *self.doomed.lock().unwrap_or_else(PoisonError::into_inner));
        drop(locked);
        let synced = self.with_large_synced(|| self.log.sync(cut.end))?;
        synced.map_err(|error| self.standing.failed(error))?;
        let identity = self.directory.identity().clone();
        let blocks: Vec<Held> = self.all_blocks().collect();
        let whole = self.whole();
        let mut link =
            |from: &Path, to: &Path| self.files.link(from, to).map_err(DiskError::room("link", from));
        let fill = |to: &Path| -> Result<(), DiskError> {
            for block in &blocks {
                let (number, generation) = block.name();
                link(block.path(), &path_of(to, number, generation))?;
            }
            let names = self.files.list(self.path()).map_err(DiskError::room("list", self.path()))?;
            for number in names.iter().filter_map(|name| large::number_of(name.to_str()?)) {
                link(&large::path_of(self.path(), number), &large::path_of(to, number))?;
            }
            let ends = Ends::open(&self.files, to, identity.store)?;
            self.log.link_into(to, cut, &ends, &mut link)?;
            let mut manifest = Manifest::create(&self.files, to, identity.store, &[whole.to_bytes()])?;
            manifest.keep_ends(ends.clone());
            ends.sync()
        };
        let made = Directory::create(&self.files, directory, &identity, fill);
        self.doomed.lock().unwrap_or_else(PoisonError::into_inner).extend(doomed);
        made.map(drop).map_err(|error| WriteError::Checkpoint(error.to_string()))
    }
}
