//! A medium on which threads see each other's stores as the C11 memory model lets them, and on which the order of one place of the source can be missing.
//!
//! Threads run one at a time, under a [`Stage`](super::Stage), so what a thread is to see can be chosen at each of its loads. The medium holds the last value of each word; the ones before it are
//! kept beside, and where a thread may still load one of these, it may be put back for the time of the load.
//!
//! Each thread has a *view*: for each word, the oldest value that it may still load. A store that releases carries the view of its thread, and who loads it and acquires has that view from then on;
//! a read-modify-write carries on what the value carried that it took the place of. Barriers have a view in common; a store that is SeqCst is part of it, and a load that is sees its word
//! at least as that has it. A value that was loaded is not followed
//! by an older one of the same word. (This is the operational form of release and acquire that Kang et al. give in "A Promising Semantics for Relaxed-Memory Concurrency", POPL 2017, without the promises.)
//!
//! All of this is kept as it would be with all orders, and as it is in other *worlds*, in each of which one order is missing. What a thread may load in such a world and not as it would be is what the missing order is
//! needed for. A run is in one world: what is shown in it that is old is old by that. Of any others it is only noted what would be old, so one run tells of all orders that it passes.
//!
//! Bytes that two threads touch with nothing between that orders them are a [race](super::races), in any world.
//!
//! It errs on the side of order: a compare-and-swap that fails sees the last value, a store is never behind a load
//! of its thread that comes before it (which C11 allows, and processors do), a persist fence orders all loads and stores around it but for a store and the loads behind it, and a call begins and ends with a
//! barrier, for those who check its results go by the clock; but not the calls of threads that are [`apart`](super::Scenario). What is not in the medium (a lock of the process, an atomic) orders nothing here unless the product says
//! [`elsewhere`](terrace_medium::elsewhere); then it orders all who say so.

use super::model::{Differences, Missing, Model, Weak, Weakening, Weakenings, extent, losses};
use super::reach::{Chooser, Number, Reach};
use super::seen::{Ordered, Seen};
use super::stage::{THREADS_MAX, number};
use super::worlds::{World, Worlds};
use crate::Noted;
use crate::crash::Wrong;
use std::collections::BTreeMap;
use std::ops::Range;
use std::panic::Location;
use std::ptr::NonNull;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use terrace_medium::{Access, MappedMedium, Mapping, Medium, Order};

/// What is shown of the model.
#[derive(Default)]
struct State {
    model: Model,
    /// What the words held that are being stored to.
    before: Vec<u64>,
    /// What is shown to a thread that is old, and to which.
    swapped: Vec<Old>,
    shown_to: u64,
    chooser: Chooser,
}

/// A word that holds something old while a thread loads it.
struct Old {
    word: u64,
    /// The number of that value.
    chosen: Number,
    /// What the word holds in truth.
    truth: u64,
}

/// Lets threads see what is done to the medium below as the memory model does, with an order that is missing or with all, and notes what can be missing.
pub struct Weakened<M> {
    below: M,
    missing: Missing,
    reach: Reach,
    /// Threads whose calls begin and end without a barrier, a bit each.
    apart: u8,
    state: Arc<Mutex<State>>,
}

/// What can be weakened in what has been done to a [`Weakened`].
pub struct Passed(Arc<Mutex<State>>);

impl Passed {
    /// All of it.
    pub fn weakenings(&self) -> Weakenings {
        lock(&self.0).model.passed.clone()
    }

    /// Of each order that was missing, or looked at, which loads could have been of something older for it.
    pub fn differences(&self) -> BTreeMap<Weakening, Differences> {
        lock(&self.0).model.by_weakening(|model| &model.differences)
    }

    /// The races that there are for an order that is missing, or would be.
    pub fn raced(&self) -> BTreeMap<Weakening, Wrong> {
        lock(&self.0).model.by_weakening(|model| &model.raced)
    }
}

fn lock(state: &Mutex<State>) -> MutexGuard<'_, State> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

