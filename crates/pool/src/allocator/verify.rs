//! Checks every invariant of the allocator that is visible while no thread allocates or frees.

use crate::allocator::bitmaps::Fill;
use crate::allocator::heap::Heap;
use crate::allocator::units::Units;
use crate::allocator::zones::{Hint, UnitState, UnitUse, Zone};
use crate::base::Base;
use crate::format::finding::Finding;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::Ordering::Relaxed;
use terrace_medium::MappedMedium;

/// Findings after which a check stops: more of the same kind do not help.
const FINDINGS_MAX: usize = 1000;

/// Bytes that are allocated by the bitmaps.
#[derive(Default)]
struct Used {
    small: u64,
    large: u64,
}

/// Units in lists, and units in slot caches with the bytes of free blocks in each cache.
type Places<'v> = (&'v BTreeSet<u64>, &'v BTreeMap<u64, u64>);

/// Checks a heap that no thread uses meanwhile. Owns what it found; stands on [`Heap`].
pub(crate) struct Verifier<'h, M: MappedMedium> {
    heap: &'h Heap<M>,
    findings: Vec<Finding>,
    used: Used,
}

impl<'h, M: MappedMedium> Verifier<'h, M> {
    pub(crate) fn new(heap: &'h Heap<M>) -> Self {
        Self { heap, findings: Vec::new(), used: Used::default() }
    }

    /// Checks everything, and returns the violations.
    pub(crate) fn run(mut self) -> Vec<Finding> {
        let heap = self.heap;
        let listed = self.verify_lists();
        let owned = self.verify_caches();
        for zone in heap.units().zones() {
            for unit in heap.units().units_in(&zone) {
                if self.findings.len() < FINDINGS_MAX {
                    self.verify_unit(&zone, unit, (&listed, &owned));
                }
            }
        }
        if self.findings.is_empty() && heap.base().is_count_intact() {
            self.verify_sums();
        }
        self.findings
    }

