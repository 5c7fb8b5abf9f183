//! Checks: everything on the tier is read, and compared with its checksums.

use crate::read::Reads;
use crate::space::memory::Here;
use crate::space::record::{Copied, Kind, LargeValue, Record};
use crate::tier::large;
use crate::tier::read::Held;
use terrace_disk::DiskError;
use terrace_engine::finding;
use terrace_engine::{Finding, ReadError, Remedy, Report};
use terrace_index::Place;

/// Findings that a report has at most.
const FINDINGS_MAX: usize = 1000;
/// Words of the index that are looked at together.
const WORDS: usize = 1024;

/// A check under way. It owns the report; reads stand below.
pub(crate) struct Check<'c> {
    reads: &'c Reads,
    /// Called with the records that were compared, and with all that there are.
    progress: &'c mut dyn FnMut(u64, u64),
    report: Report,
    /// Records of all blocks.
    all: u64,
}

impl<'c> Check<'c> {
    /// Reads every record of every block, and compares it with its checksum.
    pub(crate) fn run(reads: &'c Reads, progress: &'c mut dyn FnMut(u64, u64)) -> Report {
        let blocks: Vec<Held> = reads.records.all_blocks().collect();
        let all: u64 = blocks.iter().map(|block| block.foot.records).sum();
        let mut check = Self { reads, progress, report: Report::default(), all };
        blocks.iter().for_each(|block| check.check_block(block));
        // An error here is one of the index, which the opening tells of.
        let _ = check.check_memory();
        check.check_files();
        check.count_records();
        let Self { progress, report, .. } = check;
        progress(report.records, report.records);
        report
    }

    fn note(&mut self, error: &DiskError, affected: Option<&[u8]>) {
        if self.report.findings.len() < FINDINGS_MAX {
            let keys = affected.map(|key| (key.to_vec(), key.to_vec()));
            self.report.findings.push(finding(error, "block", keys.as_ref()));
        }
    }

    fn check_block(&mut self, block: &Held) {
        let mut records = 0;
        if let Err(error) = block.verify() {
            self.note(&error, None);
        }
        let read = block.for_each(&mut |_, bytes| {
            records += 1;
            if records % (1 << 16) == 0 {
                (self.progress)(self.report.records + records, self.all);
            }
            match bytes.map(Record::read) {
                Ok(Some(record)) => {
                    let checked = check_large(self.reads, &record);
                    checked.err().iter().for_each(|error| self.note(error, Some(record.key())));
                }
                Ok(None) => {}
                Err(error) => self.note(&error, None),
            }
        });
        if let Err(error) = read {
            self.note(&error, None);
        }
        self.report.records += records;
    }

    /// Compares the large values of records that are in DRAM alone with their checksums.
    fn check_memory(&mut self) -> Result<(), ReadError> {
        let (memory, mut place) = (self.reads.records.memory.load_full(), Place::Start);
        while !place.is_end() {
            let mut probes: Vec<Vec<u8>> = Vec::new();
            {
                let here = Here::enter(&memory)?;
                place = here.index().scan(&here.guard, &place, WORDS, &mut |word| {
                    let Some(record) = here.record(word).filter(|record| !record.is_copy()) else { return };
                    let is_large = record.head(&here.guard).0.kind == Kind::Large;
                    let is_on_tier = self.reads.tier().block(here.map().block_of(word)).is_some();
                    if is_large && !is_on_tier {
                        probes.extend(record.probe(&here.guard).map(<[u8]>::to_vec));
                    }
                });
            }
            for probe in probes {
                let present = self.reads.find(&probe)?.filter(|present| present.shape.kind == Kind::Large);
                let checked = present.map_or(Ok(()), |present| check_value(self.reads, &present));
                checked.err().into_iter().for_each(|error| self.note(&error, Some(&probe[8..])));
            }
        }
        Ok(())
    }

    fn check_files(&mut self) {
        let findings = self.reads.tier().files.check().into_iter().map(|found| Finding {
            place: terrace_engine::Place::Pool(0),
            what: "the files of the tier",
            expected: "names and extents that fit together".into(),
            found,
            bytes: 0,
            affected: None,
            remedy: Remedy::Dropped,
        });
        self.report.findings.extend(findings);
    }

    fn count_records(&mut self) {
        let memory = self.reads.records.memory.load_full();
        if let Ok(here) = Here::enter(&memory) {
            self.report.buckets = here.index().stats(&here.guard).buckets;
            // What is only in memory was compared with its checksums when it was read from the log.
            // In blocks are dead records, too: they were read, but do not count.
            self.report.records = here.index().len();
        }
    }
}

/// Compares the large value that a live record names with its checksum.
fn check_large(reads: &Reads, record: &Record<'_>) -> Result<(), DiskError> {
    if record.shape.kind != Kind::Large {
        return Ok(());
    }
    match reads.find(record.probe).ok().flatten() {
        Some(present) if present.seq == record.seq => check_value(reads, &present),
        _ => Ok(()),
    }
}

/// Compares the large value that a record names with its checksum.
fn check_value(reads: &Reads, named: &Copied) -> Result<(), DiskError> {
    let value = LargeValue::read(&named.inline).expect("as long as a reference");
    let path = large::path_of(reads.tier().path(), value.number);
    match reads.records.read_large(value, named.shape.value_len) {
        Ok(Some(_)) => Ok(()),
        Ok(None) => Err(DiskError::corrupt(&path, 0, "the file of a large value is missing")),
        Err(_) => Err(DiskError::corrupt(&path, 0, "a large value does not match its checksum")),
    }
}
