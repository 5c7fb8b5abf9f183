//! Checks of everything in the store, and salvage.

use crate::batch::descriptor::pending;
use crate::read::get::Reads;
use crate::record::format::Role;
use crate::record::records::Records;
use crate::record::view::{Record, corrupt};
use std::collections::HashSet;
use std::ops::{Bound, ControlFlow, Range};
use terrace_engine::Salvage;
use terrace_engine::{ReadError, Report};
use terrace_index::{Direction, Place};
use terrace_medium::MappedMedium;
use terrace_pool::{Backoff, Finding, Guard, Pool, Remedy};

/// Findings after which a check reports no more.
const FINDINGS_MAX: usize = 1000;
/// The finding for a [`Role::Stray`] record.
const STRAY: &str = "left by an earlier release under a key that is too long; it holds no value, and is removed once the store is in use";
/// Records between two progress reports.
const STEP: u64 = 1 << 14;

/// The checks of a store. They borrow the reads, on which they stand.
#[derive(Clone, Copy)]
pub(crate) struct Checks<'s, M: MappedMedium> {
    pub(crate) reads: &'s Reads<M>,
}

impl<'s, M: MappedMedium> Checks<'s, M> {
    fn records(&self) -> &'s Records<M> {
        self.reads.records()
    }

    fn pool(&self) -> &'s Pool<M> {
        self.reads.pool()
    }

    pub(crate) fn check_all(&self, progress: &mut dyn FnMut(u64, u64)) -> Report {
        if !self.pool().other_participants().is_empty() {
            return self.check_concurrently(progress);
        }
        let guard = self.pool().pin();
        let mut findings = self.pool().verify_superblock_and_roots();
        findings.extend(self.pool().verify_memory());
        findings.extend(self.records().index.verify(&guard));
        let (total, mut records) = (self.records().index.len(), 0);
        let mut touched = Touched::new(&findings);
        self.records().index.for_each(&guard, &mut |word| {
            if let Ok(record) = Record::at(&guard, word) {
                touched.add(&record);
            }
            if let Err(ReadError::Corrupt { place, what }) = self.check_record(&guard, word)
                && findings.len() < FINDINGS_MAX
            {
                findings.push(finding(&guard, word, place.offset(), what));
            }
            records += 1;
            if records % STEP == 0 {
                progress(records, total.max(records));
            }
        });
        touched.report(&mut findings);
        progress(records, records);
        self.report_of(&guard, records, findings, false)
    }

    fn report_of(
        &self,
        guard: &Guard<'_, M>,
        records: u64,
        findings: Vec<Finding>,
        concurrent: bool,
    ) -> Report {
        let (index, roots) = (self.records().index.stats(guard), self.pool().roots().len() as u64);
        let findings = findings.into_iter().map(Into::into).collect();
        let nodes = index.nodes.iter().fold(0u64, |all, &nodes| all.saturating_add(nodes));
        Report { records, buckets: index.buckets, nodes, roots, findings, concurrent }
    }

    /// The part of a check that is possible while other processes write: every record. Whether
    /// index and allocator are consistent can be checked only while nothing changes.
    pub(crate) fn check_concurrently(&self, progress: &mut dyn FnMut(u64, u64)) -> Report {
        let (total, mut records, mut place) = (self.records().index.len(), 0, Place::Start);
        let mut findings = Vec::new();
        loop {
            // A new guard for each piece, so that memory retired meanwhile does not wait for the
            // whole check.
            let guard = self.pool().pin();
            place = self.records().index.scan(&guard, &place, STEP as usize, &mut |word| {
                records += 1;
                if let Some(found) =
                    self.stays_unsound(&guard, word).filter(|_| findings.len() < FINDINGS_MAX)
                {
                    findings.push(found);
                }
            });
            progress(records, total.max(records));
            if place.is_end() {
                return self.report_of(&guard, records, findings, true);
            }
        }
    }

    /// The finding for a record, unless its error is temporary: a published record is finalized
    /// shortly after its batch has finished.
    fn stays_unsound(&self, guard: &Guard<'_, M>, word: u64) -> Option<Finding> {
        const LOOKS: u32 = 1000;
        let (mut looks, mut backoff) = (0, Backoff::new());
        while let Err(ReadError::Corrupt { place, what }) = self.check_record(guard, word) {
            looks += 1;
            match self.check_bytes(guard, word) {
                Ok(record) if self.records().index.get(guard, record.body.key) != Some(word) => return None,
                Ok(_) if looks < LOOKS => _ = backoff.rest(),
                // Wrong bytes never change, so waiting is useless, and their key may be wrong.
                _ => return Some(finding(guard, word, place.offset(), what)),
            }
        }
        None
    }

    fn check_record(&self, guard: &Guard<'_, M>, word: u64) -> Result<(), ReadError> {
        let record = self.check_bytes(guard, word)?;
        if record.shape.role == Role::Stray {
            return Err(corrupt(word, STRAY));
        }
        match pending(guard, &record)? {
            Some(pending) if pending.descriptor != self.records().root.active() => {
                Err(corrupt(word, "a record of a finished batch was not finalized"))
            }
            _ => Ok(()),
        }
    }

    /// The record at `word`, if it and its value match their checksums.
    fn check_bytes<'g>(&self, guard: &'g Guard<'_, M>, word: u64) -> Result<Record<'g>, ReadError> {
        let record = Record::at(guard, word)?;
        record.verify()?;
        record.value(guard, true)?;
        Ok(record)
    }

    pub(crate) fn salvage_all(&self, each: &mut Salvage<'_>) {
        let guard = self.pool().pin();
        let index = &self.records().index;
        index.for_each(&guard, &mut |word| self.salvage(&guard, word, each));
        // What lies behind damage to a tree is reached from its other end, up to there.
        if let (Some(_), Some(ranges)) = (index.damage(), index.ordered()) {
            let mut seen = HashSet::new();
            index.for_each(&guard, &mut |word| _ = seen.insert(word));
            let (from, to) = (Bound::Unbounded, Bound::Unbounded);
            ranges.range(&guard, from, to, Direction::Backward, usize::MAX, &mut |word| {
                if seen.insert(word) {
                    self.salvage(&guard, word, each);
                }
                ControlFlow::Continue(())
            });
        }
        if let Some(damage) = self.records().index.damage() {
            let found = "damage; keys behind it could not be reached";
            each(Err(Finding::new(damage.offset, damage.what, "a sound index", found).into()));
        }
    }
}