impl<M: Medium> Weakened<M> {
    /// Weakens what is done to `below`. The calls of the threads in `apart`, a bit each, begin and end without a barrier.
    pub fn over(below: M, missing: Missing, reach: Reach, apart: u8) -> Self {
        let mut state = State { chooser: Chooser::new(reach.seed), ..State::default() };
        if let Missing::One(it) = missing {
            state.model.worlds.insert(it, 0);
        }
        Self { below, missing, reach, apart, state: Arc::new(Mutex::new(state)) }
    }

    /// What can be weakened, as it is passed.
    pub fn passed(&self) -> Passed {
        Passed(self.state.clone())
    }

    /// The world that the run is in, if it is not as it would be.
    fn is(&self) -> Option<World> {
        matches!(self.missing, Missing::One(_)).then_some(0)
    }

    fn word(&self, word: u64) -> &AtomicU64 {
        assert!(word < self.below.len() as u64 / 8, "word {word} does not lie in the medium");
        // SAFETY: in bounds (checked) and aligned, since the base is; the medium keeps the range mapped.
        unsafe { AtomicU64::from_ptr(self.below.base().as_ptr().cast::<u64>().add(word as usize)) }
    }

    /// The words that `len` bytes at `at` lie in.
    fn words(&self, at: *const u8, len: usize) -> Range<u64> {
        let start = at.addr().wrapping_sub(self.below.base().addr().get()) as u64;
        start / 8..(start + len as u64).div_ceil(8)
    }

    /// The words hold again what they hold in truth: those that `is_meant`.
    fn restore(&self, state: &mut State, is_meant: impl Fn(u64) -> bool) {
        for old in state.swapped.extract_if(.., |old| is_meant(old.word)) {
            self.word(old.word).store(old.truth, Relaxed);
        }
    }

    /// Who comes to the medium does not find what another is shown.
    fn arrive(&self, state: &mut State, me: u64) {
        if state.shown_to != me {
            self.restore(state, |_| true);
            state.shown_to = me;
        }
    }

    /// Puts something old into `word` if `me` may load it, and it comes to that.
    fn show_old(&self, state: &mut State, me: u64, word: u64) {
        let Some(&number) = state.model.words.get(&word) else { return };
        let choice = state.model.choice(me, number, word, self.is());
        if state.model.threads[&me].old == 0 {
            return;
        }
        let Some(chosen) = state.chooser.choose(&self.reach, choice) else { return };
        state.model.thread(me).old -= 1;
        let truth = self.word(word).swap(state.model.values[number][chosen as usize].value, Relaxed);
        state.swapped.push(Old { word, chosen, truth });
    }
}

impl<M: Noted> Noted for Weakened<M> {
    fn note(&self, note: u64) {
        let (me, mut state) = (number(), lock(&self.state));
        self.restore(&mut state, |_| true);
        let is_apart = self.apart.checked_shr(me as u32).is_some_and(|bits| bits & 1 == 1);
        // Who is apart begins behind all that was there before.
        if !(is_apart && state.model.thread(me).has_called) {
            state.model.barrier(me, None);
        }
        let it = state.model.thread(me);
        // Calls begin with even notes and end with odd ones.
        (it.calls, it.old, it.has_called) = (note.is_multiple_of(2), self.reach.old, true);
        drop(state);
        self.below.note(note);
    }
    fn died(&self, thread: usize) {
        let mut state = lock(&self.state);
        self.restore(&mut state, |_| true);
        state.model.die(thread as u64);
    }
    fn wrong(&self) -> Option<Wrong> {
        let state = lock(&self.state);
        match self.is() {
            // With something old in it, it does not tell what would be.
            Some(is) => state.model.raced.get(&is).cloned(),
            None => state.model.race.clone(),
        }
    }
}

impl<M: MappedMedium> MappedMedium for Weakened<M> {
    fn new(mapping: Mapping) -> Self {
        Self::over(M::new(mapping), Missing::None, Reach::NONE, 0)
    }
    fn mapping(&self) -> &Mapping {
        self.below.mapping()
    }
}

