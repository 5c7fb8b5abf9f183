//! A medium on which threads see each other's stores as the C11 memory model allows. One ordering
//! of the source can be weakened.
//!
//! Threads run one at a time, under a [`Scheduler`](super::Scheduler), so the value of each load
//! can be chosen. The medium holds the last value of each word, and this layer keeps the earlier
//! ones. If a thread may still load an earlier value, that value can be put back for the duration
//! of the load.
//!
//! Each thread has a *view*: for each word, the oldest value that it may still load. A release
//! store carries the view of its thread; an acquire load of that value adds the view to the loading
//! thread's. A read-modify-write also carries what the replaced value carried. All barriers share
//! one view; a SeqCst store is part of it, and a SeqCst load sees its word at least as new as that
//! view has it. After a load, a thread never loads an older value of the same word. (This is the
//! operational form of release and acquire of Kang et al., "A Promising Semantics for
//! Relaxed-Memory Concurrency", POPL 2017, without the promises.)
//!
//! Everything is tracked twice: with all orderings in place, and as in the run, where one may be
//! weakened ([`Variants`]). The difference is what the ordering is needed for.
//!
//! If a thread crashes, stores that the weakened ordering would have kept before later ones can be
//! lost with it: see [`tail`](super::tail). A thread sees the stores of a crashed thread when it
//! observes the crash (see [`ProcessGroup`](crate::ProcessGroup)), but not because of the crash
//! alone.
//!
//! Two accesses to the same bytes by different threads that nothing orders are a
//! [race](super::races).
//!
//! If a thread does not have to see other stores to a word, for want of an ordering, its own store
//! there may take its place before them. The word then keeps their value.
//!
//! The model errs on the side of order:
//!
//! * With all orderings in place, a store is the last one to its word, and a failing
//!   compare-and-swap sees that.
//! * A store never becomes visible before an earlier load of its thread is done (load buffering),
//!   although C11 allows it and processors do it.
//! * A persist fence orders all loads and stores around it, except an earlier store with a later
//!   load.
//! * A call begins and ends with a barrier, because the checks of its results go by time. The calls
//!   of threads that are [`apart`](super::Scenario) do not.
//!
//! State outside the medium (a lock of the process, an atomic) orders nothing here unless the
//! product calls [`elsewhere`](terrace_medium::elsewhere). That orders all threads that call it.

use super::model::{Model, Weak, Weakening, Weakenings, extent, losses};
use super::reach::{Aim, Choice, Chooser, Number, Reach};
use super::seen::{Ordered, Seen};
use super::stage::{THREADS_MAX, number, sees_old, stores_early};
use super::tail::LateStore;
use super::worlds::Variants;
use crate::CallObserver;
use crate::crash::Violation;
use crate::points;
use std::ops::Range;
use std::panic::Location;
use std::ptr::NonNull;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use terrace_medium::{Access, MappedMedium, Mapping, Medium, Order};

/// The state of the model, and what it currently shows to threads.
#[derive(Default)]
struct State {
    model: Model,
    /// The values of words before the current store to them.
    before: Vec<u64>,
    /// Stale values currently shown to a thread, and that thread.
    swapped: Vec<StaleWord>,
    shown_to: u64,
    /// A store in progress that takes its place before other threads' stores; and how many there
    /// were.
    overtaken: Option<StaleWord>,
    overtaken_times: u64,
    /// Number of stores that were lost with a crashed thread.
    lost_stores: u64,
    chooser: Chooser,
}

/// A word that shows a stale value while a thread loads it.
struct StaleWord {
    word: u64,
    /// The number of the stale value.
    chosen: Number,
    /// The word's actual value.
    actual: u64,
}

/// Shows threads the medium below as the memory model allows, with all orderings in place or one
/// weakened. Records which orderings can be weakened.
pub struct Weakened<M> {
    below: M,
    reach: Reach,
    /// Threads whose calls begin and end without a barrier, one bit each.
    apart: u8,
    state: Arc<Mutex<State>>,
}

