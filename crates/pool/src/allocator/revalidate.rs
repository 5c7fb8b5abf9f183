//! Revalidation: how a unit is checked and made usable on its first use after an open.
//!
//! Each open has an open sequence number. A unit's description carries the number of the open that
//! wrote it. On its first use after a later open it is revalidated, once:
//!
//! ```text
//!   how the pool was left   the unit is sound if its words        and then
//!   closed cleanly          match the checksum of the close,      it is used as before
//!                           which is in `old`
//!   in use                  match the check in `state`, and if    all it holds is old
//!                           a slab is a unit taken whole          (see `gc`)
//! ```
//! A unit that fails is quarantined ([`UnitUse::Quarantined`]): nothing is allocated from it or
//! freed to it, by this open and all later ones. Its content can be read as before, since readers
//! check it in other ways. `check` reports the unit, and `salvage` leaves it behind. So damage here
//! costs one unit of memory and nothing else.
//!
//! An open touches no unit for this, so it takes no longer in a large pool. A close visits all of
//! them.

use crate::allocator::bitmaps::Fill;
use crate::allocator::classes::Class;
use crate::allocator::units::Units;
use crate::allocator::zones::{Unit, UnitState, UnitUse};
use crate::format::lifetime::Start;
use crate::sync::backoff::{Backoff, rests_in};
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release, SeqCst};
use std::time::Duration;
use terrace_medium::MappedMedium;
use xxhash_rust::xxh3::xxh3_64_with_seed;

/// The verdict on a unit that is revalidated.
enum Verdict {
    /// The unit is as the last close left it.
    AsClosed,
    /// A slab whose blocks may all be live.
    UncleanSlab(usize),
    /// Granules, some of which may be live.
    UncleanGranules,
    /// The unit must be quarantined.
    Damaged,
}

impl<M: MappedMedium> Units<M> {
    /// Revalidates `unit` if that has not happened since the open. After a crash all that it holds
    /// becomes old. Returns its state from then on.
    #[inline(always)]
    pub(crate) fn revalidate(&self, unit: u64) -> UnitState {
        self.revalidated(unit, self.unit(unit))
    }

    /// As `revalidate`, for callers that have the unit's description already.
    #[inline(always)]
    pub(crate) fn revalidated(&self, unit: u64, entry: &Unit) -> UnitState {
        // ORDER: Acquire: pairs with the store at the end of `revalidate_now`.
        let state = UnitState(entry.state.load(self.medium(), Acquire));
        if state.open_seq() == self.base.open_seq && state.usage() != UnitUse::Revalidating {
            state
        } else {
            self.revalidate_now(unit)
        }
    }

    #[cold]
    fn revalidate_now(&self, unit: u64) -> UnitState {
        /// Far longer than a revalidation takes: a unit that is still marked so afterwards is
        /// damaged, and nothing is done with it.
        const SLEEPS_MAX: u32 = rests_in(Duration::from_secs(5));
        let (entry, medium) = (self.unit(unit), self.medium());
        let (mut backoff, mut sleeps) = (Backoff::new(), 0);
        while sleeps < SLEEPS_MAX {
            let state = UnitState(entry.state.load(medium, Acquire));
            if state.open_seq() == self.base.open_seq {
                if state.usage() != UnitUse::Revalidating {
                    return state;
                }
                if backoff.spin() {
                    sleeps += 1;
                    // The thread that was revalidating this unit may be dead. The collector
                    // finishes the job; until then every caller waits this long. Recovery must not
                    // run here: the caller may hold locks that it needs. (So the crash may not have
                    // been observed yet.)
                    if self.base.is_collection_pending() || self.base.has_dead_participant() {
                        return UnitState(entry.state.load(medium, Acquire));
                    }
                }
                continue;
            }
            let verdict = self.verdict(unit, state);
            let next = match verdict {
                Verdict::Damaged => UnitState::quarantined(self.base.open_seq),
                _ => state.at_open_seq(self.base.open_seq).with(UnitUse::Revalidating),
            };
            debug_assert!(next.is_sound() && next.open_seq() == self.base.open_seq);
            // ORDER: Relaxed: the replaced state was stored before this open, and is visible since
            // then.
            if entry.state.compare_exchange(medium, state.0, next.0, Relaxed, Relaxed).is_ok() {
                let revalidated = self.judge(unit, state, verdict);
                // ORDER: Release: a thread that sees the unit revalidated sees what is old in it.
                entry.state.store(medium, revalidated.0, Release);
                return revalidated;
            }
        }
        self.base.count_fault();
        UnitState(entry.state.load(medium, Acquire))
    }

