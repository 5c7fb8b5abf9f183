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
//! All of this is kept twice: as it would be with all orders, and as it is in the run, where one may be missing ([`Worlds`]). The difference between the two is what the missing order is needed for.
//!
//! Who dies may take stores along that the missing order would have kept before later ones: see [`tail`](super::tail). What the dead did is seen by who is told of the death (see [`Company`](crate::Company)), and by nobody for the death alone.
//!
//! Bytes that two threads touch with nothing between that orders them are a [race](super::races).
//!
//! Where a thread does not have to see what others have stored to a word, for want of an order, what it stores there itself may come before that: then theirs is what the word holds in the end.
//!
//! It errs on the side of order: with all orders a store is the last one to its word, and a compare-and-swap that fails sees that; a store is never behind a load
//! of its thread that comes before it (which C11 allows, and processors do), a persist fence orders all loads and stores around it but for a store and the loads behind it, and a call begins and ends with a
//! barrier, for those who check its results go by the clock; but not the calls of threads that are [`apart`](super::Scenario). What is not in the medium (a lock of the process, an atomic) orders nothing here unless the product says
//! [`elsewhere`](terrace_medium::elsewhere); then it orders all who say so.

use super::model::{Model, Weak, Weakening, Weakenings, extent, losses};
use super::reach::{Aim, Choice, Chooser, Number, Reach};
use super::seen::{Ordered, Seen};
use super::stage::{THREADS_MAX, number, sees_old, stores_early};
use super::tail::Late;
use super::worlds::Worlds;
use crate::Noted;
use crate::crash::Wrong;
use crate::points;
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
    /// A store under way that comes before what others have stored since; and how often there was one.
    overtaken: Option<Old>,
    overtaken_times: u64,
    /// Stores that somebody who died has taken along.
    taken_along: u64,
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

    /// Whether somebody who died has taken stores along; and otherwise each store is the last one to its word when it is made, so that what was done to the medium tells what a crash may leave.
    pub fn has_taken_along(&self) -> bool {
        let state = lock(&self.0);
        state.taken_along != 0 && state.overtaken_times == 0
    }
}

fn lock(state: &Mutex<State>) -> MutexGuard<'_, State> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

impl<M: Medium> Weakened<M> {
    /// Weakens what is done to `below`. The calls of the threads in `apart`, a bit each, begin and end without a barrier.
    pub fn over(below: M, missing: Option<Weakening>, reach: Reach, apart: u8) -> Self {
        let (model, chooser) = (Model::without(missing), Chooser::new(reach.seed));
        let state = State { model, chooser, ..State::default() };
        Self { below, reach, apart, state: Arc::new(Mutex::new(state)) }
    }

    /// The medium below.
    pub fn below(&self) -> &M {
        &self.below
    }

