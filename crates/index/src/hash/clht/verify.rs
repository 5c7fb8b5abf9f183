//! Checks every invariant that is visible while no thread writes.

use super::bucket::link;
use super::ops::Clht;
use super::scan::end_of;
use super::shape::{BucketShape, Entry};
use super::table::*;
use terrace_medium::{Line, MappedMedium};
use terrace_pool::{Finding, Guard};

/// Findings after which a walk stops: more of the same say nothing new.
const FINDINGS_MAX: usize = 1000;

impl<M: MappedMedium, K: BucketShape> Clht<M, K> {
    pub(super) fn findings(&self, guard: &Guard<'_, M>) -> Vec<Finding> {
        let mut findings = Vec::new();
        let (mut position, mut keys) = (0u64, 0);
        loop {
            let table = self.table_of(position);
            let index = table.index(position);
            keys += self.verify_chain(guard, table, index, &mut findings);
            position = end_of(table, index);
            if position == 0 || findings.len() > FINDINGS_MAX {
                break;
            }
        }
        if let Some(damage) = crate::PointIndex::damage(self) {
            findings.push(finding(damage.offset, "an undamaged index", damage.what));
        }
        let counted = self.count().len();
        if findings.is_empty() && counted != keys {
            findings.push(finding(
                self.stripes.offset().raw(),
                format!("a count of {keys} keys"),
                format!("{counted}"),
            ));
        }
        findings
    }

    /// Checks one chain and returns its number of keys.
    fn verify_chain(
        &self,
        guard: &Guard<'_, M>,
        table: Table,
        index: u64,
        findings: &mut Vec<Finding>,
    ) -> u64 {
        let region = self.pool.region();
        let head = region.at(table.bucket(index));
        let mut entries: Vec<(u64, Entry)> = Vec::new();
        let _ = self.walk(head, |bucket| -> Option<()> {
            self.verify_link(bucket, findings);
            let offset = region.offset_of(bucket).raw();
            entries.extend(
                (0..K::SLOTS).filter_map(|slot| K::read(guard, bucket, slot)).map(|entry| (offset, entry)),
            );
            None
        });
        for (i, &(offset, entry)) in entries.iter().enumerate() {
            self.verify_entry(guard, (table, index), offset, entry, findings);
            if entries[..i].iter().any(|&(_, earlier)| K::same_key(guard, earlier, entry)) {
                findings.push(finding(
                    offset,
                    "each key once",
                    format!("a second entry for the key of {:#x}", entry.word),
                ));
            }
        }
        entries.len() as u64
    }

    fn verify_link(&self, bucket: &Line, findings: &mut Vec<Finding>) {
        let region = self.pool.region();
        let next = link(region.medium(), bucket).next();
        if !next.is_null() && region.get(next).is_none() {
            let offset = region.offset_of(bucket).raw();
            findings.push(finding(offset, "a next bucket in the pool", format!("{:#x}", next.raw())));
        }
    }

    fn verify_entry(
        &self,
        guard: &Guard<'_, M>,
        (table, index): (Table, u64),
        offset: u64,
        entry: Entry,
        findings: &mut Vec<Finding>,
    ) {
        let Some(hash) = K::hash_of(guard, entry, self.seed) else {
            return findings.push(finding(offset, "a sound record", format!("none at {:#x}", entry.word)));
        };
        if table.index(hash) != index {
            let expected = format!("keys of bucket {index}");
            findings.push(finding(
                offset,
                expected,
                format!("one of bucket {} (record {:#x})", table.index(hash), entry.word),
            ));
        }
        let key = K::key_in(hash, entry, table);
        if entry.key != key {
            findings.push(finding(
                offset,
                format!("{key:#x}, from its key's hash"),
                format!("{:#x}", entry.key),
            ));
        }
    }
}

fn finding(offset: u64, expected: impl Into<String>, found: impl Into<String>) -> Finding {
    Finding::new(offset, "hash table", expected, found)
}
