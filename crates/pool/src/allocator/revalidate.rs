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

use crate::allocator::classes::Class;
use crate::allocator::slabs::Fill;
use crate::allocator::zones::{Unit, UnitState, UnitUse};
use crate::pool::{Inner, Start};
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

impl<M: MappedMedium> Inner<M> {
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
        if state.open_seq() == self.open_seq && state.usage() != UnitUse::Revalidating {
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
            if state.open_seq() == self.open_seq {
                if state.usage() != UnitUse::Revalidating {
                    return state;
                }
                if backoff.spin() {
                    sleeps += 1;
                    // The thread that was revalidating this unit may be dead. The collector
                    // finishes the job; until then every caller waits this long. Recovery must not
                    // run here: the caller may hold locks that it needs. (So the crash may not have
                    // been observed yet.)
                    if self.is_collection_pending() || self.has_dead_participant() {
                        return UnitState(entry.state.load(medium, Acquire));
                    }
                }
                continue;
            }
            let verdict = self.verdict(unit, state);
            let next = match verdict {
                Verdict::Damaged => UnitState::quarantined(self.open_seq),
                _ => state.at_open_seq(self.open_seq).with(UnitUse::Revalidating),
            };
            // ORDER: Relaxed: the replaced state was stored before this open, and is visible since
            // then.
            if entry.state.compare_exchange(medium, state.0, next.0, Relaxed, Relaxed).is_ok() {
                let revalidated = self.judge(unit, state, verdict);
                // ORDER: Release: a thread that sees the unit revalidated sees what is old in it.
                entry.state.store(medium, revalidated.0, Release);
                return revalidated;
            }
        }
        self.count_fault();
        UnitState(entry.state.load(medium, Acquire))
    }

    /// Completes the revalidation of a unit that a dead thread left in `state`. No other thread is
    /// working on it.
    pub(crate) fn resume_revalidation(&self, unit: u64, state: UnitState) {
        let revalidated = match state.class() {
            Some(number) if self.start == Start::Clean => self.guess_use(unit, number),
            Some(number) => self.judge(unit, state, Verdict::UncleanSlab(number)),
            None if self.start == Start::Clean => {
                self.judge(unit, UnitState::granules(self.open_seq), Verdict::AsClosed)
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
        let is_reserve =
            self.shared().reserve.load(self.medium(), Relaxed) == self.memory.zones.start_of(unit);
        let is_full =
            self.memory.classes.get(number).is_none_or(|class| self.fill(unit, class) == Fill::Full);
        let usage = match (is_reserve, is_full) {
            (true, _) => UnitUse::Reserve,
            (false, true) => UnitUse::Full,
            (false, false) => UnitUse::Listed,
        };
        UnitState::slab(self.open_seq, number, usage)
    }

    /// The verdict on a unit that was found in `state`. Changes nothing.
    fn verdict(&self, unit: u64, state: UnitState) -> Verdict {
        let entry = self.unit(unit);
        let taken = entry.taken.load(self.medium(), Relaxed);
        let head = self.header_granules_of(unit);
        if self.start == Start::Clean {
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
            Some(class) if taken == !0 && head == 0 && class < self.memory.classes.len() => {
                Verdict::UncleanSlab(class)
            }
            Some(_) => Verdict::Damaged,
        }
    }

    /// The granules of `unit` that its zone's header occupies, as bits.
    fn header_granules_of(&self, unit: u64) -> u64 {
        self.memory.zones.header_granules(&self.memory.zones.of_unit(unit), unit)
    }

    /// Carries out the verdict on a unit that was in state `found`. Returns its state from then on.
    fn judge(&self, unit: u64, found: UnitState, verdict: Verdict) -> UnitState {
        let (entry, medium) = (self.unit(unit), self.medium());
        match verdict {
            Verdict::AsClosed => {
                entry.old.store(medium, 0, Relaxed);
                found.at_open_seq(self.open_seq)
            }
            Verdict::UncleanSlab(number) => {
                if let Some(class) = self.memory.classes.get(number) {
                    self.assume_all_live(unit, class);
                    self.count_slab(class, 1);
                }
                entry.old.store(medium, 0, Relaxed);
                entry.link.store(medium, 0, Relaxed);
                UnitState::slab(self.open_seq, number, UnitUse::Unclean)
            }
            Verdict::UncleanGranules => {
                let link = entry.link.load(medium, Relaxed);
                let old =
                    (entry.taken.fetch_or(medium, link, Relaxed) | link) & !self.header_granules_of(unit);
                entry.old.store(medium, old, Relaxed);
                // A granule set in only one of the two words is set in both from now on.
                entry.link.store(medium, old, Relaxed);
                let bytes = u64::from(old.count_ones()) << self.memory.zones.granule_log2();
                self.shared().large_base.fetch_add(medium, bytes, Relaxed);
                UnitState::granules(self.open_seq)
            }
            Verdict::Damaged => {
                self.exclude_unit(unit);
                UnitState::quarantined(self.open_seq)
            }
        }
    }

    /// Adds a slab of an earlier open to the counts with all of its blocks, or (`by` is -1) removes
    /// it.
    fn count_slab(&self, class: &Class, by: i64) {
        let bytes = i64::from(class.blocks) * i64::from(class.size) * by;
        self.shared().small_base.fetch_add(self.medium(), bytes as u64, Relaxed);
        self.shared().slab_units.fetch_add(self.medium(), by as u64, Relaxed);
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
        let damaged = UnitState::quarantined(self.open_seq);
        let state = &self.unit(unit).state;
        // ORDER: AcqRel: as a revalidation.
        if state.compare_exchange(self.medium(), seen.0, damaged.0, AcqRel, Relaxed).is_err() {
            return;
        }
        if let Some(class) = seen.class().and_then(|class| self.memory.classes.get(class)) {
            self.count_slab(class, -1);
        }
        self.exclude_unit(unit);
    }

    /// The state of `unit` after its revalidation, without touching it. A unit that a crash left
    /// keeps its old open sequence.
    pub(crate) fn predicted_state(&self, unit: u64) -> UnitState {
        let state = UnitState(self.unit(unit).state.load(self.medium(), Relaxed));
        match () {
            () if state.open_seq() == self.open_seq => state,
            () if matches!(self.verdict(unit, state), Verdict::Damaged) => {
                UnitState::quarantined(self.open_seq)
            }
            () if self.start == Start::Clean => state.at_open_seq(self.open_seq),
            () => state,
        }
    }

    /// Writes a checksum into every unit that was revalidated since the open. No thread is pinned.
    pub(crate) fn seal_units(&self) {
        for zone in self.zones() {
            for unit in self.units_in(&zone) {
                let entry = self.unit(unit);
                let state = UnitState(entry.state.load(self.medium(), Relaxed));
                if state.open_seq() == self.open_seq {
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
        if let Some(class) = state.class().and_then(|class| self.memory.classes.get(class)) {
            for at in (0..u64::from(class.words)).step_by(LINE_WORDS) {
                let words = at..u64::from(class.words).min(at + LINE_WORDS as u64);
                sum =
                    sum_of(words.map(|word| load(self.allocated_word(unit, word)) & class.valid(word)), sum);
            }
        }
        sum.max(1)
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
mod tests {
    use super::*;
    use crate::Finding;
    use crate::allocator::zones::Hint;
    use crate::pool::Pool;
    use crate::sync::backoff::rest_with;
    use crate::tests::fixtures::reopened;
    use crate::tests::interleavings::{Hooked, hooked, offset_of};
    use std::cell::{Cell, RefCell};
    use std::rc::Rc;
    use tempfile::TempDir;
    use terrace_medium::{Access, Shm};

    const SMALL: usize = 64;
    /// An extent.
    const LARGE: usize = 1000;

    fn blocks<M: MappedMedium>(pool: &Pool<M>, count: usize, bytes: usize) -> Vec<u64> {
        let guard = pool.pin();
        (0..count).map(|_| guard.alloc(bytes).unwrap().fenced_later().into_offset()).collect()
    }

    /// Extents, a slab that has free blocks, and one that has none.
    fn fill<M: MappedMedium>(pool: &Pool<M>) {
        let classes = &pool.0.memory.classes;
        let class = classes.get(classes.of(SMALL as u64).unwrap()).unwrap();
        blocks(pool, class.blocks as usize + 5, SMALL);
        blocks(pool, 20, LARGE);
    }

    fn state<M: MappedMedium>(pool: &Pool<M>, unit: u64) -> UnitState {
        UnitState(pool.0.unit(unit).state.load(pool.medium(), Relaxed))
    }

    /// What a thread leaves that dies during the revalidation of a unit in `state`.
    fn left_revalidating<M: MappedMedium>(pool: &Pool<M>, unit: u64, state: UnitState) -> UnitState {
        let revalidating = state.at_open_seq(pool.0.open_seq).with(UnitUse::Revalidating);
        pool.0.unit(unit).state.store(pool.medium(), revalidating.0, Relaxed);
        revalidating
    }

    /// Units that are slabs in this use, or granules of which some are taken.
    fn units_in_use<M: MappedMedium>(pool: &Pool<M>, usage: UnitUse) -> Vec<u64> {
        let is_taken = |unit| {
            pool.0.unit(unit).taken.load(pool.medium(), Relaxed) & !pool.0.header_granules_of(unit) != 0
        };
        pool.0.all_units().filter(|&unit| state(pool, unit).usage() == usage && is_taken(unit)).collect()
    }

    /// The units of [`fill`] as a close leaves them.
    fn closed_units<M: MappedMedium>(pool: &Pool<M>) -> Vec<u64> {
        let uses = [UnitUse::Reserve, UnitUse::Full, UnitUse::Listed, UnitUse::Granules];
        let units = uses.map(|usage| units_in_use(pool, usage));
        assert!(units.iter().all(|units| !units.is_empty()), "{units:?}");
        units.concat()
    }

    #[test]
    fn resumed_revalidation_restores_closed_units() {
        let (_directory, pool) = reopened::<Shm>(Start::Clean, fill);
        for unit in closed_units(&pool) {
            let entry = pool.0.unit(unit);
            let words = || [&entry.taken, &entry.link].map(|word| word.load(pool.medium(), Relaxed));
            let (before, left) = (state(&pool, unit), words());
            let revalidating = left_revalidating(&pool, unit, before);
            pool.0.resume_revalidation(unit, revalidating);
            let after = (state(&pool, unit), words(), entry.old.load(pool.medium(), Relaxed));
            assert!(after == (before.at_open_seq(pool.0.open_seq), left, 0), "{unit}: {:?}", before.usage());
        }
        assert_eq!(pool.verify_memory(), []);
    }

    #[test]
    fn resumed_revalidation_makes_units_of_a_crash_unclean() {
        let (_directory, pool) = reopened::<Shm>(Start::Unclean, fill);
        assert_eq!(pool.verify_memory(), [], "before any unit was touched");
        let open_seq = pool.0.open_seq;
        let units: Vec<u64> =
            pool.0.all_units().filter(|&unit| state(&pool, unit).open_seq() != open_seq).collect();
        let (mut slabs, mut granules) = (0, 0);
        for unit in units {
            let (entry, before) = (pool.0.unit(unit), state(&pool, unit));
            let taken = entry.taken.load(pool.medium(), Relaxed) & !pool.0.header_granules_of(unit);
            let revalidating = left_revalidating(&pool, unit, before);
            pool.0.resume_revalidation(unit, revalidating);
            let (after, old) = (state(&pool, unit), entry.old.load(pool.medium(), Relaxed));
            if let Some(number) = before.class() {
                let class = pool.0.memory.classes.get(number).unwrap();
                assert!(after == UnitState::slab(open_seq, number, UnitUse::Unclean) && old == 0);
                assert_eq!(pool.0.fill(unit, class), Fill::Full);
                slabs += 1;
            } else {
                assert!(after == UnitState::granules(open_seq) && old == taken);
                granules += taken.count_ones();
            }
        }
        assert!(slabs == 2 && granules == 20 * 16, "{slabs} slabs and {granules} granules");
    }

    #[test]
    fn granules_set_in_either_word_are_old_and_reclaimed() {
        let mut unit = 0;
        let (_directory, pool) = reopened::<Shm>(Start::Unclean, |pool| {
            unit = pool.0.unit_at(blocks(pool, 1, LARGE)[0]).unwrap();
            // Of an extent that was being taken, and of one that was being freed.
            let entry = pool.0.unit(unit);
            entry.taken.fetch_or(pool.medium(), 1 << 60, Relaxed);
            entry.link.fetch_or(pool.medium(), 1 << 62, Relaxed);
            assert!(entry.taken.load(pool.medium(), Relaxed) & 1 << 62 == 0);
        });
        pool.0.revalidate(unit);
        let old = pool.0.unit(unit).old.load(pool.medium(), Relaxed);
        assert_eq!(old >> 56, 0b0101_0000);
        let entry = pool.0.unit(unit);
        let [taken, link] = [&entry.taken, &entry.link].map(|word| word.load(pool.medium(), Relaxed));
        assert_eq!((taken & !pool.0.header_granules_of(unit), link), (old, old), "both say so now");
        pool.collect(&mut |_| ());
        assert_eq!((pool.space().used_by_blocks, pool.verify_memory()), (0, vec![]));
    }

    #[test]
    fn thread_waits_for_a_revalidation_in_progress() {
        let (_directory, pool) = reopened::<Hooked>(Start::Clean, fill);
        for unit in closed_units(&pool) {
            let before = state(&pool, unit);
            let revalidating = left_revalidating(&pool, unit, before);
            let (other, mut looks) = (pool.clone(), 0);
            let at = offset_of(&pool.0, &pool.0.unit(unit).state);
            let go_on = move |access, offset| {
                looks += u32::from((access, offset) == (Access::Load, at));
                if looks == 5 {
                    other.0.resume_revalidation(unit, revalidating);
                }
            };
            let seen = hooked(go_on, || pool.0.revalidate(unit));
            assert!(seen == before.at_open_seq(pool.0.open_seq), "{unit}: {:?}", seen.usage());
        }
        assert_eq!(pool.faults(), 0);
    }

    #[test]
    fn unclean_slab_needs_a_whole_unit_and_a_valid_class() {
        let (_directory, pool) = reopened::<Shm>(Start::Unclean, fill);
        let medium = pool.medium();
        let unit = pool.0.all_units().find(|&unit| state(&pool, unit).usage() == UnitUse::Full).unwrap();
        let found = state(&pool, unit);
        let is_damaged = |unit, state: UnitState, taken| {
            pool.0.unit(unit).taken.store(medium, taken, Relaxed);
            matches!(pool.0.verdict(unit, state), Verdict::Damaged)
        };
        assert!(!is_damaged(unit, found, !0));
        assert!(is_damaged(unit, found, !1) && is_damaged(0, found, !0));
        let beyond = UnitState::slab(found.open_seq(), pool.0.memory.classes.len(), UnitUse::Full);
        assert!(is_damaged(unit, beyond, !0));
        assert!(
            is_damaged(unit, UnitState(found.0 ^ 1), !0)
                && is_damaged(unit, found.with(UnitUse::Quarantined), !0)
        );
        pool.abandon();
    }

    thread_local!(static RESTS: Cell<u32> = const { Cell::new(0) });

    /// Waits for a unit whose revalidation no thread completes. Returns how often it has slept.
    fn wait_in_vain(pool: &Pool<Shm>) -> u32 {
        let unit = units_in_use(pool, UnitUse::Granules)[0];
        let revalidating = left_revalidating(pool, unit, state(pool, unit));
        let wait = || {
            rest_with(|| {
                RESTS.set(RESTS.get() + 1);
                assert!(RESTS.get() < 100_000, "the wait has no end");
            });
            assert!(pool.0.revalidate(unit) == revalidating);
            RESTS.get()
        };
        std::thread::scope(|scope| scope.spawn(wait).join().unwrap())
    }

    #[test]
    fn for_a_unit_that_goes_on_arriving_nobody_waits_for_ever() {
        let (_directory, pool) = reopened::<Shm>(Start::Clean, fill);
        let slept = wait_in_vain(&pool);
        assert_eq!(pool.faults(), 1, "so the unit counts as damaged");
        // After a crash of a thread that may have been revalidating it, the collector takes care of
        // it.
        pool.request_collection();
        assert!(wait_in_vain(&pool) < slept / 100);
        assert_eq!(pool.faults(), 1);
    }

    /// A pool that was closed cleanly, and in which every third unit was damaged afterwards.
    fn with_damage() -> (TempDir, Pool<Hooked>, Vec<u64>) {
        let (directory, pool) = reopened::<Hooked>(Start::Clean, fill);
        let damaged: Vec<u64> = pool
            .0
            .all_units()
            .filter(|&unit| {
                unit % 3 == 1
                    && pool.0.header_granules_of(unit) == 0
                    && state(&pool, unit).open_seq() != pool.0.open_seq
            })
            .collect();
        damaged.iter().for_each(|&unit| _ = pool.0.unit(unit).old.fetch_add(pool.medium(), 4, Relaxed));
        (directory, pool, damaged)
    }

    #[test]
    fn damaged_unit_is_quarantined_by_one_store() {
        let (_directory, pool, damaged) = with_damage();
        for unit in damaged {
            let states = Rc::new(RefCell::new(Vec::new()));
            let at = offset_of(&pool.0, &pool.0.unit(unit).state);
            let (other, seen) = (pool.clone(), states.clone());
            let look = move |access, offset| {
                if offset == at && access != Access::Load {
                    seen.borrow_mut().push(state(&other, unit));
                }
            };
            let revalidated = hooked(look, || pool.0.revalidate(unit));
            let damaged = UnitState::quarantined(pool.0.open_seq);
            assert!(revalidated == damaged && states.borrow().iter().all(|&seen| seen == damaged), "{unit}");
        }
    }

    #[test]
    fn quarantined_unit_is_skipped_by_allocation() {
        let (_directory, pool, damaged) = with_damage();
        damaged.iter().for_each(|&unit| assert!(pool.0.revalidate(unit).usage() == UnitUse::Quarantined));
        let zones = &pool.0.memory.zones;
        for &unit in &damaged {
            for hint in [Hint::Empty, Hint::Room] {
                let (word, bit) = pool.0.hint_word(hint, &zones.of_unit(unit), unit);
                assert_eq!(word.load(pool.medium(), Relaxed) & bit, 0, "{unit}");
            }
        }
        let space = pool.space();
        assert_eq!(space.damaged, (damaged.len() as u64) << zones.slab_log2);
        assert!(space.largest_free_extent < 3 << zones.slab_log2, "{space:?}");
    }

    #[test]
    fn contradicted_unit_is_quarantined_and_frees_nothing() {
        let mut kept = Vec::new();
        let mut wrong = [0; 3];
        let (_directory, pool) = reopened::<Shm>(Start::Unclean, |pool| {
            kept = blocks(pool, 40, SMALL);
            // A small block, an extent, and another small block.
            wrong = [24, LARGE, 96].map(|bytes| blocks(pool, 10, bytes)[0]);
        });
        let bytes = |pool: &Pool<Shm>| {
            let shared = pool.0.shared();
            [&shared.small_base, &shared.large_base]
                .map(|word| word.load(pool.medium(), Relaxed))
                .iter()
                .sum()
        };
        pool.0.all_units().for_each(|unit| _ = pool.0.revalidate(unit));
        let units = wrong.map(|offset| pool.0.unit_at(offset).unwrap());
        let all: u64 = bytes(&pool);
        let extents = pool.0.unit(units[1]).old.load(pool.medium(), Relaxed).count_ones();
        let report = pool.collect(&mut |marker| {
            kept.iter().for_each(|&offset| marker.mark(offset, SMALL));
            // One of another size, a small one, and an extent.
            marker.mark(wrong[0], 200);
            marker.mark(wrong[1], SMALL);
            marker.mark(pool.0.memory.zones.start_of(units[2]), LARGE);
        });
        assert_eq!((report.marked, report.unsound), (43, 2));
        assert!(units.iter().all(|&unit| state(&pool, unit) == UnitState::quarantined(pool.0.open_seq)));
        let space = pool.space();
        let granule = 1 << pool.0.memory.zones.granule_log2();
        let apart: u64 =
            units.map(|unit| u64::from(pool.0.header_granules_of(unit).count_zeros()) * granule).iter().sum();
        assert_eq!((space.used_by_blocks, space.damaged), (40 * SMALL as u64, apart), "{space:?}");
        let blocks = [24, 96].map(|bytes| {
            let classes = &pool.0.memory.classes;
            let class = classes.get(classes.of(bytes).unwrap()).unwrap();
            u64::from(class.blocks * class.size)
        });
        let kept = blocks[0] + blocks[1] + u64::from(extents) * granule + 40 * SMALL as u64;
        assert_eq!(report.freed, all - kept);
        let places: Vec<u64> = pool.verify_memory().iter().map(|found: &Finding| found.offset).collect();
        let mut expected = units.map(|unit| pool.0.memory.zones.start_of(unit));
        expected.sort_unstable();
        assert_eq!(places, expected);
    }
}