    fn medium(&self) -> &'h M {
        self.heap.medium()
    }

    fn base(&self) -> &'h Base<M> {
        self.heap.base()
    }

    fn units(&self) -> &'h Units<M> {
        self.heap.units()
    }

    /// Checks the caches of all slots. Returns their units, and how many bytes of each are
    /// allocated in the bitmap but free in the cache.
    fn verify_caches(&mut self) -> BTreeMap<u64, u64> {
        let mut owned = BTreeMap::new();
        for (index, slot) in self.base().used_slots().enumerate() {
            for (number, cache) in slot.caches.iter().enumerate().take(self.units().classes.len()) {
                let place = cache.place.load(self.medium(), Relaxed);
                let Some(class) = self.units().classes.get(number).filter(|_| place != 0) else { continue };
                let at = self.base().layout.thread_slot(index as u32);
                let Some(unit) = self.units().unit_at(place) else {
                    self.findings.push(Finding::new(
                        at,
                        "the cache of a thread slot",
                        "a slab in the pool",
                        format!("{place:#x}"),
                    ));
                    continue;
                };
                let state = self.units().predicted_state(unit);
                if state != UnitState::slab(self.base().open_seq, number, UnitUse::Owned) {
                    let expected = format!("an owned slab of class {number}");
                    self.findings.push(Finding::new(
                        at,
                        "the cache of a thread slot",
                        expected,
                        describe(state),
                    ));
                }
                let free = u64::from(cache.free.load(self.medium(), Relaxed).count_ones());
                if owned.insert(unit, free * u64::from(class.size)).is_some() {
                    let start = self.units().zones.start_of(unit);
                    self.findings.push(Finding::new(start, "an owned slab", "one owner", "two thread slots"));
                }
            }
        }
        owned
    }

    fn verify_sums(&mut self) {
        let shared = self.base().shared();
        let counted = [
            (
                "bytes in small blocks",
                self.used.small,
                self.base().sum(&shared.small_base, |slot| &slot.small_bytes),
            ),
            (
                "bytes in extents",
                self.used.large,
                self.base().sum(&shared.large_base, |slot| &slot.large_bytes),
            ),
        ];
        for (what, expected, found) in counted {
            if expected != found {
                self.findings.push(Finding::new(
                    self.base().layout.allocator,
                    what,
                    expected.to_string(),
                    found.to_string(),
                ));
            }
        }
    }

    /// Walks the lists of slabs with free blocks. Returns the units in them.
    fn verify_lists(&mut self) -> BTreeSet<u64> {
        let mut listed = BTreeSet::new();
        for (class, list) in self.base().shared().lists.iter().enumerate() {
            let mut next = list.head.load(self.medium(), Relaxed) & 0xffff_ffff;
            while let Some(unit) = next.checked_sub(1) {
                let start = self.units().zones.start_of(unit);
                if self.units().unit_at(start).is_none() {
                    self.findings.push(Finding::new(start, "a list of slabs", "a slab in the pool", "none"));
                    break;
                }
                if !listed.insert(unit) {
                    self.findings.push(Finding::new(
                        start,
                        "a list of slabs",
                        "each slab once",
                        "a slab twice",
                    ));
                    break;
                }
                let state = self.units().predicted_state(unit);
                if state != UnitState::slab(self.base().open_seq, class, UnitUse::Listed) {
                    let expected = format!("a listed slab of class {class}");
                    self.findings.push(Finding::new(start, "a list of slabs", expected, describe(state)));
                    break;
                }
                next = self.units().unit(unit).link.load(self.medium(), Relaxed) & 0xffff_ffff;
            }
        }
        listed
    }

    fn verify_unit(&mut self, zone: &Zone, unit: u64, places: Places<'_>) {
        let entry = self.units().unit(unit);
        let start = self.units().zones.start_of(unit);
        let (taken, old) = (entry.taken.load(self.medium(), Relaxed), entry.old.load(self.medium(), Relaxed));
        let (stored, state) =
            (UnitState(entry.state.load(self.medium(), Relaxed)), self.units().predicted_state(unit));
        let head = self.units().zones.header_granules(zone, unit);
        if state.usage() == UnitUse::Quarantined {
            let (expected, found) = ("intact metadata", "damage");
            let found = Finding::new(start, "the description of a memory unit", expected, found);
            return self.findings.push(found.with_bytes(1 << self.units().zones.slab_log2));
        }
        self.verify_hints(zone, unit, taken);
        if taken & head != head {
            self.findings.push(Finding::new(
                start,
                "the granules of a zone's header",
                format!("{head:#x} taken"),
                format!("{taken:#x}"),
            ));
        }
        if state.open_seq() != self.base().open_seq {
            return;
        }
        let old = if stored.open_seq() == self.base().open_seq { old } else { 0 };
        if old & !taken != 0 || (old != 0 && !self.base().needs_collection()) {
            self.findings.push(Finding::new(
                start,
                "the old granules of a unit",
                "only taken ones, and none after a collection",
                format!("{old:#x}"),
            ));
        }
        match state.class() {
            Some(class) => self.used.small += self.verify_slab(unit, class, (state, taken), places),
            None if state.usage() != UnitUse::Granules && !self.base().is_collection_pending() => {
                self.findings.push(Finding::new(start, "a unit", "granules or a slab", describe(state)));
            }
            None => self.used.large += self.verify_granules(unit, taken & !head),
        }
    }

    /// Checks a unit that is no slab. Returns the bytes of its granules in `taken`.
    fn verify_granules(&mut self, unit: u64, taken: u64) -> u64 {
        // Written after the bits by the thread that takes them. If it died in between, the next
        // collection frees them.
        let link = self.units().unit(unit).link.load(self.medium(), Relaxed);
        if link != taken && !self.base().needs_collection() {
            self.findings.push(Finding::new(
                self.units().zones.start_of(unit),
                "the copy of a unit's granule bits",
                format!("{taken:#x}"),
                format!("{link:#x}"),
            ));
        }
        let usable = self.units().zones.usable(unit, self.base().size());
        u64::from((taken & usable).count_ones()) << self.units().zones.granule_log2()
    }

    fn verify_hints(&mut self, zone: &Zone, unit: u64, taken: u64) {
        let usable = self.units().zones.usable(unit, self.base().size());
        let start = self.units().zones.start_of(unit);
        let applies = [(Hint::Empty, taken == 0 && usable == !0), (Hint::Room, taken & usable != usable)];
        for (hint, applies) in applies {
            let (word, bit) = self.units().hint_word(hint, zone, unit);
            if applies && word.load(self.medium(), Relaxed) & bit == 0 {
                self.findings.push(Finding::new(
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
        &mut self,
        unit: u64,
        number: usize,
        (state, taken): (UnitState, u64),
        (listed, owned): Places<'_>,
    ) -> u64 {
        let (units, base) = (self.units(), self.base());
        let start = units.zones.start_of(unit);
        let mut found = |what, expected: &str, found: String| {
            self.findings.push(Finding::new(start, what, expected, found))
        };
        let Some(class) = units.classes.get(number) else {
            found("a slab", "a valid class", describe(state));
            return 0;
        };
        if taken != !0 {
            found("a slab", "all of its granules taken", format!("{taken:#x}"));
        }
        // After a crash the next collection deals with the dead thread's slabs.
        let is_pending = base.is_collection_pending();
        if !is_pending && listed.contains(&unit) != (state.usage() == UnitUse::Listed) {
            found("a slab", "to be in its list if and only if its state is Listed", describe(state));
        }
        if !is_pending && owned.contains_key(&unit) != (state.usage() == UnitUse::Owned) {
            found("a slab", "to be in a slot's cache if and only if its state is Owned", describe(state));
        }
        match (state.usage(), units.fill(unit, class)) {
            (UnitUse::Full, Fill::Partial | Fill::Empty) if !is_pending => {
                found("a slab in no list", "no free block", describe(state));
            }
            (UnitUse::Granules | UnitUse::Revalidating, _) if !is_pending => {
                found("a slab", "a use that slabs have", describe(state))
            }
            (UnitUse::Unclean, _) if !base.is_unclean() => {
                found("a slab", "no unclean slab after a collection", describe(state))
            }
            _ => {}
        }
        let blocks = units.count_blocks(unit, class) * u64::from(class.size);
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
