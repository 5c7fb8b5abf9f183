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
//! All of this is kept twice: as it is with the order that is missing, and as it would be. What a thread may load by the first and not by the second is what the missing order is needed for.
//!
//! It errs on the side of order: a compare-and-swap that fails sees the last value, a store is never behind a load
//! of its thread that comes before it (which C11 allows, and processors do), a persist fence orders all loads and stores around it but for a store and the loads behind it, and a call begins and ends with a
//! barrier, for those who check its results go by the clock. What is not in the medium (a lock of the process, an atomic) orders nothing here unless the product says [`elsewhere`](terrace_medium::elsewhere); then
//! it orders all who say so.

use super::seen::{Seen, View};
use super::stage::number;
use crate::Noted;
use crate::crash::Dice;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ops::Range;
use std::panic::Location;
use std::ptr::NonNull;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release, SeqCst};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use terrace_medium::{Access, MappedMedium, Mapping, Medium, Order};

/// What an access is weakened by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Weak {
    /// What comes behind it may come before.
    Acquire,
    /// What comes before it may come behind.
    Release,
    /// It has its place in no order of all threads.
    Total,
}

/// An order that is missing at one place of the source.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Weakening {
    /// The place.
    pub site: &'static Location<'static>,
    /// What is missing.
    pub weak: Weak,
}

impl Weakening {
    /// Where it is in the source: `pool/lock.rs:177`.
    pub fn place(&self) -> String {
        crate::crash::place(self.site)
    }
}

/// All that can be missing at the places that were passed.
pub type Weakenings = BTreeSet<Weakening>;

/// How much of what a thread may load that is old it does load.
#[derive(Clone, Copy, Debug)]
pub struct Reach {
    /// Loads of a call that are old, at most: who waits for a store is to see it in the end.
    pub old: u32,
    /// One in so many loads that may be old is.
    pub one_in: u64,
    /// Whether it is drawn for a word, for the whole run, and not for each load: one who is told of something by one word and does not find it in another needs both.
    pub by_word: bool,
    /// Whether only that is loaded which could not be if no order were missing.
    pub only_missing: bool,
    /// Whether such a load takes the oldest value that it may, or any.
    pub oldest: bool,
    /// What is drawn follows from it.
    pub seed: u64,
}

impl Reach {
    /// One that a run has, by its number.
    pub fn of_run(run: u64) -> Self {
        const DRAWS: [(bool, bool, u64); 6] = [
            (true, false, 1),
            (true, false, 2),
            (false, true, 2),
            (true, true, 2),
            (false, false, 3),
            (false, true, 5),
        ];
        const OLD: [u32; 3] = [64, 8, 1];
        let kind = run as usize / 6;
        let (only_missing, by_word, one_in) = DRAWS[kind % DRAWS.len()];
        let rest = kind / DRAWS.len();
        Self {
            old: OLD[rest % 3],
            one_in,
            by_word,
            only_missing,
            oldest: (rest / 3).is_multiple_of(2),
            seed: run,
        }
    }
}

/// What is, with an order that is missing, and what would be with all of them.
type Both<T> = [T; 2];

const IS: usize = 0;
const WOULD_BE: usize = 1;

/// A value that a word held or holds.
struct Value {
    value: u64,
    /// What who acquires it has to see from then on.
    carried: Both<View>,
}

#[derive(Default)]
struct Thread {
    /// Whether it is within a call; what is around that is done by one thread after the other.
    calls: bool,
    seen: Both<Seen>,
    /// Old values that it may still load in this call.
    old: u32,
    order: Option<(Order, &'static Location<'static>)>,
}

#[derive(Default)]
struct State {
    passed: Weakenings,
    differences: u64,
    /// Words that were stored to within calls, by their place in the medium.
    words: HashMap<u64, usize>,
    values: Vec<Vec<Value>>,
    threads: BTreeMap<u64, Thread>,
    /// What all barriers have in common.
    common: Both<View>,
    /// What all have in common that have synchronised outside of the medium.
    elsewhere: Both<View>,
    /// What the words held that are being stored to.
    before: Vec<u64>,
    /// What is shown to a thread that is old, and to which.
    swapped: Vec<Old>,
    shown_to: u64,
    dice: Dice,
}

/// A word that holds something old while a thread loads it.
struct Old {
    word: u64,
    /// The number of that value.
    chosen: u32,
    /// What the word holds in truth.
    truth: u64,
}

/// Lets threads see what is done to the medium below as the memory model does, with an order that is missing or with all, and notes what can be missing.
pub struct Weakened<M> {
    below: M,
    weakening: Option<Weakening>,
    reach: Reach,
    state: Arc<Mutex<State>>,
}

/// What can be weakened in what has been done to a [`Weakened`].
pub struct Passed(Arc<Mutex<State>>);

impl Passed {
    /// All of it.
    pub fn weakenings(&self) -> Weakenings {
        lock(&self.0).passed.clone()
    }

    /// How many loads could have been of something older than if no order were missing.
    pub fn differences(&self) -> u64 {
        lock(&self.0).differences
    }
}

