//! Checks every invariant of the allocator that is visible while no thread allocates or frees.

use crate::allocator::slabs::Fill;
use crate::allocator::zones::{Hint, UnitState, UnitUse, Zone};
use crate::format::finding::Finding;
use crate::pool::{Inner, Pool};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::Ordering::Relaxed;
use terrace_medium::MappedMedium;

/// Findings after which a check stops: more of the same kind do not help.
const FINDINGS_MAX: usize = 1000;

impl<M: MappedMedium> Pool<M> {
    /// Checks the allocator: bitmaps, lists, counts, and how they agree. No thread may allocate or
    /// free meanwhile. An empty result means a sound pool.
    pub fn verify_memory(&self) -> Vec<Finding> {
        let mut findings = Vec::new();
        let inner = &*self.0;
        let listed = inner.verify_lists(&mut findings);
        let owned = inner.verify_caches(&mut findings);
        let mut used = Used::default();
        for zone in inner.zones() {
            for unit in inner.units_in(&zone) {
                if findings.len() < FINDINGS_MAX {
                    inner.verify_unit(&zone, unit, (&listed, &owned), &mut used, &mut findings);
                }
            }
        }
        if findings.is_empty() && inner.is_count_intact() {
            inner.verify_sums(&used, &mut findings);
        }
        if self.faults() != 0 && findings.is_empty() {
            let found = format!("{}", self.faults());
            findings.push(Finding::new(
                self.layout().allocator,
                "the count of invalid frees and damaged lists",
                "0",
                found,
            ));
        }
        findings
    }
}

/// Bytes that are allocated by the bitmaps.
#[derive(Default)]
struct Used {
    small: u64,
    large: u64,
}

/// Units in lists, and units in slot caches with the bytes of free blocks in each cache.
type Places<'v> = (&'v BTreeSet<u64>, &'v BTreeMap<u64, u64>);

impl<M: MappedMedium> Inner<M> {
    /// Checks the caches of all slots. Returns their units, and how many bytes of each are
    /// allocated in the bitmap but free in the cache.
    fn verify_caches(&self, findings: &mut Vec<Finding>) -> BTreeMap<u64, u64> {
        let mut owned = BTreeMap::new();
        for (index, slot) in self.used_slots().enumerate() {
            for (number, cache) in slot.caches.iter().enumerate().take(self.memory.classes.len()) {
                let place = cache.place.load(self.medium(), Relaxed);
                let Some(class) = self.memory.classes.get(number).filter(|_| place != 0) else { continue };
                let at = self.layout.thread_slot(index as u32);
                let Some(unit) = self.unit_at(place) else {
                    findings.push(Finding::new(
                        at,
                        "the cache of a thread slot",
                        "a slab in the pool",
                        format!("{place:#x}"),
                    ));
                    continue;
                };
                let state = self.predicted_state(unit);
                if state != UnitState::slab(self.open_seq, number, UnitUse::Owned) {
                    let expected = format!("an owned slab of class {number}");
                    findings.push(Finding::new(at, "the cache of a thread slot", expected, describe(state)));
                }
                let free = u64::from(cache.free.load(self.medium(), Relaxed).count_ones());
                if owned.insert(unit, free * u64::from(class.size)).is_some() {
                    let start = self.memory.zones.start_of(unit);
                    findings.push(Finding::new(start, "an owned slab", "one owner", "two thread slots"));
                }
            }
        }
        owned
    }

    fn verify_sums(&self, used: &Used, findings: &mut Vec<Finding>) {
        let shared = self.shared();
        let counted = [
            ("bytes in small blocks", used.small, self.sum(&shared.small_base, |slot| &slot.small_bytes)),
            ("bytes in extents", used.large, self.sum(&shared.large_base, |slot| &slot.large_bytes)),
        ];
        for (what, expected, found) in counted {
            if expected != found {
                findings.push(Finding::new(
                    self.layout.allocator,
                    what,
                    expected.to_string(),
                    found.to_string(),
                ));
            }
        }
    }

    /// Walks the lists of slabs with free blocks. Returns the units in them.
    fn verify_lists(&self, findings: &mut Vec<Finding>) -> BTreeSet<u64> {
        let mut listed = BTreeSet::new();
        for (class, list) in self.shared().lists.iter().enumerate() {
            let mut next = list.head.load(self.medium(), Relaxed) & 0xffff_ffff;
            while let Some(unit) = next.checked_sub(1) {
                let start = self.memory.zones.start_of(unit);
                if self.unit_at(start).is_none() {
                    findings.push(Finding::new(start, "a list of slabs", "a slab in the pool", "none"));
                    break;
                }
                if !listed.insert(unit) {
                    findings.push(Finding::new(start, "a list of slabs", "each slab once", "a slab twice"));
                    break;
                }
                let state = self.predicted_state(unit);
                if state != UnitState::slab(self.open_seq, class, UnitUse::Listed) {
                    let expected = format!("a listed slab of class {class}");
                    findings.push(Finding::new(start, "a list of slabs", expected, describe(state)));
                    break;
                }
                next = self.unit(unit).link.load(self.medium(), Relaxed) & 0xffff_ffff;
            }
        }
        listed
    }

