//! Reading everything and comparing it with what it should be.

use super::descriptor::pending;
use super::store::{Direct, Kind};
use super::view::Record;
use crate::engine::Salvage;
use crate::{ReadError, Report};
use std::ops::Range;
use terrace_index::{PointIndex, Stored};
use terrace_pool::{Backoff, Finding, Guard, Remedy};

/// Findings after which a check says no more: the rest would tell nothing new.
const FINDINGS_MAX: usize = 1000;
/// Records between two words about the progress.
const STEP: u64 = 1 << 14;

impl<I> Direct<I>
where
    I: PointIndex<Kind = Kind> + Stored<Medium = <I as PointIndex>::Medium>,
{
    pub(super) fn check_all(&self, progress: &mut dyn FnMut(u64, u64)) -> Report {
        if !self.pool().others().is_empty() {
            return self.check_beside(progress);
        }
        let guard = self.pool().pin();
        let mut findings = self.pool().verify_head();
        findings.extend(self.pool().verify_memory());
        findings.extend(self.index.verify(&guard));
        let (total, mut records) = (self.index.len(), 0);
        let mut touched = Touched::new(&findings);
        self.index.for_each(&guard, |word| {
            if let Ok(record) = Record::at(&guard, word) {
                touched.note(&record);
            }
            if let Err(ReadError::Corrupt { offset, what }) = self.check_record(&guard, word)
                && findings.len() < FINDINGS_MAX
            {
                findings.push(finding(&guard, word, offset, what));
            }
            records += 1;
            if records % STEP == 0 {
                progress(records, total.max(records));
            }
        });
        touched.tell(&mut findings);
        progress(records, records);
        let buckets = self.index.stats(&guard).buckets;
        Report { records, buckets, roots: self.pool().roots().len() as u64, findings, beside_others: false }
    }
}

impl<I: PointIndex<Kind = Kind>> Direct<I> {
    /// What can be checked while other processes write: every record. That the index and the allocator agree with themselves and each other can be seen only when nothing changes.
    pub(super) fn check_beside(&self, progress: &mut dyn FnMut(u64, u64)) -> Report {
        let (total, mut records, mut position) = (self.index.len(), 0, 0);
        let mut findings = Vec::new();
        loop {
            // A new guard for each piece, so that memory that is given back meanwhile does not wait for all of it.
            let guard = self.pool().pin();
            position = self.index.scan(&guard, position, STEP as usize, |word| {
                records += 1;
                if let Some(found) =
                    self.stays_unsound(&guard, word).filter(|_| findings.len() < FINDINGS_MAX)
                {
                    findings.push(found);
                }
            });
            progress(records, total.max(records));
            if position == 0 {
                let (buckets, roots) = (self.index.stats(&guard).buckets, self.pool().roots().len() as u64);
                return Report { records, buckets, roots, findings, beside_others: true };
            }
        }
    }

    /// What is wrong with a record, unless it is only on its way: one that a batch has published is settled a moment after that has ended.
    fn stays_unsound(&self, guard: &Guard<'_, I::Medium>, word: u64) -> Option<Finding> {
        const LOOKS: u32 = 1000;
        let (mut looks, mut backoff) = (0, Backoff::new());
        while let Err(ReadError::Corrupt { offset, what }) = self.check_record(guard, word) {
            looks += 1;
            match Record::at(guard, word) {
                Ok(record) if self.index.get(guard, record.body.key) != Some(word) => return None,
                Ok(_) if looks < LOOKS => _ = backoff.rest(),
                _ => return Some(finding(guard, word, offset, what)),
            }
        }
        None
    }

    fn check_record(&self, guard: &Guard<'_, I::Medium>, word: u64) -> Result<(), ReadError> {
        let record = Record::at(guard, word)?;
        record.verify()?;
        record.value(guard, true)?;
        match pending(guard, &record)? {
            Some(pending) if pending.descriptor != self.root.active() => {
                Err(super::view::corrupt(word, "a record of a batch that has ended was not settled"))
            }
            _ => Ok(()),
        }
    }
}

impl<I: PointIndex<Kind = Kind>> Direct<I> {
    pub(super) fn salvage_all(&self, each: &mut Salvage<'_>) {
        let guard = self.pool().pin();
        self.index.for_each(&guard, |word| {
            // Also where reads are not verified.
            let proved = self.check_record(&guard, word).and_then(|()| self.live(&guard, word));
            let entry = proved
                .and_then(|live| live.map(|record| Ok((record, self.entry(&guard, &record)?))).transpose());
            match entry {
                Ok(None) => {}
                Ok(Some((record, entry))) => each(Ok((record.body.key, entry))),
                Err(ReadError::Corrupt { offset, what }) => each(Err(finding(&guard, word, offset, what))),
                Err(ReadError::Forked) => {}
            }
        });
        if let Some(damage) = self.index.damage() {
            let found = "damage; keys that hang on it could not be reached";
            each(Err(Finding::new(damage.offset, damage.what, "a sound index", found)));
        }
    }
}

fn finding<M: terrace_medium::MappedMedium>(
    guard: &Guard<'_, M>,
    word: u64,
    offset: u64,
    what: &'static str,
) -> Finding {
    let record = Record::at(guard, word).ok();
    let found = match record {
        Some(_) => what.to_string(),
        None => format!("{what}; its key cannot be told"),
    };
    let mut finding = Finding::new(offset, "a record", "one that matches its checksum", found);
    finding.touches = record.map(|record| shown(record.body.key));
    finding.remedy = Remedy::Dropped;
    finding
}

/// Keys that are named of those that a finding touches.
const NAMED_MAX: u64 = 3;

/// Which records lie in the pieces of memory that findings are about.
struct Touched {
    pieces: Vec<Piece>,
}

impl Piece {
    fn note(&mut self, key: &[u8]) {
        self.count += 1;
        if self.count <= NAMED_MAX {
            self.names.push(shown(key));
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

    fn note(&mut self, record: &Record<'_>) {
        let head = record.offset..record.offset + record.shape.size() as u64;
        let value = record
            .body
            .outline
            .map_or(0..0, |value| value.extent..value.extent.saturating_add(record.shape.value_len as u64));
        let meets = |a: &Range<u64>, b: &Range<u64>| a.start < b.end && b.start < a.end;
        for place in [&head, &value] {
            // They lie one behind the other.
            let first = self.pieces.partition_point(|piece| piece.place.end <= place.start);
            for piece in self.pieces[first..].iter_mut().take_while(|piece| piece.place.start < place.end) {
                if place == &head || !meets(&piece.place, &head) {
                    piece.note(record.body.key);
                }
            }
        }
    }

    fn tell(self, findings: &mut [Finding]) {
        for piece in self.pieces {
            let names = piece.names.join(", ");
            findings[piece.finding].touches = Some(match piece.count {
                0 => "no record".into(),
                1..=NAMED_MAX => names,
                count => format!("{names} and {} more", count - NAMED_MAX),
            });
        }
    }
}

/// A key as people can read it, cut after 60 bytes.
fn shown(key: &[u8]) -> String {
    let cut = &key[..key.len().min(60)];
    let dots = if cut.len() < key.len() { "..." } else { "" };
    format!("\"{}\"{dots}", cut.escape_ascii())
}