    /// Completes the revalidation of a unit that a dead thread left in `state`. No other thread is
    /// working on it.
    pub(crate) fn resume_revalidation(&self, unit: u64, state: UnitState) {
        let revalidated = match state.class() {
            Some(number) if self.base.start == Start::Clean => self.guess_use(unit, number),
            Some(number) => self.judge(unit, state, Verdict::UncleanSlab(number)),
            None if self.base.start == Start::Clean => {
                self.judge(unit, UnitState::granules(self.base.open_seq), Verdict::AsClosed)
            }
            None => self.judge(unit, state, Verdict::UncleanGranules),
        };
        // ORDER: Release: as in `revalidate_now`.
        self.unit(unit).state.store(self.medium(), revalidated.0, Release);
    }

    /// The use of a slab that a close left, guessed from its content. If it is listed but in no
    /// list, the collector finds out.
    fn guess_use(&self, unit: u64, number: usize) -> UnitState {
        self.unit(unit).old.store(self.medium(), 0, Relaxed);
        let is_reserve = self.base.shared().reserve.load(self.medium(), Relaxed) == self.zones.start_of(unit);
        let is_full = self.classes.get(number).is_none_or(|class| self.fill(unit, class) == Fill::Full);
        let usage = match (is_reserve, is_full) {
            (true, _) => UnitUse::Reserve,
            (false, true) => UnitUse::Full,
            (false, false) => UnitUse::Listed,
        };
        UnitState::slab(self.base.open_seq, number, usage)
    }

    /// The verdict on a unit that was found in `state`. Changes nothing.
    fn verdict(&self, unit: u64, state: UnitState) -> Verdict {
        let entry = self.unit(unit);
        let taken = entry.taken.load(self.medium(), Relaxed);
        let head = self.header_granules_of(unit);
        if self.base.start == Start::Clean {
            let fresh =
                state == UnitState(0) && taken == head && entry.link.load(self.medium(), Relaxed) == 0;
            let left = entry.old.load(self.medium(), Relaxed);
            // A unit that was never touched has no checksum.
            let sound = if left == 0 { fresh } else { left == self.checksum_of(unit, state) };
            return if sound { Verdict::AsClosed } else { Verdict::Damaged };
        }
        match state.class() {
            _ if !state.is_sound() || state.usage() == UnitUse::Quarantined => Verdict::Damaged,
            None => Verdict::UncleanGranules,
            // Only a unit that was taken whole can be a slab.
            Some(class) if taken == !0 && head == 0 && class < self.classes.len() => {
                Verdict::UncleanSlab(class)
            }
            Some(_) => Verdict::Damaged,
        }
    }

    /// The granules of `unit` that its zone's header occupies, as bits.
    fn header_granules_of(&self, unit: u64) -> u64 {
        self.zones.header_granules(&self.zones.of_unit(unit), unit)
    }

    /// Carries out the verdict on a unit that was in state `found`. Returns its state from then on.
    fn judge(&self, unit: u64, found: UnitState, verdict: Verdict) -> UnitState {
        let (entry, medium) = (self.unit(unit), self.medium());
        match verdict {
            Verdict::AsClosed => {
                entry.old.store(medium, 0, Relaxed);
                found.at_open_seq(self.base.open_seq)
            }
            Verdict::UncleanSlab(number) => {
                if let Some(class) = self.classes.get(number) {
                    self.assume_all_live(unit, class);
                    self.count_slab(class, 1);
                }
                entry.old.store(medium, 0, Relaxed);
                entry.link.store(medium, 0, Relaxed);
                UnitState::slab(self.base.open_seq, number, UnitUse::Unclean)
            }
            Verdict::UncleanGranules => {
                let link = entry.link.load(medium, Relaxed);
                let old =
                    (entry.taken.fetch_or(medium, link, Relaxed) | link) & !self.header_granules_of(unit);
                entry.old.store(medium, old, Relaxed);
                // A granule set in only one of the two words is set in both from now on.
                entry.link.store(medium, old, Relaxed);
                let bytes = u64::from(old.count_ones()) << self.zones.granule_log2();
                self.base.shared().large_base.fetch_add(medium, bytes, Relaxed);
                UnitState::granules(self.base.open_seq)
            }
            Verdict::Damaged => {
                self.exclude_unit(unit);
                UnitState::quarantined(self.base.open_seq)
            }
        }
    }