    fn verify_unit(
        &self,
        zone: &Zone,
        unit: u64,
        places: Places<'_>,
        used: &mut Used,
        findings: &mut Vec<Finding>,
    ) {
        let entry = self.unit(unit);
        let start = self.memory.zones.start_of(unit);
        let (taken, old) = (entry.taken.load(self.medium(), Relaxed), entry.old.load(self.medium(), Relaxed));
        let (stored, state) =
            (UnitState(entry.state.load(self.medium(), Relaxed)), self.predicted_state(unit));
        let head = self.memory.zones.header_granules(zone, unit);
        if state.usage() == UnitUse::Quarantined {
            let (expected, found) = ("intact metadata", "damage");
            let found = Finding::new(start, "the description of a memory unit", expected, found);
            return findings.push(found.with_bytes(1 << self.memory.zones.slab_log2));
        }
        self.verify_hints(zone, unit, taken, findings);
        if taken & head != head {
            findings.push(Finding::new(
                start,
                "the granules of a zone's header",
                format!("{head:#x} taken"),
                format!("{taken:#x}"),
            ));
        }
        if state.open_seq() != self.open_seq {
            return;
        }
        let old = if stored.open_seq() == self.open_seq { old } else { 0 };
        if old & !taken != 0 || (old != 0 && !self.needs_collection()) {
            findings.push(Finding::new(
                start,
                "the old granules of a unit",
                "only taken ones, and none after a collection",
                format!("{old:#x}"),
            ));
        }
        match state.class() {
            Some(class) => used.small += self.verify_slab(unit, class, (state, taken), places, findings),
            None if state.usage() != UnitUse::Granules && !self.is_collection_pending() => {
                findings.push(Finding::new(start, "a unit", "granules or a slab", describe(state)));
            }
            None => {
                // Written after the bits by the thread that takes them. If it died in between, the
                // next collection frees them.
                let link = entry.link.load(self.medium(), Relaxed);
                if link != taken & !head && !self.needs_collection() {
                    let expected = format!("{:#x}", taken & !head);
                    findings.push(Finding::new(
                        start,
                        "the copy of a unit's granule bits",
                        expected,
                        format!("{link:#x}"),
                    ));
                }
                let usable = self.memory.zones.usable(unit, self.size());
                let granules = u64::from((taken & !head & usable).count_ones());
                used.large += granules << self.memory.zones.granule_log2();
            }
        }
    }

    fn verify_hints(&self, zone: &Zone, unit: u64, taken: u64, findings: &mut Vec<Finding>) {
        let usable = self.memory.zones.usable(unit, self.size());
        let start = self.memory.zones.start_of(unit);
        let applies = [(Hint::Empty, taken == 0 && usable == !0), (Hint::Room, taken & usable != usable)];
        for (hint, applies) in applies {
            let (word, bit) = self.hint_word(hint, zone, unit);
            if applies && word.load(self.medium(), Relaxed) & bit == 0 {
                findings.push(Finding::new(
                    start,
                    "the hints of a zone",
                    "a set bit for a unit with room",
                    "a clear bit",
                ));
            }
        }
    }

    /// Checks a slab. Returns the bytes of its blocks.
    fn verify_slab(
        &self,
        unit: u64,
        number: usize,
        (state, taken): (UnitState, u64),
        (listed, owned): Places<'_>,
        findings: &mut Vec<Finding>,
    ) -> u64 {
        let start = self.memory.zones.start_of(unit);
        let mut found =
            |what, expected: &str, found: String| findings.push(Finding::new(start, what, expected, found));
        let Some(class) = self.memory.classes.get(number) else {
            found("a slab", "a valid class", describe(state));
            return 0;
        };
        if taken != !0 {
            found("a slab", "all of its granules taken", format!("{taken:#x}"));
        }
        // After a crash the next collection deals with the dead thread's slabs.
        let is_pending = self.is_collection_pending();
        if !is_pending && listed.contains(&unit) != (state.usage() == UnitUse::Listed) {
            found("a slab", "to be in its list if and only if its state is Listed", describe(state));
        }
        if !is_pending && owned.contains_key(&unit) != (state.usage() == UnitUse::Owned) {
            found("a slab", "to be in a slot's cache if and only if its state is Owned", describe(state));
        }
        match (state.usage(), self.fill(unit, class)) {
            (UnitUse::Full, Fill::Partial | Fill::Empty) if !is_pending => {
                found("a slab in no list", "no free block", describe(state));
            }
            (UnitUse::Granules | UnitUse::Revalidating, _) if !is_pending => {
                found("a slab", "a use that slabs have", describe(state))
            }
            (UnitUse::Unclean, _) if !self.is_unclean() => {
                found("a slab", "no unclean slab after a collection", describe(state))
            }
            _ => {}
        }
        let blocks = self.count_blocks(unit, class) * u64::from(class.size);
        blocks.saturating_sub(owned.get(&unit).copied().unwrap_or(0))
    }
}

fn describe(state: UnitState) -> String {
    match state.class() {
        Some(class) => {
            format!("a slab of class {class}, {:?}, open sequence {}", state.usage(), state.open_seq())
        }
        None => format!("{:?}, open sequence {}", state.usage(), state.open_seq()),
    }
}

#[cfg(test)]
#[path = "tests/verify.rs"]
mod tests;