fn lock(state: &Mutex<State>) -> MutexGuard<'_, State> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What an order can lose.
fn losses(order: Order) -> &'static [Weak] {
    const ALL: [Weak; 3] = [Weak::Acquire, Weak::Release, Weak::Total];
    match order {
        Order::Load(Acquire) | Order::Rmw(Acquire) => &ALL[..1],
        Order::Store(Release) | Order::Rmw(Release) => &ALL[1..2],
        Order::Rmw(AcqRel) => &ALL[..2],
        Order::Load(SeqCst) => &[Weak::Acquire, Weak::Total],
        Order::Store(SeqCst) => &ALL[1..],
        Order::Rmw(SeqCst) => &ALL,
        Order::Barrier => &ALL[2..],
        Order::Load(_) | Order::Store(_) | Order::Rmw(_) | Order::Elsewhere => &[],
    }
}

/// What an access orders, with what is missing left out.
#[derive(Clone, Copy, Default)]
struct Ordered {
    acquires: bool,
    releases: bool,
    is_total: bool,
}

/// The bytes that an access is to, and whether it stores.
fn extent(access: Access) -> (usize, bool) {
    match access {
        Access::Load | Access::RmwFailed => (8, false),
        Access::Store | Access::Rmw => (8, true),
        Access::Read(len) => (len, false),
        Access::Copy(len) | Access::StreamedCopy(len) => (len, true),
    }
}

impl State {
    fn thread(&mut self, thread: u64) -> &mut Thread {
        self.threads.entry(thread).or_default()
    }

    /// What a word has held; if nobody has stored to it within a call yet, it begins with `held`.
    fn word(&mut self, word: u64, held: u64) -> usize {
        let next = self.values.len();
        let number = *self.words.entry(word).or_insert(next);
        if number == next {
            self.values.push(vec![Value { value: held, carried: Both::default() }]);
        }
        number
    }

    /// The number of the value that a word holds.
    fn last(&self, number: usize) -> u32 {
        self.values[number].len() as u32 - 1
    }

    /// All that `thread` and others with a barrier before have done comes before all that it does from now on; or would.
    fn barrier(&mut self, thread: u64, is_missing: bool) {
        let Self { threads, common, .. } = self;
        let it = threads.entry(thread).or_default();
        for (at, (seen, common)) in it.seen.iter_mut().zip(common).enumerate() {
            if at == WOULD_BE || !is_missing {
                seen.barrier(common);
            }
        }
    }

    /// `me` synchronises with all others that have come to such a place.
    fn meet_elsewhere(&mut self, me: u64) {
        let Self { threads, elsewhere, .. } = self;
        for (seen, elsewhere) in threads.entry(me).or_default().seen.iter_mut().zip(elsewhere) {
            seen.view.join(elsewhere);
            elsewhere.join(&seen.view);
        }
    }

    /// `me` is about to load or change a word by a SeqCst access.
    fn enter_total(&mut self, me: u64, number: usize, ordered: Both<Ordered>) {
        let Self { threads, common, .. } = self;
        let it = threads.entry(me).or_default();
        for ((seen, common), _) in it.seen.iter_mut().zip(common).zip(ordered).filter(|(_, it)| it.is_total) {
            seen.view.raise(number, common.of(number));
        }
    }

    /// `me` has loaded the value with this number.
    fn loaded(&mut self, me: u64, number: usize, value: u32, ordered: Both<Ordered>) {
        let Self { threads, values, .. } = self;
        let it = threads.entry(me).or_default();
        let carried = &values[number][value as usize].carried;
        for ((seen, carried), ordered) in it.seen.iter_mut().zip(carried).zip(ordered) {
            seen.view.raise(number, value);
            if ordered.acquires { seen.view.join(carried) } else { seen.loaded.join(carried) }
        }
    }

    /// `me` has stored `value`.
    fn stored(&mut self, me: u64, number: usize, value: u64, is_exchange: bool, ordered: Both<Ordered>) {
        let (last, next) = (self.last(number), self.last(number) + 1);
        if is_exchange {
            self.loaded(me, number, last, ordered);
        }
        let Self { threads, values, common, .. } = self;
        let it = threads.entry(me).or_default();
        let carried = std::array::from_fn(|at| {
            let seen = &mut it.seen[at];
            seen.view.raise(number, next);
            let mut carried = if ordered[at].releases { seen.view.clone() } else { seen.fenced.clone() };
            if is_exchange {
                carried.join(&values[number][last as usize].carried[at]);
            }
            if ordered[at].is_total {
                common[at].raise(number, next);
            }
            carried
        });
        values[number].push(Value { value, carried });
    }
}

