//! Checks every invariant that is visible while no thread writes.

use super::bucket::{SlotLock, has_overflowed, meta, tag_of};
use super::place::Place;
use super::shape::{BucketShape, Entry};
use super::tables::DataTables;
use super::view::Directory;
use std::sync::atomic::Ordering::Relaxed;
use terrace_medium::MappedMedium;
use terrace_pool::{Finding, Guard};

/// Findings after which a walk stops: more of the same say nothing new.
const FINDINGS_MAX: usize = 1000;

/// An entry, its place, and whether its slot is locked: then the key may be there twice.
struct SeenEntry {
    entry: Entry,
    at: u64,
    is_locked: bool,
}

impl<M: MappedMedium, K: BucketShape> DataTables<M, K> {
    pub(super) fn findings(&self, guard: &Guard<'_, M>) -> Vec<Finding> {
        let (mut findings, mut met) = (Vec::new(), Vec::new());
        let view = self.base.view();
        if !view.is_sound(self.base.pool.region().refreshed_len()) {
            return vec![finding(view.offset.raw(), "a view that fits its check", "another")];
        }
        let directory = view.directory();
        let mut left = view.count();
        for place in directory.all() {
            let is_left = directory.tables(directory.moving).any(|(table, _)| table == place);
            for index in 0..place.buckets() {
                let is_done = is_left && index < left;
                self.verify_bucket(guard, &directory, (place, index, is_done), &mut met, &mut findings);
                if findings.len() > FINDINGS_MAX {
                    return findings;
                }
            }
            left = left.saturating_sub(if is_left { place.buckets() } else { 0 });
        }
        findings.extend(directory.spare().and_then(|spare| self.verify_spare(spare, view.count())));
        let keys = met.len() as u64;
        self.verify_once(guard, &mut met, &mut findings);
        if findings.is_empty() && self.base.count_keys() != keys {
            let at = self.base.stripe_lines.offset().raw();
            findings.push(finding(
                at,
                format!("a count of {keys} keys"),
                format!("{}", self.base.count_keys()),
            ));
        }
        if let Some(damage) = self.damage.get() {
            findings.push(finding(damage.offset, "an undamaged index", damage.what));
        }
        findings
    }

    /// Checks the buckets of a spare that are cleared.
    fn verify_spare(&self, spare: Place, cleared: u64) -> Option<Finding> {
        let words = |index| self.base.bucket(spare, index)[0].0.iter();
        let is_clear =
            |&index: &u64| words(index).all(|word| word.load(self.base.pool.medium(), Relaxed) == 0);
        let index = (0..cleared.min(spare.buckets())).find(|index| !is_clear(index))?;
        Some(finding(spare.bucket(index).raw(), "an empty bucket of the spare table", "one that is not"))
    }

    /// Checks a bucket, and collects its entries.
    fn verify_bucket(
        &self,
        guard: &Guard<'_, M>,
        directory: &Directory,
        (place, index, is_done): (Place, u64, bool),
        met: &mut Vec<SeenEntry>,
        findings: &mut Vec<Finding>,
    ) {
        let (medium, bucket) = (self.base.pool.medium(), self.base.bucket(place, index));
        let (at, now) = (place.bucket(index).raw(), meta(medium, bucket));
        if !K::is_sealed(now.0) {
            findings.push(finding(at, "a meta word that fits its check", format!("{:#x}", now.0)));
        }
        for slot in 0..K::SLOTS {
            let Some(entry) = K::read(guard, bucket, slot) else { continue };
            let is_locked = match now.slot_lock::<K>() {
                SlotLock::None => false,
                SlotLock::Slot(locked) => locked == slot,
                SlotLock::Moving => self.leaves(directory, place, entry),
            };
            met.push(SeenEntry { entry, at, is_locked });
            if is_done && self.leaves(directory, place, entry) {
                findings.push(finding(at, "no key that has moved", format!("{:#x}", entry.word)));
            }
            let tag = tag_of(medium, bucket, slot);
            self.verify_entry(guard, directory, (place, index), (entry, tag), findings);
        }
    }

    /// Checks record, tag and place of an entry.
    fn verify_entry(
        &self,
        guard: &Guard<'_, M>,
        directory: &Directory,
        (place, index): (Place, u64),
        (entry, tag): (Entry, u8),
        findings: &mut Vec<Finding>,
    ) {
        let at = place.bucket(index).raw();
        let Some(hash) = K::hash_of(guard, entry, self.seed) else {
            return findings.push(finding(at, "a sound record", format!("none at {:#x}", entry.word)));
        };
        if hash as u8 != tag {
            let expected = format!("the tag {:#x}, from its key's hash", hash as u8);
            findings.push(finding(at, expected, format!("{tag:#x}")));
        }
        if !self.is_in_place(directory, place, index, entry, hash) {
            let found = format!("one of another: {:#x}", entry.word);
            findings.push(finding(at, "a key of this bucket", found));
        }
    }

    /// Whether searches for a key with this hash visit the bucket, as its first or second as the
    /// entry says.
    fn is_in_place(&self, directory: &Directory, place: Place, index: u64, entry: Entry, hash: u64) -> bool {
        let cell = super::shape::cell_of(hash);
        let is_table = directory.cells[cell] == place
            || (directory.to == Some(place) && directory.moving >> cell & 1 == 1);
        let home = place.home(hash);
        let expected =
            if K::is_second(entry, place, index, self.seed) { place.second(home, hash as u8) } else { home };
        let first = self.base.bucket(place, home);
        let is_said = index == home || has_overflowed::<M, K>(self.base.pool.medium(), first, hash as u8);
        is_table && index == expected && is_said
    }

    /// Looks for entries with the same key, none of which is moving.
    fn verify_once(&self, guard: &Guard<'_, M>, met: &mut [SeenEntry], findings: &mut Vec<Finding>) {
        sort::<K>(met);
        for alike in met.chunk_by(|one, other| K::sort_key(one.entry) == K::sort_key(other.entry)) {
            for (nth, one) in alike.iter().enumerate() {
                let is_same = |other: &SeenEntry| K::same_key(guard, other.entry, one.entry);
                let same: Vec<&SeenEntry> = alike[..nth].iter().filter(|other| is_same(other)).collect();
                let is_on_its_way = same.len() == 1 && (same[0].is_locked != one.is_locked);
                if !same.is_empty() && !is_on_its_way {
                    let found = format!("a second entry for the key of {:#x}", one.entry.word);
                    findings.push(finding(one.at, "each key once", found));
                }
            }
        }
    }
}

/// Not in the method, which would compile the sort for each medium.
fn sort<K: BucketShape>(met: &mut [SeenEntry]) {
    met.sort_by_key(|met| K::sort_key(met.entry));
}

fn finding(offset: u64, expected: impl Into<String>, found: impl Into<String>) -> Finding {
    Finding::new(offset, "hash table", expected, found)
}

#[cfg(test)]
#[path = "tests/verify.rs"]
mod tests;