impl<M: MappedMedium> Checks<'_, M> {
    /// Hands on a record's entry, or what is wrong with it.
    fn salvage(&self, guard: &Guard<'_, M>, word: u64, each: &mut Salvage<'_>) {
        // Checks even if reads do not verify.
        let proved = self.check_record(guard, word).and_then(|()| self.reads.live_record(guard, word));
        let entry = proved
            .and_then(|live| live.map(|record| Ok((record, self.reads.entry(guard, &record)?))).transpose());
        match entry {
            Ok(None) => {}
            Ok(Some((record, entry))) => each(Ok((record.body.key, entry))),
            Err(ReadError::Corrupt { place, what }) => {
                each(Err(finding(guard, word, place.offset(), what).into()));
            }
            Err(_) => {}
        }
    }
}

fn finding<M: MappedMedium>(guard: &Guard<'_, M>, word: u64, offset: u64, what: &'static str) -> Finding {
    let record = Record::at(guard, word).ok();
    let found = match record {
        Some(_) => what.to_string(),
        None => format!("{what}; its key is unreadable"),
    };
    let mut finding = Finding::new(offset, "a record", "one that matches its checksum", found);
    finding.affected = record.map(|record| printable(record.body.key));
    finding.remedy = Remedy::Dropped;
    finding
}

/// Number of keys that a finding names.
const NAMED_MAX: u64 = 3;

/// The records that lie in the damaged memory of findings.
struct Touched {
    pieces: Vec<Piece>,
}

impl Piece {
    fn add(&mut self, key: &[u8]) {
        self.count += 1;
        if self.count <= NAMED_MAX {
            self.names.push(printable(key));
        }
    }
}

struct Piece {
    place: Range<u64>,
    finding: usize,
    names: Vec<String>,
    count: u64,
}

impl Touched {
    fn new(findings: &[Finding]) -> Self {
        let pieces = findings.iter().enumerate().filter(|(_, found)| found.bytes > 0);
        let piece = |(finding, found): (usize, &Finding)| Piece {
            place: found.offset..found.offset + found.bytes,
            finding,
            names: Vec::new(),
            count: 0,
        };
        let mut pieces: Vec<Piece> = pieces.map(piece).collect();
        pieces.sort_by_key(|piece| piece.place.start);
        Self { pieces }
    }

    fn add(&mut self, record: &Record<'_>) {
        let head = record.offset..record.offset + record.shape.size() as u64;
        let value = record
            .body
            .external
            .map_or(0..0, |value| value.extent..value.extent.saturating_add(record.shape.value_len as u64));
        let meets = |a: &Range<u64>, b: &Range<u64>| a.start < b.end && b.start < a.end;
        for place in [&head, &value] {
            // The pieces are sorted and do not overlap.
            let first = self.pieces.partition_point(|piece| piece.place.end <= place.start);
            for piece in self.pieces[first..].iter_mut().take_while(|piece| piece.place.start < place.end) {
                if place == &head || !meets(&piece.place, &head) {
                    piece.add(record.body.key);
                }
            }
        }
    }

    fn report(self, findings: &mut [Finding]) {
        for piece in self.pieces {
            let names = piece.names.join(", ");
            findings[piece.finding].affected = Some(match piece.count {
                0 => "no record".into(),
                1..=NAMED_MAX => names,
                count => format!("{names} and {} more", count - NAMED_MAX),
            });
        }
    }
}

/// A key in printable form, cut after 60 bytes.
fn printable(key: &[u8]) -> String {
    let cut = &key[..key.len().min(60)];
    let dots = if cut.len() < key.len() { "..." } else { "" };
    format!("\"{}\"{dots}", cut.escape_ascii())
}

#[cfg(test)]
#[path = "tests/check.rs"]
mod tests;