// SAFETY: base and length are those of the medium below, which promises the same.
unsafe impl<M: Medium> Medium for Weakened<M> {
    const VOLATILE_CACHE: bool = M::VOLATILE_CACHE;

    fn base(&self) -> NonNull<u8> {
        self.below.base()
    }
    fn len(&self) -> usize {
        self.below.len()
    }
    fn write_back(&self, at: *const u8) {
        self.below.write_back(at);
    }
    fn fence(&self) {
        let (me, mut state) = (number(), lock(&self.state));
        self.restore(&mut state, |_| true);
        if M::VOLATILE_CACHE {
            state.model.thread(me).seen.each(Seen::fence);
        }
        drop(state);
        self.below.fence();
    }
    fn ordered(&self, order: Order, site: &'static Location<'static>) {
        let (me, mut state) = (number(), lock(&self.state));
        self.arrive(&mut state, me);
        if state.model.thread(me).calls {
            for weakening in losses(order).iter().map(|&weak| Weakening { site, weak }) {
                let is_new = state.model.passed.insert(weakening);
                if is_new && self.missing == Missing::Each {
                    let next = state.model.worlds.len() as World;
                    state.model.worlds.insert(weakening, next);
                }
            }
        }
        match order {
            Order::Load(_) | Order::Store(_) | Order::Rmw(_) | Order::RmwFailed(_) => {
                state.model.thread(me).order = Some((order, site));
            }
            Order::Barrier => {
                self.restore(&mut state, |_| true);
                let missing = state.model.worlds.get(&Weakening { site, weak: Weak::Total }).copied();
                state.model.barrier(me, missing);
            }
            Order::Elsewhere => state.model.meet_elsewhere(me),
        }
    }
    fn before_access(&self, access: Access, at: *const u8) {
        self.below.before_access(access, at);
        let (len, stores) = extent(access);
        let (me, words) = (number(), self.words(at, len));
        let mut state = lock(&self.state);
        let state = &mut *state;
        self.arrive(state, me);
        if stores {
            self.restore(state, |_| true);
            state.before = words.clone().map(|word| self.word(word).load(Relaxed)).collect();
        } else {
            self.restore(state, |word| words.contains(&word));
        }
        if !state.model.thread(me).calls {
            return;
        }
        let ordered = state.model.ordered_now(me, access);
        if let Some(&number) = state.model.words.get(&words.start) {
            state.model.enter_total(me, number, &ordered);
        }
        if !stores {
            words.for_each(|word| self.show_old(state, me, word));
        }
    }
    fn accessed(&self, access: Access, at: *const u8, site: &'static Location<'static>) {
        self.below.accessed(access, at, site);
        let (len, stores) = extent(access);
        let (me, words) = (number(), self.words(at, len));
        let mut state = lock(&self.state);
        let state = &mut *state;
        self.arrive(state, me);
        let ordered = state.model.ordered_now(me, access);
        let calls = state.model.thread(me).calls;
        if calls {
            state.model.tick(me);
        }
        let before = if stores { std::mem::take(&mut state.before) } else { Vec::new() };
        for (at, word) in words.clone().enumerate() {
            if !stores {
                let Some(&number) = state.model.words.get(&word).filter(|_| calls) else { continue };
                let shown = state.swapped.iter().find(|old| old.word == word).map(|old| old.chosen);
                let value = shown.unwrap_or_else(|| state.model.last(number));
                state.model.loaded(me, number, value, &ordered);
            } else if calls {
                let number = state.model.word(word, before[at]);
                let value = self.word(word).load(Relaxed);
                state.model.stored(me, number, value, access == Access::Rmw, &ordered);
            } else if let Some(&number) = state.model.words.get(&word) {
                // All that comes behind it begins with a barrier.
                let value = self.word(word).load(Relaxed);
                let by_all = Ordered { is_total: true, ..Ordered::default() };
                state.model.stored(me, number, value, false, &Worlds::all(by_all));
            }
        }
        if calls && me < THREADS_MAX as u64 {
            state.model.judge_races(me, access, words.clone(), site);
        }
        // The bytes that are read are looked at after this.
        if !matches!(access, Access::Read(_)) {
            self.restore(state, |word| words.contains(&word));
        }
    }
    fn persisted_at(&self, site: &'static Location<'static>) {
        self.below.persisted_at(site);
    }
    fn prefetched(&self, at: *const u8) {
        self.below.prefetched(at);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Layered;
    use crate::crash::{Memory, note_begin, note_end};
    use crate::schedule::{Aim, Job, Policy, Scheduled, Stage};
    use std::collections::BTreeSet;
    use std::sync::atomic::Ordering::{AcqRel, Acquire, Release, SeqCst};
    use terrace_medium::{Offset, Region, Word, full_barrier};

    type Thread = fn(&Region<Layered<true>>) -> u64;

    const X: Offset<Word> = Offset::new(64);
    const Y: Offset<Word> = Offset::new(128);
    const Z: Offset<Word> = Offset::new(192);

    fn run<const N: usize>(
        stage: &Stage,
        weakening: Option<Weakening>,
        threads: [Thread; N],
        seed: u64,
    ) -> (Weakenings, [u64; N]) {
        let memory = Memory::<true>::zeroed(4096, 4096).unwrap();
        let missing = weakening.map_or(Missing::None, Missing::One);
        let below = Weakened::over(memory, missing, Reach::of_run(seed), 0);
        let passed = below.passed();
        let region = Arc::new(Region::new(Layered::over(Arc::new(Scheduled::over(below)))));
        let results: [Arc<AtomicU64>; N] = std::array::from_fn(|_| Arc::default());
        let job = |number: usize| -> Job {
            let (region, result, work) = (region.clone(), results[number].clone(), threads[number]);
            Box::new(move || {
                region.medium().note(note_begin(number));
                result.store(work(&region), Relaxed);
                region.medium().note(note_end(number));
            })
        };
        let ran = stage.run((0..N).map(job).collect(), &Policy::Random { one_in: 2 }, seed);
        assert_eq!(ran.wrong, None);
        (passed.weakenings(), results.map(|result| result.load(Relaxed)))
    }

    /// Whether these threads ever come to `wrong`; and if they do not, which of their orders are needed for that.
    fn is_needed<const N: usize>(threads: [Thread; N], wrong: [u64; N]) -> Option<Vec<Weak>> {
        let stage = Stage::new();
        let all: Weakenings = (0..50).flat_map(|seed| run(&stage, None, threads, seed).0).collect();
        let comes = |weakening| (0..1000).any(|seed| run(&stage, weakening, threads, seed).1 == wrong);
        if comes(None) {
            return None;
        }
        let needed = all.into_iter().filter(|&weakening| comes(Some(weakening)));
        let mut needed: Vec<Weak> = needed.map(|weakening| weakening.weak).collect();
        needed.sort();
        Some(needed)
    }

    const SEND: Thread = |region| {
        region.at(X).store(region.medium(), 1, Relaxed);
        region.at(Y).store(region.medium(), 1, Release);
        7
    };
    const RECEIVE: Thread = |region| {
        let flag = region.at(Y).load(region.medium(), Acquire);
        flag * 2 + region.at(X).load(region.medium(), Relaxed)
    };

    #[test]
    fn a_message_that_is_passed_needs_a_release_and_an_acquire() {
        let both = Some(vec![Weak::Acquire, Weak::Release]);
        assert_eq!(is_needed([SEND, RECEIVE], [7, 2]), both);
        let by_exchange: Thread = |region| {
            region.at(X).store(region.medium(), 1, Relaxed);
            region.at(Y).fetch_or(region.medium(), 1, AcqRel);
            7
        };
        assert_eq!(is_needed([by_exchange, RECEIVE], [7, 2]), both);
        // A Release keeps what was before it from passing it, and not itself from what is behind.
        let released_before: Thread = |region| {
            region.at(X).store(region.medium(), 1, Release);
            region.at(Y).store(region.medium(), 1, Relaxed);
            7
        };
        assert_eq!(is_needed([released_before, RECEIVE], [7, 2]), None);
        // An Acquire has nothing to do with what another word says.
        let acquires_another: Thread = |region| {
            let flag = region.at(Y).load(region.medium(), Relaxed);
            region.at(Z).load(region.medium(), Acquire);
            flag * 2 + region.at(X).load(region.medium(), Relaxed)
        };
        assert_eq!(is_needed([SEND, acquires_another], [7, 2]), None);
    }

    #[test]
    fn bytes_are_passed_as_words_are() {
        let send: Thread = |region| {
            // SAFETY: nobody looks at them before the word says so.
            unsafe { region.copy_in(64, &[1; 8]) };
            region.at(Y).store(region.medium(), 1, Release);
            7
        };
        let receive: Thread = |region| {
            let flag = region.at(Y).load(region.medium(), Acquire);
            // SAFETY: nobody writes them any more if the word says so.
            flag * 2 + unsafe { region.bytes(64, 8) }.map_or(9, |bytes| u64::from(bytes[3]))
        };
        assert_eq!(is_needed([send, receive], [7, 2]), Some(vec![Weak::Acquire, Weak::Release]));
    }

    #[test]
    fn a_message_goes_through_the_hands_of_others() {
        let forward: Thread = |region| {
            if region.at(Y).load(region.medium(), Acquire) == 1 {
                region.at(Z).store(region.medium(), 1, Release);
            }
            8
        };
        let receive: Thread = |region| {
            let flag = region.at(Z).load(region.medium(), Acquire);
            flag * 2 + region.at(X).load(region.medium(), Relaxed)
        };
        let needed = Some(vec![Weak::Acquire, Weak::Acquire, Weak::Release, Weak::Release]);
        assert_eq!(is_needed([SEND, forward, receive], [7, 8, 2]), needed);
        // A read-modify-write hands on what it took the place of, whatever its own order is.
        let count: Thread = |region| {
            region.at(Y).fetch_add(region.medium(), 2, Relaxed);
            8
        };
        assert_eq!(is_needed([SEND, count, RECEIVE], [7, 8, 6]), Some(vec![Weak::Acquire, Weak::Release]));
        let store: Thread = |region| {
            region.at(Y).store(region.medium(), 3, Relaxed);
            8
        };
        assert_eq!(is_needed([SEND, store, RECEIVE], [7, 8, 6]), None);
    }

    #[test]
    fn what_one_word_held_is_never_seen_behind_what_it_holds() {
        let count: Thread = |region| {
            (1..=4).for_each(|value| region.at(X).store(region.medium(), value, Relaxed));
            7
        };
        let watch: Thread = |region| {
            let values: Vec<u64> = (0..6).map(|_| region.at(X).load(region.medium(), Relaxed)).collect();
            u64::from(!values.is_sorted())
        };
        assert_eq!(is_needed([count, watch], [7, 1]), Some(vec![]));
    }

    #[test]
    fn of_two_who_announce_themselves_one_sees_the_other_by_a_total_order_only() {
        let one: Thread = |region| {
            region.at(X).store(region.medium(), 1, SeqCst);
            // A step more, before the end of the call, by which all is visible.
            region.at(Y).load(region.medium(), SeqCst) + region.at(Z).load(region.medium(), Relaxed)
        };
        let other: Thread = |region| {
            region.at(Y).store(region.medium(), 1, Relaxed);
            full_barrier(region.medium());
            region.at(X).load(region.medium(), Relaxed)
        };
        assert_eq!(is_needed([one, other], [0, 0]), Some(vec![Weak::Total; 3]));
        let releases: Thread = |region| {
            region.at(X).store(region.medium(), 1, Release);
            region.at(Y).load(region.medium(), Acquire)
        };
        assert_eq!(is_needed([releases, other], [0, 0]), None);
    }

    #[test]
    fn who_waits_for_a_store_sees_it() {
        let wait: Thread = |region| {
            while region.at(Y).load(region.medium(), Relaxed) == 0 {}
            7
        };
        let tell: Thread = |region| {
            region.at(Y).store(region.medium(), 1, Relaxed);
            8
        };
        assert_eq!(is_needed([wait, tell], [0, 0]), Some(vec![]));
    }

    /// What came of these threads, with what is missing, nothing old shown.
    fn look<const N: usize>(
        stage: &Stage,
        missing: Missing,
        threads: [Thread; N],
        apart: u8,
        seed: u64,
    ) -> (Passed, Option<Wrong>) {
        let memory = Memory::<true>::zeroed(4096, 4096).unwrap();
        let below = Arc::new(Scheduled::over(Weakened::over(memory, missing, Reach::NONE, apart)));
        let passed = below.below().passed();
        let region = Arc::new(Region::new(Layered::over(below)));
        let job = |number: usize| -> Job {
            let (region, work) = (region.clone(), threads[number]);
            Box::new(move || {
                // Two calls each: who is apart begins with a barrier, as all do.
                for call in [2 * number, 2 * number + 1] {
                    region.medium().note(note_begin(call));
                    work(&region);
                    region.medium().note(note_end(call));
                }
            })
        };
        let ran = stage.run((0..N).map(job).collect(), &Policy::Random { one_in: 2 }, seed);
        assert_eq!(ran.wrong, None);
        (passed, region.medium().wrong())
    }

    /// Sends bytes, once; and reads them if they are there.
    const SEND_BYTES: Thread = |region| {
        if region.at(Z).load(region.medium(), Relaxed) == 0 {
            region.at(Z).store(region.medium(), 1, Relaxed);
            // SAFETY: nobody looks at them before the word says so.
            unsafe { region.copy_in(64, &[1; 8]) };
            region.at(Y).store(region.medium(), 1, Release);
        }
        7
    };
    const READ_BYTES: Thread = |region| match region.at(Y).load(region.medium(), Acquire) {
        // SAFETY: nobody writes them any more if the word says so.
        1 => unsafe { region.bytes(64, 8) }.map_or(9, |bytes| u64::from(bytes[3])),
        _ => 8,
    };

    #[test]
    fn bytes_that_are_read_without_being_acquired_are_a_race() {
        let stage = Stage::new();
        let mut needed = BTreeSet::new();
        for seed in 0..200 {
            let (passed, wrong) = look(&stage, Missing::Each, [SEND_BYTES, READ_BYTES], 0b11, seed);
            assert_eq!(wrong, None);
            for (weakening, race) in passed.raced() {
                needed.insert(weakening.weak);
                assert!(race.contains("thread 1 comes at") && race.contains("written"), "{race}");
                let (again, wrong) =
                    look(&stage, Missing::One(weakening), [SEND_BYTES, READ_BYTES], 0b11, seed);
                assert_eq!(
                    (wrong, again.raced().len()),
                    (Some(race), 1),
                    "it is one in a world of its own, too"
                );
            }
        }
        assert_eq!(needed, [Weak::Acquire, Weak::Release].into());
    }

    #[test]
    fn bytes_that_are_written_again_after_they_were_read_are_a_race_unless_the_reader_has_said_that_it_is_done()
     {
        let read: Thread = |region| {
            // SAFETY: who writes them waits for the word; or should.
            _ = unsafe { region.bytes(64, 8) }.map(|bytes| bytes[3]);
            region.at(Y).store(region.medium(), 1, Release);
            7
        };
        let write_behind: Thread = |region| {
            if region.at(Y).load(region.medium(), Acquire) == 2 {
                // SAFETY: nobody reads them any more.
                unsafe { region.copy_in(64, &[1; 8]) };
            }
            8
        };
        let read_once: Thread = |region| {
            if region.at(Z).load(region.medium(), Relaxed) == 0 {
                // SAFETY: as above.
                _ = unsafe { region.bytes(64, 8) }.map(|bytes| bytes[3]);
                region.at(Z).store(region.medium(), 1, Relaxed);
                region.at(Y).store(region.medium(), 2, Release);
            }
            7
        };
        let write: Thread = |region| {
            // SAFETY: a race, which is what is looked for.
            unsafe { region.copy_in(64, &[1; 8]) };
            8
        };
        let stage = Stage::new();
        let look = |threads, seed| look(&stage, Missing::Each, threads, 0b11, seed);
        let sound = (0..100).map(|seed| look([read_once, write_behind], seed));
        let mut needed = BTreeSet::new();
        for (passed, wrong) in sound {
            assert_eq!(wrong, None);
            needed.extend(passed.raced().keys().map(|weakening| weakening.weak));
        }
        assert_eq!(needed, [Weak::Acquire, Weak::Release].into());
        assert!((0..100).any(|seed| look([read, write], seed).1.is_some()));
    }

    #[test]
    fn one_run_tells_of_all_orders_what_a_run_without_each_does() {
        let stage = Stage::new();
        let exchange: Thread = |region| {
            region.at(X).fetch_add(region.medium(), 1, AcqRel);
            full_barrier(region.medium());
            region.at(Y).store(region.medium(), 1, SeqCst);
            region.at(Z).load(region.medium(), SeqCst) + region.at(X).load(region.medium(), Acquire)
        };
        let threads = [SEND, exchange, RECEIVE, READ_BYTES];
        let (mut all, mut differing) = (0, 0);
        for (seed, apart) in (0..60).flat_map(|seed| [(seed, 0), (seed, 0b1111), (seed, 0b0101)]) {
            let (each, _) = look(&stage, Missing::Each, threads, apart, seed);
            for weakening in each.weakenings() {
                let (one, _) = look(&stage, Missing::One(weakening), threads, apart, seed);
                assert_eq!(each.differences().get(&weakening), one.differences().get(&weakening));
                assert_eq!(each.raced().get(&weakening), one.raced().get(&weakening));
                all += 1;
                differing += u32::from(!one.differences().is_empty());
            }
        }
        assert!(all > 1000 && differing > 100, "{differing} of {all}");
    }

    #[test]
    fn who_is_apart_need_not_see_what_was_done_before_its_call() {
        let store: Thread = |region| {
            region.at(X).store(region.medium(), 1, Relaxed);
            7
        };
        let old = |apart| {
            let stage = Stage::new();
            (0..200).any(|seed| {
                let memory = Memory::<true>::zeroed(4096, 4096).unwrap();
                let reach = Reach {
                    aim: Aim::Drawn { one_in: 1, by_word: false, only_missing: false },
                    ..Reach::of_run(seed)
                };
                let below = Weakened::over(memory, Missing::None, reach, apart);
                let region = Arc::new(Region::new(Layered::over(Arc::new(Scheduled::over(below)))));
                let stored_first = Arc::new(AtomicU64::new(0));
                let result = Arc::new(AtomicU64::new(9));
                let (one, other) = (region.clone(), region.clone());
                let (ended, seen, found) = (stored_first.clone(), stored_first, result.clone());
                let writes: Job = Box::new(move || {
                    one.medium().note(note_begin(0));
                    store(&one);
                    one.medium().note(note_end(0));
                    ended.store(1, Relaxed);
                });
                let reads: Job = Box::new(move || {
                    other.medium().note(note_begin(1));
                    other.at(Y).load(other.medium(), Relaxed);
                    other.medium().note(note_end(1));
                    let is_behind = seen.load(Relaxed) == 1;
                    other.medium().note(note_begin(2));
                    let value = other.at(X).load(other.medium(), Relaxed);
                    other.medium().note(note_end(2));
                    found.store(if is_behind { value } else { 9 }, Relaxed);
                });
                let ran = stage.run(vec![writes, reads], &Policy::Random { one_in: 2 }, seed);
                assert_eq!(ran.wrong, None);
                result.load(Relaxed) == 0
            })
        };
        assert!(old(0b11) && old(0b10) && old(0b01), "a barrier takes two");
        assert!(!old(0b00));
    }
}
