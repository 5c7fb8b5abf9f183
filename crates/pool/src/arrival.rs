//! How a unit comes into this era, and what is believed of it then.
//!
//! Each opening begins an era. What a unit says about itself dates from an earlier one until somebody touches it; then it *arrives*, once:
//!
//! ```text
//!   the pool was found      the unit's words are believed if                              and then
//!   closed in order         they match the check that the close left in `old`             it goes on as it was
//!   left in use             the state matches its own check, and a slab is taken whole    all it holds is old: see `collect`
//! ```
//! A unit that is not believed is set apart ([`Use::Damaged`]): nothing is handed out from it and nothing given back to it, in this life and the next
//! ones. What it holds can be read as before, for what is read is proved by other checks than these; `check` tells of it, and a salvage leaves it
//! behind. So damage here costs a unit of memory and nothing else.
//!
//! An opening touches no unit for this, so it takes no longer in a large pool; a close goes through all of them.

use crate::backoff::Backoff;
use crate::classes::Class;
use crate::pool::{Inner, Start};
use crate::slabs::Holding;
use crate::zones::{State, Unit, Use};
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release, SeqCst};
use terrace_medium::MappedMedium;
use xxhash_rust::xxh3::xxh3_64_with_seed;

/// What becomes of a unit that arrives.
enum Fate {
    /// It is as the last close left it.
    AsClosed,
    /// A slab whose blocks may all be live.
    OldSlab(usize),
    /// Granules, some of which may be live.
    OldGranules,
    /// It is set apart.
    Damaged,
}

impl<M: MappedMedium> Inner<M> {
    /// Brings `unit` into this era if it is older: all that it holds becomes old. Returns its state then.
    #[inline(always)]
    pub(crate) fn arrive(&self, unit: u64) -> State {
        self.arrived(unit, self.unit(unit))
    }

    /// As `arrive`, for who has the unit's description already.
    #[inline(always)]
    pub(crate) fn arrived(&self, unit: u64, entry: &Unit) -> State {
        // ORDER: Acquire: pairs with the store at the end of `arrive_now`.
        let state = State(entry.state.load(self.medium(), Acquire));
        if state.era() == self.era && state.usage() != Use::Arriving { state } else { self.arrive_now(unit) }
    }

    #[cold]
    fn arrive_now(&self, unit: u64) -> State {
        /// Sleeps of two milliseconds, most of them; far more than an arrival takes: a unit that is still arriving then is damaged, and nothing is done with it.
        const NAPS_MAX: u32 = 2500;
        let (entry, medium) = (self.unit(unit), self.medium());
        let (mut backoff, mut naps) = (Backoff::new(), 0);
        while naps < NAPS_MAX {
            let state = State(entry.state.load(medium, Acquire));
            if state.era() == self.era {
                if state.usage() != Use::Arriving {
                    return state;
                }
                if backoff.spin() {
                    naps += 1;
                    // Who was at it may have died: the collector will see to it, and whoever comes by waits that long each time until then. (He may not be known to be dead yet, and is not
                    // recovered here: whoever comes here may hold locks that this takes.)
                    if self.is_doubted() || self.is_anyone_dead() {
                        return State(entry.state.load(medium, Acquire));
                    }
                }
                continue;
            }
            let fate = self.fate(unit, state);
            let next = match fate {
                Fate::Damaged => State::damaged(self.era),
                _ => state.in_era(self.era).with(Use::Arriving),
            };
            // ORDER: Relaxed: what it takes the place of is of an earlier life, which was over when the pool was opened.
            if entry.state.compare_exchange(medium, state.0, next.0, Relaxed, Relaxed).is_ok() {
                let arrived = self.take_stock(unit, state, fate);
                // ORDER: Release: whoever sees the unit in this era sees what is old in it.
                entry.state.store(medium, arrived.0, Release);
                return arrived;
            }
        }
        self.fault();
        State(entry.state.load(medium, Acquire))
    }

    /// Goes on with the arrival of a unit, which somebody left in `state` who died. Nobody else is at it.
    pub(crate) fn arrive_again(&self, unit: u64, state: State) {
        let arrived = match state.class() {
            Some(number) if self.start == Start::Clean => self.guess_use(unit, number),
            Some(number) => self.take_stock(unit, state, Fate::OldSlab(number)),
            None if self.start == Start::Clean => {
                self.take_stock(unit, State::granules(self.era), Fate::AsClosed)
            }
            None => self.take_stock(unit, state, Fate::OldGranules),
        };
        // ORDER: Release: as in `arrive_now`.
        self.unit(unit).state.store(self.medium(), arrived.0, Release);
    }

    /// What a slab was that a close left: what it holds says it. If it is not in its list, the collector finds out.
    fn guess_use(&self, unit: u64, number: usize) -> State {
        self.unit(unit).old.store(self.medium(), 0, Relaxed);
        let is_reserve =
            self.shared().reserve.load(self.medium(), Relaxed) == self.memory.zones.start_of(unit);
        let is_full =
            self.memory.classes.get(number).is_none_or(|class| self.holding(unit, class) == Holding::All);
        let usage = match (is_reserve, is_full) {
            (true, _) => Use::Reserve,
            (false, true) => Use::Full,
            (false, false) => Use::Listed,
        };
        State::slab(self.era, number, usage)
    }

