//! Checks every invariant that is visible while no thread writes.

use super::bucket::{continues, meta, tag_of};
use super::directory::Place;
use super::ops::Turbo;
use super::shape::{BucketShape, Entry};
use std::ops::ControlFlow;
use terrace_medium::MappedMedium;
use terrace_pool::{Finding, Guard};

/// Findings after which a walk stops: more of the same say nothing new.
const FINDINGS_MAX: usize = 1000;

impl<M: MappedMedium, K: BucketShape> Turbo<M, K> {
    pub(super) fn findings(&self, guard: &Guard<'_, M>) -> Vec<Finding> {
        let mut findings = Vec::new();
        for shard in 0..self.shards() {
            self.verify_shard(guard, shard, &mut findings);
            if findings.len() > FINDINGS_MAX {
                break;
            }
        }
        if let Some(damage) = crate::PointIndex::damage(self) {
            findings.push(finding(damage.offset, "an undamaged index", damage.what));
        }
        findings
    }

    fn verify_shard(&self, guard: &Guard<'_, M>, shard: usize, findings: &mut Vec<Finding>) {
        let medium = self.pool.medium();
        let at = self.descriptors.offset().element(shard as u64).raw();
        let (place, durable) = (self.place(shard), self.descriptor(shard).place(medium));
        if place != durable {
            let told = |place: Place| format!("{:#x}", place.word());
            return findings.push(finding(at, told(durable), told(place)));
        }
        if !place.is_sound(self.pool.region().refreshed_len()) {
            return findings.push(finding(at, "a shard in the pool", format!("{:#x}", place.word())));
        }
        let mut entries: Vec<(u64, Entry)> = Vec::new();
        for index in 0..place.buckets() {
            self.verify_bucket(guard, (shard, place, index), &mut entries, findings);
        }
        self.verify_once(guard, place, &mut entries, findings);
        let counted = self.descriptor(shard).keys(medium);
        if findings.is_empty() && counted != entries.len() as u64 {
            findings.push(finding(at, format!("a count of {} keys", entries.len()), format!("{counted}")));
        }
    }

    /// Checks a bucket, and collects its entries with their buckets' numbers.
    fn verify_bucket(
        &self,
        guard: &Guard<'_, M>,
        (shard, place, index): (usize, Place, u64),
        entries: &mut Vec<(u64, Entry)>,
        findings: &mut Vec<Finding>,
    ) {
        let (medium, bucket) = (self.pool.medium(), self.bucket(place, index));
        let (at, now) = (place.bucket(index).raw(), meta(medium, bucket));
        if !K::is_sealed(now.0) {
            findings.push(finding(at, "a meta word that fits its check", format!("{:#x}", now.0)));
        }
        if now.deleted::<K>() & now.live::<K>() != 0 {
            findings.push(finding(at, "no slot both live and deleted", format!("{:#x}", now.0)));
        }
        K::for_each(guard, bucket, |slot, entry| {
            entries.push((index, entry));
            let tag = tag_of(medium, bucket, slot);
            self.verify_entry(guard, (shard, place, index), (entry, tag), findings);
            ControlFlow::Continue(())
        });
    }

    /// Checks record, tag and place of an entry.
    fn verify_entry(
        &self,
        guard: &Guard<'_, M>,
        (shard, place, index): (usize, Place, u64),
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
        let (home_shard, inner) = self.route(hash);
        let drawn = K::inner(entry, self.seed, self.shard_bits());
        if home_shard != shard || place.home(inner) != place.home(drawn) {
            let expected = format!("keys of shard {shard}, with their homes");
            findings.push(finding(at, expected, format!("one of shard {home_shard}: {:#x}", entry.word)));
        } else if !self.leads_to(place, place.home(inner), index, tag) {
            let expected = format!("a path from the home {} on", place.home(inner));
            findings.push(finding(at, expected, format!("a path that ends before bucket {index}")));
        }
    }

    /// Whether a search for this tag reaches `index` from `home`.
    fn leads_to(&self, place: Place, home: u64, index: u64, tag: u8) -> bool {
        let (medium, mut at) = (self.pool.medium(), home);
        while at != index {
            let bucket = self.bucket(place, at);
            if !continues::<M, K>(medium, bucket, meta(medium, bucket), tag) {
                return false;
            }
            at = place.next(at);
        }
        true
    }

    /// Looks for entries with the same key.
    fn verify_once(
        &self,
        guard: &Guard<'_, M>,
        place: Place,
        entries: &mut [(u64, Entry)],
        findings: &mut Vec<Finding>,
    ) {
        let looks = |entry| looks::<K>(entry, self.seed, self.shard_bits());
        sort_by_looks::<K>(entries, self.seed, self.shard_bits());
        for alike in entries.chunk_by(|one, other| looks(one.1) == looks(other.1)) {
            for (nth, &(index, entry)) in alike.iter().enumerate() {
                if alike[..nth].iter().any(|&(_, other)| K::same_key(guard, other, entry)) {
                    let found = format!("a second entry for the key of {:#x}", entry.word);
                    findings.push(finding(place.bucket(index).raw(), "each key once", found));
                }
            }
        }
    }
}

/// What entries with the same key have in common.
fn looks<K: BucketShape>(entry: Entry, seed: u64, shard_bits: u32) -> (u64, u8) {
    (K::inner(entry, seed, shard_bits), entry.tag)
}

/// Not in the method, which would compile the sort for each medium.
fn sort_by_looks<K: BucketShape>(entries: &mut [(u64, Entry)], seed: u64, shard_bits: u32) {
    entries.sort_by_key(|&(_, entry)| looks::<K>(entry, seed, shard_bits));
}

fn finding(offset: u64, expected: impl Into<String>, found: impl Into<String>) -> Finding {
    Finding::new(offset, "hash table", expected, found)
}