    /// Adds a slab of an earlier open to the counts with all of its blocks, or (`by` is -1) removes
    /// it.
    fn count_slab(&self, class: &Class, by: i64) {
        let bytes = i64::from(class.blocks) * i64::from(class.size) * by;
        self.base.shared().small_base.fetch_add(self.medium(), bytes as u64, Relaxed);
        self.base.shared().slab_units.fetch_add(self.medium(), by as u64, Relaxed);
    }

    /// Leaves nothing in `unit` that could be taken or swept.
    fn exclude_unit(&self, unit: u64) {
        let entry = self.unit(unit);
        entry.taken.store(self.medium(), !0, SeqCst);
        entry.old.store(self.medium(), 0, Relaxed);
        self.update_hints(unit);
    }

    /// Quarantines `unit` before it is swept: its description contradicts what is reachable.
    #[cold]
    pub(crate) fn quarantine(&self, unit: u64, seen: UnitState) {
        let damaged = UnitState::quarantined(self.base.open_seq);
        let state = &self.unit(unit).state;
        // ORDER: AcqRel: as a revalidation.
        if state.compare_exchange(self.medium(), seen.0, damaged.0, AcqRel, Relaxed).is_err() {
            return;
        }
        if let Some(class) = seen.class().and_then(|class| self.classes.get(class)) {
            self.count_slab(class, -1);
        }
        self.exclude_unit(unit);
    }

    /// The state of `unit` after its revalidation, without touching it. A unit that a crash left
    /// keeps its old open sequence.
    pub(crate) fn predicted_state(&self, unit: u64) -> UnitState {
        let state = UnitState(self.unit(unit).state.load(self.medium(), Relaxed));
        match () {
            () if state.open_seq() == self.base.open_seq => state,
            () if matches!(self.verdict(unit, state), Verdict::Damaged) => {
                UnitState::quarantined(self.base.open_seq)
            }
            () if self.base.start == Start::Clean => state.at_open_seq(self.base.open_seq),
            () => state,
        }
    }

    /// Writes a checksum into every unit that was revalidated since the open. No thread is pinned.
    pub(crate) fn seal_units(&self) {
        for zone in self.zones() {
            for unit in self.units_in(&zone) {
                let entry = self.unit(unit);
                let state = UnitState(entry.state.load(self.medium(), Relaxed));
                if state.open_seq() == self.base.open_seq {
                    entry.old.store(self.medium(), self.checksum_of(unit, state), Relaxed);
                }
            }
        }
    }

    /// The checksum of a unit in `state`: of its words and, if it is a slab, of its allocation
    /// bitmap. Never 0.
    fn checksum_of(&self, unit: u64, state: UnitState) -> u64 {
        let entry = self.unit(unit);
        let load = |word: &terrace_medium::Word| word.load(self.medium(), Relaxed);
        let mut sum = sum_of([unit, load(&entry.taken), state.0, load(&entry.link)].into_iter(), 0);
        if let Some(class) = state.class().and_then(|class| self.classes.get(class)) {
            for at in (0..u64::from(class.words)).step_by(LINE_WORDS) {
                let words = at..u64::from(class.words).min(at + LINE_WORDS as u64);
                sum =
                    sum_of(words.map(|word| load(self.allocated_word(unit, word)) & class.valid(word)), sum);
            }
        }
        sum.max(1)
    }

    /// Quarantines `unit` if a reachable block lies in its old part, at `offset`, where its `state`
    /// rules out a block of that size.
    #[cold]
    pub(crate) fn quarantine_if_contradicted(&self, unit: u64, state: UnitState, offset: u64) {
        if !self.base.is_unclean() {
            return;
        }
        let is_old = match state.usage() {
            UnitUse::Unclean => true,
            UnitUse::Granules => {
                let granule = (offset - self.zones.start_of(unit)) >> self.zones.granule_log2();
                self.unit(unit).old.load(self.medium(), Relaxed) >> granule & 1 == 1
            }
            _ => false,
        };
        if is_old {
            self.quarantine(unit, state);
        }
    }
}

const LINE_WORDS: usize = 8;

/// Continues a checksum over a line's words, or fewer.
fn sum_of(words: impl Iterator<Item = u64>, sum: u64) -> u64 {
    let mut bytes = [0; LINE_WORDS * 8];
    bytes.as_chunks_mut().0.iter_mut().zip(words).for_each(|(bytes, word)| *bytes = word.to_le_bytes());
    xxh3_64_with_seed(&bytes, sum)
}

#[cfg(test)]
#[path = "tests/revalidate.rs"]
mod tests;