/// The orderings that a run on a [`Weakened`] used.
pub struct UsedOrderings(Arc<Mutex<State>>);

impl UsedOrderings {
    /// All of them.
    pub fn weakenings(&self) -> Weakenings {
        lock(&self.0).model.passed.clone()
    }

    /// Whether a crashed thread lost stores while every store was the last one to its word when it
    /// was made. Only then does the trace of the medium show which states a power failure may
    /// leave.
    pub fn has_lost_stores(&self) -> bool {
        let state = lock(&self.0);
        state.lost_stores != 0 && state.overtaken_times == 0
    }
}

fn lock(state: &Mutex<State>) -> MutexGuard<'_, State> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

impl<M: Medium> Weakened<M> {
    /// A model over `below`. The calls of the threads in `apart`, one bit each, begin and end
    /// without a barrier.
    pub fn over(below: M, missing: Option<Weakening>, reach: Reach, apart: u8) -> Self {
        let (model, chooser) = (Model::without(missing), Chooser::new(reach.seed));
        let state = State { model, chooser, ..State::default() };
        Self { below, reach, apart, state: Arc::new(Mutex::new(state)) }
    }

    /// The medium below.
    pub fn below(&self) -> &M {
        &self.below
    }

    /// A handle to the orderings used, which remain readable after the run.
    pub fn passed(&self) -> UsedOrderings {
        UsedOrderings(self.state.clone())
    }

    fn word(&self, word: u64) -> &AtomicU64 {
        assert!(word < self.below.len() as u64 / 8, "word {word} is not in the medium");
        // SAFETY: in bounds (checked) and aligned, since the base is; the medium keeps the range
        // mapped.
        unsafe { AtomicU64::from_ptr(self.below.base().as_ptr().cast::<u64>().add(word as usize)) }
    }

    /// The words that contain `len` bytes at `at`.
    fn words(&self, at: *const u8, len: usize) -> Range<u64> {
        let start = at.addr().wrapping_sub(self.below.base().addr().get()) as u64;
        start / 8..(start + len as u64).div_ceil(8)
    }

    /// Restores the actual values of the words selected by `is_meant`.
    fn restore(&self, state: &mut State, is_meant: impl Fn(u64) -> bool) {
        for old in state.swapped.extract_if(.., |old| is_meant(old.word)) {
            self.word(old.word).store(old.actual, Relaxed);
        }
    }

    /// Hides stale values that are shown to another thread than `me`.
    fn hide_from_others(&self, state: &mut State, me: u64) {
        if state.shown_to != me {
            self.restore(state, |_| true);
            state.shown_to = me;
        }
    }

    /// Decides whether the store that `me` is about to do takes its place before other stores to
    /// the word, if `me` does not have to see those. In that case a read-modify-write finds the
    /// value before them, and they overwrite the store of `me`.
    fn place_before_others(&self, state: &mut State, me: u64, word: u64) {
        let Some(&number) = state.model.words.get(&word) else { return };
        let Some(choice) = state.model.overtaken(me, number, word) else { return };
        if self.reach.aim == Aim::Cued && !stores_early(choice.point) {
            return;
        }
        if state.model.threads[&me].old == 0 {
            return;
        }
        let Some(chosen) = self.chosen(state, choice) else { return };
        let chosen = if state.model.has_room_behind(number, chosen) { chosen } else { choice.oldest };
        state.model.has_diverged = true;
        state.overtaken = Some(self.put_stale(state, me, number, word, chosen));
        state.overtaken_times += 1;
    }

