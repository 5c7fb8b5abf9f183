//! Checks every invariant that is visible while no thread writes.

use super::bucket::{Bucket, meta};

use super::root::*;
use super::shape::{BucketShape, Entry, positions};
use super::units::Units;
use terrace_medium::{MappedMedium, Offset};
use terrace_pool::{Finding, Guard};

/// Findings after which a walk stops: more of the same say nothing new.
const FINDINGS_MAX: usize = 1000;

/// A slot with a token.
#[derive(Clone, Copy)]
struct Occupied {
    slot: usize,
    entry: Entry,
    is_marked: bool,
}

impl<M: MappedMedium, K: BucketShape> Units<M, K> {
    pub(super) fn findings(&self, guard: &Guard<'_, M>) -> Vec<Finding> {
        let (mut findings, mut keys, mut position) = (Vec::new(), 0, 0);
        let view = self.view();
        loop {
            let side = self.side(&view, position);
            keys += self.verify_unit(guard, &view, &side, &mut findings);
            position = side.end();
            if position == 0 || findings.len() > FINDINGS_MAX {
                break;
            }
        }
        if let Some(damage) = self.damage.get() {
            findings.push(finding(damage.offset, "an undamaged index", damage.what));
        }
        let counted = self.count().len();
        if findings.is_empty() && counted != keys {
            let expected = format!("a count of {keys} keys");
            findings.push(finding(self.stripes.offset().raw(), expected, format!("{counted}")));
        }
        findings
    }

    /// Checks a unit and returns its number of keys, without those that also lie later.
    fn verify_unit(
        &self,
        guard: &Guard<'_, M>,
        view: &View,
        side: &Side,
        findings: &mut Vec<Finding>,
    ) -> u64 {
        let mut keys = 0;
        for at in side.unit() {
            self.verify_meta(at, findings);
            for held in self.occupied(guard, at) {
                let is_second = self.verify_entry(guard, view, (side, at), held, findings);
                keys += u64::from(!is_second);
            }
        }
        keys
    }

    fn verify_meta(&self, at: Offset<Bucket>, findings: &mut Vec<Finding>) {
        let now = meta(self.pool.medium(), self.bucket(at));
        let mut expect = |is_so: bool, expected: &str| {
            if !is_so {
                findings.push(finding(at.raw(), expected, format!("{:#x}", now.0)));
            }
        };
        expect(K::is_sealed(now.0), "a meta word that fits its check");
        expect(now.marks::<K>() & !now.tokens::<K>() == 0, "only slots with a key marked");
        expect(!now.uses_upper::<K>(), "a unit that uses this bucket");
    }

    fn occupied(&self, guard: &Guard<'_, M>, at: Offset<Bucket>) -> Vec<Occupied> {
        let bucket = self.bucket(at);
        let marks = meta(self.pool.medium(), bucket).marks::<K>();
        let held = |slot: usize| {
            let entry = K::read(guard, bucket, slot)?;
            Some(Occupied { slot, entry, is_marked: marks >> slot & 1 == 1 })
        };
        (0..K::SLOTS).filter_map(held).collect()
    }

    /// Checks an entry. Returns whether it is the copy of a key that also lies later.
    fn verify_entry(
        &self,
        guard: &Guard<'_, M>,
        view: &View,
        (side, at): (&Side, Offset<Bucket>),
        held: Occupied,
        findings: &mut Vec<Finding>,
    ) -> bool {
        let entry = held.entry;
        let Some(hash) = K::hash_of(guard, entry, self.seed) else {
            let found = format!("none at {:#x}", entry.word);
            findings.push(finding(at.raw(), "a sound record", found));
            return false;
        };
        let places = positions(hash).map(|position| self.side(view, position));
        if !places.iter().any(|place| [place.upper_at(), place.lower_at()].contains(&at)) {
            let found = format!("one that is looked for elsewhere: {:#x}", entry.word);
            findings.push(finding(at.raw(), "keys of this bucket", found));
        }
        if K::tag(entry, self.seed) != super::shape::tag_of(hash) {
            let expected = format!("the tag {:#x}, from its key's hash", super::shape::tag_of(hash));
            findings.push(finding(at.raw(), expected, format!("{:#x}", K::tag(entry, self.seed))));
        }
        self.verify_once(guard, view, (side, at), held, findings)
    }

    /// Checks that the key of an entry lies once, or is one of two marked copies with one word.
    /// Returns whether the entry is a copy of a key that also lies later.
    fn verify_once(
        &self,
        guard: &Guard<'_, M>,
        view: &View,
        (side, at): (&Side, Offset<Bucket>),
        held: Occupied,
        findings: &mut Vec<Finding>,
    ) -> bool {
        let entry = held.entry;
        let twice = |found: &mut Vec<Finding>| {
            let what = format!("a second entry for the key of {:#x}", entry.word);
            found.push(finding(at.raw(), "each key once", what));
        };
        let here = self.occupied(guard, at);
        if here.iter().any(|other| other.slot != held.slot && K::same_key(guard, other.entry, entry)) {
            twice(findings);
        }
        match self.other_copy(guard, view, side, at, entry) {
            Some((bucket, is_further_on)) if held.is_marked => {
                let other = self.copy_in(guard, bucket, entry);
                if other.is_some_and(|other| other.word != entry.word) {
                    let found = format!("{:#x} and {other:x?}", entry.word);
                    findings.push(finding(at.raw(), "two copies with one word", found));
                }
                is_further_on
            }
            Some(_) => {
                twice(findings);
                false
            }
            None => false,
        }
    }
}

fn finding(offset: u64, expected: impl Into<String>, found: impl Into<String>) -> Finding {
    Finding::new(offset, "hash table", expected, found)
}