    /// What is to become of a unit that was found in `state`. Changes nothing.
    fn fate(&self, unit: u64, state: State) -> Fate {
        let entry = self.unit(unit);
        let taken = entry.taken.load(self.medium(), Relaxed);
        let head = self.head_of(unit);
        if self.start == Start::Clean {
            let fresh = state == State(0) && taken == head && entry.link.load(self.medium(), Relaxed) == 0;
            let left = entry.old.load(self.medium(), Relaxed);
            // A unit that was never touched has no check.
            let sound = if left == 0 { fresh } else { left == self.check_of(unit, state) };
            return if sound { Fate::AsClosed } else { Fate::Damaged };
        }
        match state.class() {
            _ if !state.is_sound() || state.usage() == Use::Damaged => Fate::Damaged,
            None => Fate::OldGranules,
            // A slab is a unit that was taken whole before it became one.
            Some(class) if taken == !0 && head == 0 && class < self.memory.classes.len() => {
                Fate::OldSlab(class)
            }
            Some(_) => Fate::Damaged,
        }
    }

    /// The granules of `unit` that its zone's head lies in, as bits.
    fn head_of(&self, unit: u64) -> u64 {
        self.memory.zones.head_granules(&self.memory.zones.of_unit(unit), unit)
    }

    /// Does what the fate of a unit asks for, which was found in `found`. Returns its state from then on.
    fn take_stock(&self, unit: u64, found: State, fate: Fate) -> State {
        let (entry, medium) = (self.unit(unit), self.medium());
        match fate {
            Fate::AsClosed => {
                entry.old.store(medium, 0, Relaxed);
                found.in_era(self.era)
            }
            Fate::OldSlab(number) => {
                if let Some(class) = self.memory.classes.get(number) {
                    self.distrust_slab(unit, class);
                    self.count_slab(class, 1);
                }
                entry.old.store(medium, 0, Relaxed);
                entry.link.store(medium, 0, Relaxed);
                State::slab(self.era, number, Use::Pending)
            }
            Fate::OldGranules => {
                let link = entry.link.load(medium, Relaxed);
                let old = (entry.taken.fetch_or(medium, link, Relaxed) | link) & !self.head_of(unit);
                entry.old.store(medium, old, Relaxed);
                let bytes = u64::from(old.count_ones()) << self.memory.zones.granule_log2();
                self.shared().large_base.fetch_add(medium, bytes, Relaxed);
                State::granules(self.era)
            }
            Fate::Damaged => {
                self.shut(unit);
                State::damaged(self.era)
            }
        }
    }

    /// Counts a slab of an earlier era with all of its blocks, or no longer.
    fn count_slab(&self, class: &Class, by: i64) {
        let bytes = i64::from(class.blocks) * i64::from(class.size) * by;
        self.shared().small_base.fetch_add(self.medium(), bytes as u64, Relaxed);
        self.shared().slab_units.fetch_add(self.medium(), by as u64, Relaxed);
    }

    /// Leaves nothing in `unit` that could be taken or swept.
    fn shut(&self, unit: u64) {
        let entry = self.unit(unit);
        entry.taken.store(self.medium(), !0, SeqCst);
        entry.old.store(self.medium(), 0, Relaxed);
        self.update_hints(unit);
    }

    /// What an earlier era left in `unit` contradicts what can be reached: it is set apart before it is swept.
    #[cold]
    pub(crate) fn set_apart(&self, unit: u64, seen: State) {
        let damaged = State::damaged(self.era);
        let state = &self.unit(unit).state;
        // ORDER: AcqRel: as an arrival.
        if state.compare_exchange(self.medium(), seen.0, damaged.0, AcqRel, Relaxed).is_err() {
            return;
        }
        if let Some(class) = seen.class().and_then(|class| self.memory.classes.get(class)) {
            self.count_slab(class, -1);
        }
        self.shut(unit);
    }

    /// What `unit` is, or will be once it arrives; without touching it. A unit that a crash left stays of its era.
    pub(crate) fn foresee(&self, unit: u64) -> State {
        let state = State(self.unit(unit).state.load(self.medium(), Relaxed));
        match () {
            () if state.era() == self.era => state,
            () if matches!(self.fate(unit, state), Fate::Damaged) => State::damaged(self.era),
            () if self.start == Start::Clean => state.in_era(self.era),
            () => state,
        }
    }

    /// Leaves a check in every unit that this era has touched. Nobody is inside.
    pub(crate) fn seal_units(&self) {
        for zone in self.zones() {
            for unit in self.units_in(&zone) {
                let entry = self.unit(unit);
                let state = State(entry.state.load(self.medium(), Relaxed));
                if state.era() == self.era {
                    entry.old.store(self.medium(), self.check_of(unit, state), Relaxed);
                }
            }
        }
    }

    /// A check of a unit in `state`: of its words and, if it is a slab, of which blocks are allocated. Never 0.
    fn check_of(&self, unit: u64, state: State) -> u64 {
        let entry = self.unit(unit);
        let load = |word: &terrace_medium::Word| word.load(self.medium(), Relaxed);
        let mut sum = sum_of([unit, load(&entry.taken), state.0, load(&entry.link)].into_iter(), 0);
        if let Some(class) = state.class().and_then(|class| self.memory.classes.get(class)) {
            for at in (0..u64::from(class.words)).step_by(LINE_WORDS) {
                let words = at..u64::from(class.words).min(at + LINE_WORDS as u64);
                sum = sum_of(words.map(|word| load(self.taken_word(unit, word)) & class.valid(word)), sum);
            }
        }
        sum.max(1)
    }
}

const LINE_WORDS: usize = 8;

/// Goes on with a checksum over a line's words, or fewer.
fn sum_of(words: impl Iterator<Item = u64>, sum: u64) -> u64 {
    let mut bytes = [0; LINE_WORDS * 8];
    bytes.as_chunks_mut().0.iter_mut().zip(words).for_each(|(bytes, word)| *bytes = word.to_le_bytes());
    xxh3_64_with_seed(&bytes, sum)
}