impl<M: Medium> Weakened<M> {
    /// Weakens what is done to `below`.
    pub fn over(below: M, weakening: Option<Weakening>, reach: Reach) -> Self {
        let state = State { dice: Dice::new(reach.seed), ..State::default() };
        Self { below, weakening, reach, state: Arc::new(Mutex::new(state)) }
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

    fn lacks(&self, site: &'static Location<'static>, weak: Weak) -> bool {
        self.weakening == Some(Weakening { site, weak })
    }

    /// What the access orders that `me` is at.
    fn ordered_now(&self, state: &State, me: u64, access: Access) -> Both<Ordered> {
        let order = state.threads.get(&me).and_then(|thread| thread.order);
        let (order, site) = match (access, order) {
            (Access::Load, Some((Order::Load(order), site)))
            | (Access::Store, Some((Order::Store(order), site)))
            | (Access::Rmw | Access::RmwFailed, Some((Order::Rmw(order), site))) => (order, site),
            _ => return Both::default(),
        };
        let would_be = Ordered {
            acquires: matches!(order, Acquire | AcqRel | SeqCst),
            releases: matches!(order, Release | AcqRel | SeqCst),
            is_total: order == SeqCst,
        };
        let is = Ordered {
            acquires: would_be.acquires && !self.lacks(site, Weak::Acquire),
            releases: would_be.releases && !self.lacks(site, Weak::Release),
            is_total: would_be.is_total && !self.lacks(site, Weak::Total),
        };
        [is, would_be]
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
        let Some(&number) = state.words.get(&word) else { return };
        let it = &state.threads[&me];
        let [oldest, first_sound] = [IS, WOULD_BE].map(|at| it.seen[at].view.of(number));
        let Reach { one_in, by_word, only_missing, oldest: is_oldest, seed, .. } = self.reach;
        let of = |at: u32| state.values[number][at as usize].value;
        state.differences += u64::from((oldest..first_sound).any(|at| of(at) != of(first_sound)));
        let beyond = if only_missing { first_sound } else { state.last(number) };
        if oldest >= beyond || it.old == 0 {
            return;
        }
        let mut of_word = Dice::new(seed ^ word << 32);
        if (if by_word { &mut of_word } else { &mut state.dice }).roll(one_in) != 0 {
            return;
        }
        let rolled = if is_oldest { 0 } else { state.dice.roll(u64::from(beyond - oldest)) as u32 };
        let chosen = oldest + rolled;
        state.thread(me).old -= 1;
        let truth = self.word(word).swap(state.values[number][chosen as usize].value, Relaxed);
        state.swapped.push(Old { word, chosen, truth });
    }
}

impl<M: Noted> Noted for Weakened<M> {
    fn note(&self, note: u64) {
        let (me, mut state) = (number(), lock(&self.state));
        self.restore(&mut state, |_| true);
        state.barrier(me, false);
        let it = state.thread(me);
        // Calls begin with even notes and end with odd ones.
        (it.calls, it.old) = (note.is_multiple_of(2), self.reach.old);
        drop(state);
        self.below.note(note);
    }
}

impl<M: MappedMedium> MappedMedium for Weakened<M> {
    fn new(mapping: Mapping) -> Self {
        Self::over(M::new(mapping), None, Reach::of_run(0))
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
            state.thread(me).seen.iter_mut().for_each(Seen::fence);
        }
        drop(state);
        self.below.fence();
    }
    fn ordered(&self, order: Order, site: &'static Location<'static>) {
        let (me, mut state) = (number(), lock(&self.state));
        self.arrive(&mut state, me);
        if state.thread(me).calls {
            state.passed.extend(losses(order).iter().map(|&weak| Weakening { site, weak }));
        }
        match order {
            Order::Load(_) | Order::Store(_) | Order::Rmw(_) => state.thread(me).order = Some((order, site)),
            Order::Barrier => {
                self.restore(&mut state, |_| true);
                state.barrier(me, self.lacks(site, Weak::Total));
            }
            Order::Elsewhere => state.meet_elsewhere(me),
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
        if !state.thread(me).calls {
            return;
        }
        let ordered = self.ordered_now(state, me, access);
        if let Some(&number) = state.words.get(&words.start) {
            state.enter_total(me, number, ordered);
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
        let ordered = self.ordered_now(state, me, access);
        let calls = state.thread(me).calls;
        let before = if stores { std::mem::take(&mut state.before) } else { Vec::new() };
        for (at, word) in words.clone().enumerate() {
            if !stores {
                let Some(&number) = state.words.get(&word).filter(|_| calls) else { continue };
                let shown = state.swapped.iter().find(|old| old.word == word).map(|old| old.chosen);
                let value = shown.unwrap_or_else(|| state.last(number));
                state.loaded(me, number, value, ordered);
            } else if calls {
                let number = state.word(word, before[at]);
                let value = self.word(word).load(Relaxed);
                state.stored(me, number, value, access == Access::Rmw, ordered);
            } else if let Some(&number) = state.words.get(&word) {
                // All that comes behind it begins with a barrier.
                let value = self.word(word).load(Relaxed);
                let by_all = Ordered { is_total: true, ..Ordered::default() };
                state.stored(me, number, value, false, [by_all; 2]);
            }
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
    use crate::schedule::{Job, Policy, Scheduled, Stage};
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
        let below =
            Weakened::over(Memory::<true>::zeroed(4096, 4096).unwrap(), weakening, Reach::of_run(seed));
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
}
