//! Every invariant of the allocator that can be seen while nobody allocates or frees.

use crate::check::Finding;
use crate::pool::{Inner, Pool};
use crate::slabs::Holding;
use crate::zones::{Hint, State, Use, Zone};
use std::collections::HashSet;
use std::sync::atomic::Ordering::Relaxed;
use terrace_medium::MappedMedium;

/// Findings after which a walk stops: more of the same tell nothing.
const FINDINGS_MAX: usize = 1000;

impl<M: MappedMedium> Pool<M> {
    /// Checks the allocator: bitmaps, lists, counts, and how they agree. Nobody allocates or frees meanwhile. An empty result is a sound one.
    pub fn verify_memory(&self) -> Vec<Finding> {
        let mut findings = Vec::new();
        let inner = &*self.0;
        let listed = inner.verify_lists(&mut findings);
        for zone in inner.zones() {
            for unit in inner.units_in(&zone) {
                if findings.len() < FINDINGS_MAX {
                    inner.verify_unit(&zone, unit, &listed, &mut findings);
                }
            }
        }
        if self.faults() != 0 {
            let found = format!("{}", self.faults());
            findings.push(finding(self.layout().allocator, "no frees of free memory", "0", found));
        }
        findings
    }
}

impl<M: MappedMedium> Inner<M> {
    /// Walks the lists of slabs with free blocks. Returns the units in them.
    fn verify_lists(&self, findings: &mut Vec<Finding>) -> HashSet<u64> {
        let mut listed = HashSet::new();
        for (class, list) in self.shared().lists.iter().enumerate() {
            let mut next = list.head.load(self.medium(), Relaxed) & 0xffff_ffff;
            while let Some(unit) = next.checked_sub(1) {
                let start = self.memory.zones.start_of(unit);
                if self.unit_at(start).is_none() {
                    findings.push(finding(start, "a list of slabs", "a slab in the pool", "none"));
                    break;
                }
                if !listed.insert(unit) {
                    findings.push(finding(start, "a list of slabs", "each slab once", "a slab twice"));
                    break;
                }
                let state = State(self.unit(unit).state.load(self.medium(), Relaxed));
                if state != State::slab(self.era, class, Use::Listed) {
                    let expected = format!("a listed slab of class {class}");
                    findings.push(finding(start, "a list of slabs", expected, describe(state)));
                    break;
                }
                next = self.unit(unit).link.load(self.medium(), Relaxed) & 0xffff_ffff;
            }
        }
        listed
    }

    fn verify_unit(&self, zone: &Zone, unit: u64, listed: &HashSet<u64>, findings: &mut Vec<Finding>) {
        let entry = self.unit(unit);
        let start = self.memory.zones.start_of(unit);
        let (taken, old) = (entry.taken.load(self.medium(), Relaxed), entry.old.load(self.medium(), Relaxed));
        let state = State(entry.state.load(self.medium(), Relaxed));
        let head = self.memory.zones.head_granules(zone, unit);
        self.verify_hints(zone, unit, taken, findings);
        if taken & head != head {
            findings.push(finding(start, "a zone's head", format!("{head:#x} taken"), format!("{taken:#x}")));
        }
        if state.era() != self.era {
            return;
        }
        if old & !taken != 0 || (old != 0 && !self.is_pending()) {
            findings.push(finding(
                start,
                "old granules",
                "none that are free, none at all once collected",
                format!("{old:#x}"),
            ));
        }
        match state.class() {
            Some(class) => self.verify_slab(unit, class, state, taken, listed, findings),
            None if state.usage() != Use::Granules => {
                findings.push(finding(start, "a unit", "granules or a slab", describe(state)));
            }
            None => {}
        }
    }

    fn verify_hints(&self, zone: &Zone, unit: u64, taken: u64, findings: &mut Vec<Finding>) {
        let usable = self.memory.zones.usable(unit, self.size());
        let start = self.memory.zones.start_of(unit);
        let applies = [(Hint::Empty, taken == 0 && usable == !0), (Hint::Room, taken & usable != usable)];
        for (hint, applies) in applies {
            let (word, bit) = self.hint_word(hint, zone, unit);
            if applies && word.load(self.medium(), Relaxed) & bit == 0 {
                findings.push(finding(start, "the hints of a zone", "a bit for a unit with room", "none"));
            }
        }
    }

    fn verify_slab(
        &self,
        unit: u64,
        number: usize,
        state: State,
        taken: u64,
        listed: &HashSet<u64>,
        findings: &mut Vec<Finding>,
    ) {
        let start = self.memory.zones.start_of(unit);
        let mut found =
            |what, expected: &str, found: String| findings.push(finding(start, what, expected, found));
        let Some(class) = self.memory.classes.get(number) else {
            return found("a slab", "a class that there is", describe(state));
        };
        if taken != !0 {
            found("a slab", "all of its granules taken", format!("{taken:#x}"));
        }
        if listed.contains(&unit) != (state.usage() == Use::Listed) {
            found("a slab", "in its list exactly if it says so", describe(state));
        }
        match (state.usage(), self.holding(unit, class)) {
            (Use::Full, Holding::Some | Holding::Nothing) => {
                found("a slab in no list", "no free block", describe(state))
            }
            (Use::Granules | Use::Arriving, _) => found("a slab", "a use of slabs", describe(state)),
            (Use::Pending, _) if !self.is_pending() => found("a slab", "one of this era", describe(state)),
            _ => {}
        }
    }
}

fn describe(state: State) -> String {
    match state.class() {
        Some(class) => format!("a slab of class {class}, {:?}, era {}", state.usage(), state.era()),
        None => format!("{:?}, era {}", state.usage(), state.era()),
    }
}

fn finding(
    offset: u64,
    what: &'static str,
    expected: impl Into<String>,
    found: impl Into<String>,
) -> Finding {
    Finding { offset, what, expected: expected.into(), found: found.into() }
}