    /// Shows a stale value of `word`, if `me` may load one and the run's choice says so.
    fn show_stale(&self, state: &mut State, me: u64, word: u64) {
        let Some(&number) = state.model.words.get(&word) else { return };
        let choice = state.model.choice(me, number, word);
        if state.model.threads[&me].old == 0 {
            return;
        }
        let Some(chosen) = self.chosen(state, choice) else { return };
        state.model.has_diverged |= chosen < choice.first_sound;
        let old = self.put_stale(state, me, number, word, chosen);
        state.swapped.push(old);
    }

    /// Which of the possible stale values is shown, if any.
    fn chosen(&self, state: &mut State, choice: Choice) -> Option<Number> {
        match self.reach.aim {
            Aim::Cued => (choice.oldest < choice.last && sees_old(choice.point)).then_some(choice.oldest),
            _ => state.chooser.choose(&self.reach, choice),
        }
    }

    /// Puts the value with this number into `word`, for the next access of `me`.
    fn put_stale(&self, state: &mut State, me: u64, number: usize, word: u64, chosen: Number) -> StaleWord {
        state.model.thread(me).old -= 1;
        let actual = self.word(word).swap(state.model.values[number][chosen as usize].value, Relaxed);
        StaleWord { word, chosen, actual }
    }
}

impl<M: CallObserver> Weakened<M> {
    /// Removes stores of the crashed thread `dead` that may not have been made yet, as the run's
    /// choice says.
    fn lose_late_stores(&self, state: &mut State, dead: u64) {
        for (late, before) in state.model.late(dead) {
            let LateStore { number, word, value } = late;
            let differs = self.word(word).load(Relaxed) != before;
            let choice = Choice { word, point: None, oldest: 0, first_sound: 1, last: value };
            let is_late = match self.reach.aim {
                Aim::Cued => differs,
                _ => state.chooser.choose(&self.reach, choice).is_some(),
            };
            if is_late {
                self.word(word).store(before, Relaxed);
                self.below.unmake(8 * word, before);
                state.lost_stores += 1;
                state.model.has_diverged = true;
                state.model.stored(dead, number, before, false, &Variants::default());
            }
        }
    }
}

impl<M: CallObserver> CallObserver for Weakened<M> {
    fn mark_call(&self, mark: u64) {
        let (me, mut state) = (number(), lock(&self.state));
        self.restore(&mut state, |_| true);
        let is_apart = self.apart.checked_shr(me as u32).is_some_and(|bits| bits & 1 == 1);
        // A thread that is apart has a barrier before its first call only.
        if !(is_apart && state.model.thread(me).has_called) {
            state.model.barrier(me, false);
        }
        let it = state.model.thread(me);
        // Calls begin with even marks and end with odd ones.
        (it.calls, it.old, it.has_called) = (mark.is_multiple_of(2), self.reach.old, true);
        drop(state);
        self.below.mark_call(mark);
    }
    fn died(&self, thread: usize) {
        let mut state = lock(&self.state);
        let state = &mut *state;
        self.restore(state, |_| true);
        self.lose_late_stores(state, thread as u64);
    }
    fn crash_observed(&self, dead: usize) {
        let (me, mut state) = (number(), lock(&self.state));
        if me < THREADS_MAX as u64 {
            state.model.observe_crash(me, dead as u64);
        }
    }
    fn wrong(&self) -> Option<Violation> {
        let state = lock(&self.state);
        match state.model.missing {
            // After a stale value was shown, the run no longer tells what would happen with all
            // orderings.
            Some(_) => state.model.raced.clone(),
            None => state.model.race.clone(),
        }
    }
}

