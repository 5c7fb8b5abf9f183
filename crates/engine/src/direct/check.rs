//! Reading everything and comparing it with what it should be.

use super::descriptor::pending;
use super::store::{Direct, Kind};
use super::view::Record;
use crate::engine::Salvage;
use crate::{ReadError, Report};
use terrace_index::{PointIndex, Stored};
use terrace_pool::{Finding, Guard};

/// Findings after which a check says no more: the rest would tell nothing new.
const FINDINGS_MAX: usize = 1000;
/// Records between two words about the progress.
const STEP: u64 = 1 << 14;

impl<I> Direct<I>
where
    I: PointIndex<Kind = Kind> + Stored<Medium = <I as PointIndex>::Medium>,
{
    pub(super) fn check_all(&self, progress: &mut dyn FnMut(u64, u64)) -> Report {
        let guard = self.pool().pin();
        let mut findings = self.pool().verify_head();
        findings.extend(self.pool().verify_memory());
        findings.extend(self.index.verify(&guard));
        let (total, mut records) = (self.index.len(), 0);
        self.index.for_each(&guard, |word| {
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
        progress(records, records);
        let buckets = self.index.stats(&guard).buckets;
        Report { records, buckets, roots: self.pool().roots().len() as u64, findings }
    }
}

impl<I: PointIndex<Kind = Kind>> Direct<I> {
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
            }
        });
        if let Some(damage) = self.index.damage() {
            let found = "damage; keys that hang on it could not be reached".to_string();
            each(Err(Finding {
                offset: damage.offset,
                what: damage.what,
                expected: "a sound index".into(),
                found,
            }));
        }
    }
}

fn finding<M: terrace_medium::MappedMedium>(
    guard: &Guard<'_, M>,
    word: u64,
    offset: u64,
    what: &'static str,
) -> Finding {
    let found = match Record::at(guard, word) {
        Ok(record) => format!("damage in the record of key \"{}\"", shown(record.body.key)),
        Err(_) => format!("damage in the record at {word:#x}, whose key cannot be told"),
    };
    Finding { offset, what, expected: "a record that matches its checksum".into(), found }
}

/// A key as people can read it, cut after 60 bytes.
fn shown(key: &[u8]) -> String {
    let cut = &key[..key.len().min(60)];
    let dots = if cut.len() < key.len() { "..." } else { "" };
    format!("{}{dots}", cut.escape_ascii())
}