    /// What can be weakened, as it is passed.
    pub fn passed(&self) -> Passed {
        Passed(self.state.clone())
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

    /// The store that `me` comes to need not be the last one to its word: others' stores may come behind it, which it does not have to see. Then it has its place before them, if it comes to that: an exchange finds what was there
    /// before them, and what `me` stores is gone with them.
    fn overtake(&self, state: &mut State, me: u64, word: u64) {
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
        state.model.departed = true;
        state.overtaken = Some(self.put_old(state, me, number, word, chosen));
        state.overtaken_times += 1;
    }

    /// Puts something old into `word` if `me` may load it, and it comes to that.
    fn show_old(&self, state: &mut State, me: u64, word: u64) {
        let Some(&number) = state.model.words.get(&word) else { return };
        let choice = state.model.choice(me, number, word);
        if state.model.threads[&me].old == 0 {
            return;
        }
        let Some(chosen) = self.chosen(state, choice) else { return };
        state.model.departed |= chosen < choice.first_sound;
        let old = self.put_old(state, me, number, word, chosen);
        state.swapped.push(old);
    }

    /// Which of the values that may be shown of a word is, if it comes to that.
    fn chosen(&self, state: &mut State, choice: Choice) -> Option<Number> {
        match self.reach.aim {
            Aim::Cued => (choice.oldest < choice.last && sees_old(choice.point)).then_some(choice.oldest),
            _ => state.chooser.choose(&self.reach, choice),
        }
    }

    /// Puts the value with this number into `word`, for what `me` is about to do.
    fn put_old(&self, state: &mut State, me: u64, number: usize, word: u64, chosen: Number) -> Old {
        state.model.thread(me).old -= 1;
        let truth = self.word(word).swap(state.model.values[number][chosen as usize].value, Relaxed);
        Old { word, chosen, truth }
    }
}

impl<M: Noted> Weakened<M> {
    /// `dead` takes stores along that it need not have made yet, if it comes to that.
    fn take_along(&self, state: &mut State, dead: u64) {
        for (late, before) in state.model.late(dead) {
            let Late { number, word, value, site } = late;
            let differs = self.word(word).load(Relaxed) != before;
            let choice = Choice { word, site, point: None, oldest: 0, first_sound: 1, last: value, differs };
            let is_late = match self.reach.aim {
                Aim::Cued => differs,
                _ => state.chooser.choose(&self.reach, choice).is_some(),
            };
            if is_late {
                self.word(word).store(before, Relaxed);
                self.below.unmake(8 * word, before);
                state.taken_along += 1;
                state.model.departed = true;
                state.model.stored(dead, number, before, false, &Worlds::default());
            }
        }
    }
}

impl<M: Noted> Noted for Weakened<M> {
    fn note(&self, note: u64) {
        let (me, mut state) = (number(), lock(&self.state));
        self.restore(&mut state, |_| true);
        let is_apart = self.apart.checked_shr(me as u32).is_some_and(|bits| bits & 1 == 1);
        // Who is apart begins behind all that was there before.
        if !(is_apart && state.model.thread(me).has_called) {
            state.model.barrier(me, false);
        }
        let it = state.model.thread(me);
        // Calls begin with even notes and end with odd ones.
        (it.calls, it.old, it.has_called) = (note.is_multiple_of(2), self.reach.old, true);
        drop(state);
        self.below.note(note);
    }
    fn died(&self, thread: usize) {
        let mut state = lock(&self.state);
        let state = &mut *state;
        self.restore(state, |_| true);
        self.take_along(state, thread as u64);
    }
    fn told(&self, dead: usize) {
        let (me, mut state) = (number(), lock(&self.state));
        if me < THREADS_MAX as u64 {
            state.model.learn(me, dead as u64);
        }
    }
    fn wrong(&self) -> Option<Wrong> {
        let state = lock(&self.state);
        match state.model.missing {
            // With something old in it, it does not tell what would be.
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
        self.arrive(&mut state, me);
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
                let missing = state.model.lacks(site, Weak::Total);
                match order {
                    Order::GlobalBarrier => state.model.barrier_of_all(me, missing),
                    _ => state.model.barrier(me, missing),
                }
            }
            Order::External => state.model.meet_elsewhere(me),
        }
    }
    fn before_access(&self, access: Access, at: *const u8) {
        let (len, stores) = extent(access);
        let (me, words) = (number(), self.words(at, len));
        let mut state = lock(&self.state);
        let state = &mut *state;
        self.arrive(state, me);
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
            Access::Store | Access::Rmw => self.overtake(state, me, words.start),
            _ if !stores => words.for_each(|word| self.show_old(state, me, word)),
            _ => {}
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
        let overtaken = state.overtaken.take();
        for (at, word) in words.clone().enumerate() {
            if let Some(Old { word, chosen, truth }) = overtaken {
                self.word(word).store(truth, Relaxed);
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
                    let late = Late { number, word, value: state.model.last(number), site };
                    state.model.thread(me).tail.add(late);
                }
            } else if let Some(&number) = state.model.words.get(&word) {
                // All that comes behind it begins with a barrier.
                let value = self.word(word).load(Relaxed);
                let by_all = Ordered { is_total: true, ..Ordered::default() };
                state.model.stored(me, number, value, false, &Worlds::both(by_all));
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
mod tests;