impl<M: MappedMedium> MappedMedium for Weakened<M> {
    fn new(mapping: Mapping) -> Self {
        Self::over(M::new(mapping), None, Reach::NONE, 0)
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
            state.model.thread(me).tail.keep(false);
        }
        drop(state);
        self.below.fence();
    }
    fn ordered(&self, order: Order, site: &'static Location<'static>) {
        let (me, mut state) = (number(), lock(&self.state));
        self.hide_from_others(&mut state, me);
        if state.model.thread(me).calls {
            let point = points::current();
            state.model.passed.extend(losses(order).iter().map(|&weak| Weakening { site, weak, point }));
        }
        match order {
            Order::Load(_) | Order::Store(_) | Order::Rmw(_) | Order::RmwFailed(_) => {
                state.model.thread(me).order = Some((order, (site, points::current())));
            }
            Order::Barrier | Order::GlobalBarrier => {
                self.restore(&mut state, |_| true);
                let missing = state.model.is_weakened(site, Weak::Total);
                match order {
                    Order::GlobalBarrier => state.model.barrier_of_all(me, missing),
                    _ => state.model.barrier(me, missing),
                }
            }
            Order::External => state.model.synchronise_elsewhere(me),
        }
    }
    fn before_access(&self, access: Access, at: *const u8) {
        let (len, stores) = extent(access);
        let (me, words) = (number(), self.words(at, len));
        let mut state = lock(&self.state);
        let state = &mut *state;
        self.hide_from_others(state, me);
        if stores {
            self.restore(state, |_| true);
            self.below.before_access(access, at);
            state.before = words.clone().map(|word| self.word(word).load(Relaxed)).collect();
        } else {
            self.restore(state, |word| words.contains(&word));
            self.below.before_access(access, at);
        }
        if !state.model.thread(me).calls {
            return;
        }
        let ordered = state.model.ordered_now(me, access);
        if let Some(&number) = state.model.words.get(&words.start) {
            state.model.enter_total(me, number, &ordered);
        }
        match access {
            Access::Store | Access::Rmw => self.place_before_others(state, me, words.start),
            _ if !stores => words.for_each(|word| self.show_stale(state, me, word)),
            _ => {}
        }
    }
    fn accessed(&self, access: Access, at: *const u8, site: &'static Location<'static>) {
        self.below.accessed(access, at, site);
        let (len, stores) = extent(access);
        let (me, words) = (number(), self.words(at, len));
        let mut state = lock(&self.state);
        let state = &mut *state;
        self.hide_from_others(state, me);
        let ordered = state.model.ordered_now(me, access);
        let calls = state.model.thread(me).calls;
        if calls {
            state.model.tick(me);
        }
        let before = if stores { std::mem::take(&mut state.before) } else { Vec::new() };
        let overtaken = state.overtaken.take();
        for (at, word) in words.clone().enumerate() {
            if let Some(StaleWord { word, chosen, actual }) = overtaken {
                self.word(word).store(actual, Relaxed);
                let number = state.model.words[&word];
                match access {
                    Access::RmwFailed => state.model.loaded(me, number, chosen, &ordered),
                    _ => state.model.stored_behind(me, number, chosen, access == Access::Rmw, &ordered),
                }
            } else if !stores {
                let Some(&number) = state.model.words.get(&word).filter(|_| calls) else { continue };
                let shown = state.swapped.iter().find(|old| old.word == word).map(|old| old.chosen);
                let value = shown.unwrap_or_else(|| state.model.last(number));
                state.model.loaded(me, number, value, &ordered);
            } else if calls {
                let number = state.model.word(word, before[at]);
                let value = self.word(word).load(Relaxed);
                let is_exchange = access == Access::Rmw;
                state.model.stored(me, number, value, is_exchange, &ordered);
                if !is_exchange {
                    let value = state.model.last(number);
                    state.model.thread(me).tail.add(LateStore { number, word, value });
                }
            } else if let Some(&number) = state.model.words.get(&word) {
                // Everything after it begins with a barrier.
                let value = self.word(word).load(Relaxed);
                let by_all = Ordered { is_total: true, ..Ordered::default() };
                state.model.stored(me, number, value, false, &Variants::both(by_all));
            }
        }
        if calls && me < THREADS_MAX as u64 {
            state.model.find_races(me, access, words.clone(), site);
        }
        // The caller looks at the bytes of a read after this.
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
mod tests;
