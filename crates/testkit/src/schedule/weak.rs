//! A medium that weakens the order of one place of the source, as the C11 memory model would let a processor and a compiler do then.
//!
//! Threads run one at a time, under a [`Stage`](super::Stage), so what a thread is to see of another's stores can be chosen at each of its loads:
//!
//! * [`Weak::Acquire`]: what a thread loads behind this place may be as old as what it had synchronised with before. The words keep what they held; for the time of the load the old value is put
//!   back.
//! * [`Weak::Release`]: what a thread has stored before this place becomes visible behind it, in its order (a Release keeps what is before it from passing it, not itself from what is behind), as far back as nobody has
//!   touched it in between and no read-modify-write was in the way.
//! * [`Weak::Total`]: a SeqCst access is none. A store, or a barrier with the last store before it, becomes visible only after later loads of its thread; a load sees what the thread had synchronised with
//!   before; behind a read-modify-write of a word that was this thread's anyway, loads are old.
//!
//! It errs on the side of order: any Acquire that is left synchronises with all threads, any persist fence is a barrier, what is late is so for some accesses only, and so is what is old. So each run is one that the
//! model allows, and far from all of those are tried. Left out: orders of a compare-and-swap that fails; what is not in the medium (a lock of the process that two threads synchronise by is not seen).

use super::stage::number;
use crate::Noted;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::panic::Location;
use std::ptr::NonNull;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release, SeqCst};
use std::sync::atomic::{AtomicU64, Ordering};
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

/// How far what is late, or old, goes.
#[derive(Clone, Copy, Debug)]
pub struct Reach {
    /// Accesses of all threads after which a late store becomes visible.
    pub late: u32,
    /// Loads of the thread that may be old.
    pub old: u32,
    /// Stores that are late behind one that does not release.
    pub stores: usize,
}

impl Reach {
    /// One that a run has, by its number.
    pub fn of_run(run: u64) -> Self {
        const LATE: [u32; 3] = [200, 40, 8];
        const OLD: [u32; 3] = [2, 8, 1];
        const STORES: [usize; 3] = [usize::MAX, 1, 3];
        let run = run as usize / 6;
        Self { late: LATE[run % 3], old: OLD[run / 3 % 3], stores: STORES[run / 9 % 3] }
    }
}

/// What a word held until a store.
struct Past {
    until: u64,
    held: u64,
    by: u64,
}

/// A store that is not visible yet.
struct Late {
    thread: u64,
    word: u64,
    value: u64,
    /// Accesses until then.
    left: u32,
    /// Whether later stores of the thread come behind it.
    in_order: bool,
}

/// A store that could be late: nobody else has touched it or a later one of its thread since, and no order of its thread that could not be late with it was behind it.
struct Recent {
    word: u64,
    /// What the word held before.
    held: u64,
    stamp: u64,
}

#[derive(Default)]
struct Thread {
    /// Whether it is within a call; what is around that is ordered by who starts the threads.
    calls: bool,
    /// It has synchronised with all that was done up to here.
    synchronised: u64,
    /// Up to where it has seen a word, beyond that.
    seen: HashMap<u64, u64>,
    recent: Vec<Recent>,
    /// Loads that may still be old.
    old: u32,
    order: Option<(Order, &'static Location<'static>)>,
}

#[derive(Default)]
struct State {
    passed: Weakenings,
    now: u64,
    past: HashMap<u64, Vec<Past>>,
    threads: BTreeMap<u64, Thread>,
    late: Vec<Late>,
    /// What the words held that are being stored to.
    before: Vec<u64>,
    /// Words that hold something old while a thread loads them, and what they hold in truth.
    swapped: Vec<(u64, u64)>,
}

/// Weakens what is done to the medium below, and notes what can be weakened.
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
        Order::Load(_) | Order::Store(_) | Order::Rmw(_) => &[],
    }
}

fn acquires(order: Ordering) -> bool {
    matches!(order, Acquire | AcqRel | SeqCst)
}

fn releases(order: Ordering) -> bool {
    matches!(order, Release | AcqRel | SeqCst)
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

impl Thread {
    /// All that was done up to `now` is seen from here on.
    fn synchronise(&mut self, now: u64) {
        (self.synchronised, self.old) = (now, 0);
        self.seen.clear();
    }

    /// What was stored to these words, and before that, cannot be late any more.
    fn forget(&mut self, words: &std::ops::Range<u64>) {
        if let Some(last) = self.recent.iter().rposition(|store| words.contains(&store.word)) {
            self.recent.drain(..=last);
        }
    }

    fn has_seen(&self, word: u64) -> u64 {
        self.seen.get(&word).map_or(self.synchronised, |&seen| seen.max(self.synchronised))
    }
}

impl State {
    fn thread(&mut self, thread: u64) -> &mut Thread {
        self.threads.entry(thread).or_default()
    }

    /// What a word held when `thread` last saw it, if that has changed since.
    fn old(&self, thread: &Thread, word: u64) -> Option<u64> {
        let seen = thread.has_seen(word);
        self.past.get(&word)?.iter().find(|past| past.until > seen).map(|past| past.held)
    }
}

impl<M: Medium> Weakened<M> {
    /// Weakens what is done to `below`.
    pub fn over(below: M, weakening: Option<Weakening>, reach: Reach) -> Self {
        Self { below, weakening, reach, state: Arc::default() }
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
    fn words(&self, at: *const u8, len: usize) -> std::ops::Range<u64> {
        let start = at.addr().wrapping_sub(self.below.base().addr().get()) as u64;
        start / 8..(start + len as u64).div_ceil(8)
    }

    /// Whether this place is the one that is weakened so, and `thread` is within a call.
    fn lacks(&self, state: &State, thread: u64, site: &'static Location<'static>, weak: Weak) -> bool {
        let calls = || state.threads.get(&thread).is_some_and(|thread| thread.calls);
        self.weakening == Some(Weakening { site, weak }) && calls()
    }

    /// The words hold again what they hold in truth.
    fn restore(&self, state: &mut State) -> bool {
        let was_swapped = !state.swapped.is_empty();
        state.swapped.drain(..).for_each(|(word, value)| self.word(word).store(value, Relaxed));
        was_swapped
    }

    /// Makes those late stores visible that are `due`, in the order in which they were done.
    fn show(&self, state: &mut State, due: impl Fn(&Late) -> bool) {
        let due: Vec<Late> = state.late.extract_if(.., |late| due(late)).collect();
        for late in due {
            state.now += 1;
            let held = self.word(late.word).swap(late.value, Relaxed);
            let past = Past { until: state.now, held, by: late.thread };
            state.past.entry(late.word).or_default().push(past);
        }
    }

    /// Everything that `thread` has done comes before everything that it will do.
    fn order_all(&self, state: &mut State, thread: u64) {
        self.show(state, |late| late.thread == thread);
        let now = state.now;
        let it = state.thread(thread);
        it.synchronise(now);
        it.recent.clear();
    }

    /// The last so many of the recent stores of `thread` were not visible yet. (They are to words of which none is there twice.)
    fn delay(&self, state: &mut State, thread: u64, count: usize, in_order: bool) {
        let recent = &mut state.thread(thread).recent;
        let first = recent.len().saturating_sub(count);
        let delayed: Vec<Recent> = recent.drain(first..).collect();
        for store in delayed {
            let value = self.word(store.word).swap(store.held, Relaxed);
            if let Some(past) = state.past.get_mut(&store.word) {
                past.retain(|past| past.until != store.stamp);
            }
            state.late.push(Late { thread, word: store.word, value, left: self.reach.late, in_order });
        }
    }

    fn loaded(&self, state: &mut State, me: u64, words: std::ops::Range<u64>, is_old: bool, access: Access) {
        let now = state.now;
        let order = state.thread(me).order.take().filter(|_| access == Access::Load);
        let it = state.thread(me);
        if !is_old {
            words.for_each(|word| _ = it.seen.insert(word, now));
        }
        if access == Access::RmwFailed {
            return it.synchronise(now);
        }
        let Some((Order::Load(order), site)) = order else { return self.used(state, me) };
        if !acquires(order) {
            return self.used(state, me);
        }
        if self.lacks(state, me, site, Weak::Acquire) {
            state.thread(me).old = self.reach.old;
        } else if state.thread(me).old > 0 {
            self.used(state, me);
        } else if !is_old {
            state.thread(me).synchronise(now);
        }
    }

    /// One more load that could be old.
    fn used(&self, state: &mut State, me: u64) {
        let now = state.now;
        let it = state.thread(me);
        if it.old > 0 {
            it.old -= 1;
            if it.old == 0 {
                it.synchronise(now);
            }
        }
    }

    fn stored(&self, state: &mut State, me: u64, words: std::ops::Range<u64>, access: Access) {
        let last_by = |state: &State, word| state.past.get(&word).and_then(|past| Some(past.last()?.by));
        let was_mine = last_by(state, words.start).is_none_or(|by| by == me);
        state.now += 1;
        let stamp = state.now;
        let before = std::mem::take(&mut state.before);
        let order = state.thread(me).order.take();
        for (word, &held) in words.clone().zip(&before) {
            state.past.entry(word).or_default().push(Past { until: stamp, held, by: me });
            state.thread(me).seen.insert(word, stamp);
        }
        // What was stored to the same word before cannot become visible behind this.
        state.thread(me).forget(&words);
        let recent = words.zip(before).map(|(word, held)| Recent { word, held, stamp });
        match (access, order) {
            (Access::Store, Some((Order::Store(_), site))) => {
                if self.lacks(state, me, site, Weak::Release) {
                    self.delay(state, me, self.reach.stores, false);
                    return;
                }
                state.thread(me).recent.extend(recent);
                if self.lacks(state, me, site, Weak::Total) {
                    self.delay(state, me, 1, true);
                }
            }
            (Access::Rmw, Some((Order::Rmw(order), site))) => {
                if self.lacks(state, me, site, Weak::Release) {
                    self.delay(state, me, self.reach.stores, false);
                } else if releases(order) {
                    state.thread(me).recent.clear();
                }
                let total = self.lacks(state, me, site, Weak::Total) && was_mine;
                if total || self.lacks(state, me, site, Weak::Acquire) {
                    state.thread(me).old = self.reach.old;
                } else if acquires(order) {
                    state.thread(me).synchronise(stamp);
                }
            }
            _ => state.thread(me).recent.extend(recent),
        }
    }
}

impl<M: Noted> Noted for Weakened<M> {
    fn note(&self, note: u64) {
        let mut state = lock(&self.state);
        self.restore(&mut state);
        self.order_all(&mut state, number());
        // Calls begin with even notes and end with odd ones.
        state.thread(number()).calls = note.is_multiple_of(2);
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
        let mut state = lock(&self.state);
        self.restore(&mut state);
        self.order_all(&mut state, number());
        drop(state);
        self.below.fence();
    }
    fn ordered(&self, order: Order, site: &'static Location<'static>) {
        let (me, mut state) = (number(), lock(&self.state));
        let state = &mut *state;
        self.restore(state);
        if self.weakening.is_none() {
            if state.thread(me).calls {
                state.passed.extend(losses(order).iter().map(|&weak| Weakening { site, weak }));
            }
            return;
        }
        if order != Order::Barrier {
            state.thread(me).order = Some((order, site));
        } else if self.lacks(state, me, site, Weak::Total) {
            self.delay(state, me, 1, true);
        } else {
            self.order_all(state, me);
        }
    }
    fn before_access(&self, access: Access, at: *const u8) {
        self.below.before_access(access, at);
        if self.weakening.is_none() {
            return;
        }
        let (len, stores) = extent(access);
        let (me, words) = (number(), self.words(at, len));
        let mut state = lock(&self.state);
        let state = &mut *state;
        self.restore(state);
        // A thread sees its own stores; what is to stay in order does; and a read-modify-write, or a store that releases, comes behind all that is late, unless that is what is missing.
        let (is_release, site) = match state.thread(me).order {
            Some((Order::Store(order) | Order::Rmw(order), site)) => (releases(order), Some(site)),
            _ => (false, None),
        };
        let is_weak = site.is_some_and(|site| self.lacks(state, me, site, Weak::Release));
        let comes_behind = stores && is_release && !is_weak;
        self.show(state, |late| {
            late.thread == me && (words.contains(&late.word) || comes_behind || stores && late.in_order)
        });
        // Who touches a word has seen it: it cannot become late any more.
        for (_, other) in state.threads.iter_mut().filter(|(thread, _)| **thread != me) {
            other.forget(&words);
        }
        if stores {
            state.before = words.map(|word| self.word(word).load(Relaxed)).collect();
            return;
        }
        let is_total_lost = match state.thread(me).order {
            Some((Order::Load(_), site)) => self.lacks(state, me, site, Weak::Total),
            _ => false,
        };
        if !is_total_lost && state.thread(me).old == 0 {
            return;
        }
        let it = &state.threads[&me];
        let old: Vec<(u64, u64)> = words.filter_map(|word| Some((word, state.old(it, word)?))).collect();
        for (word, value) in old {
            let truth = self.word(word).swap(value, Relaxed);
            state.swapped.push((word, truth));
        }
    }
    fn accessed(&self, access: Access, at: *const u8, site: &'static Location<'static>) {
        self.below.accessed(access, at, site);
        if self.weakening.is_none() {
            return;
        }
        let (len, stores) = extent(access);
        if len == 0 {
            return;
        }
        let (me, words) = (number(), self.words(at, len));
        let mut state = lock(&self.state);
        let state = &mut *state;
        let is_old = self.restore(state);
        state.late.iter_mut().for_each(|late| late.left -= 1);
        self.show(state, |late| late.left == 0);
        if stores {
            self.stored(state, me, words, access);
        } else {
            self.loaded(state, me, words, is_old, access);
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
    /// Nobody stores to it: a step before the end of the call, by which all is visible.
    const Z: Offset<Word> = Offset::new(192);

    fn run(
        stage: &Stage,
        weakening: Option<Weakening>,
        threads: [Thread; 2],
        seed: u64,
    ) -> (Weakenings, [u64; 2]) {
        let below =
            Weakened::over(Memory::<true>::zeroed(4096, 4096).unwrap(), weakening, Reach::of_run(seed));
        let passed = below.passed();
        let region = Arc::new(Region::new(Layered::over(Arc::new(Scheduled::over(below)))));
        let results: [Arc<AtomicU64>; 2] = Default::default();
        let job = |number: usize| -> Job {
            let (region, result, work) = (region.clone(), results[number].clone(), threads[number]);
            Box::new(move || {
                region.medium().note(note_begin(number));
                result.store(work(&region), Relaxed);
                region.medium().note(note_end(number));
            })
        };
        let ran = stage.run(vec![job(0), job(1)], &Policy::Random { one_in: 2 }, seed);
        assert_eq!(ran.wrong, None);
        (passed.weakenings(), results.map(|result| result.load(Relaxed)))
    }

    /// What of these threads' orders is needed for `wrong` not to come about: each of all, and none.
    fn is_needed(threads: [Thread; 2], wrong: [u64; 2]) -> Vec<Weak> {
        let stage = Stage::new();
        let all: Weakenings = (0..50).flat_map(|seed| run(&stage, None, threads, seed).0).collect();
        (0..500).for_each(|seed| assert_ne!(run(&stage, None, threads, seed).1, wrong));
        let comes = |weakening| (0..500).any(|seed| run(&stage, Some(weakening), threads, seed).1 == wrong);
        let mut needed: Vec<Weak> =
            all.into_iter().filter(|&weakening| comes(weakening)).map(|weakening| weakening.weak).collect();
        needed.sort();
        needed
    }

    #[test]
    fn a_message_that_is_passed_needs_a_release_and_an_acquire() {
        let send: Thread = |region| {
            region.at(X).store(region.medium(), 1, Relaxed);
            region.at(Y).store(region.medium(), 1, Release);
            7 + region.at(Z).load(region.medium(), Relaxed)
        };
        let receive: Thread = |region| {
            let flag = region.at(Y).load(region.medium(), Acquire);
            flag * 2 + region.at(X).load(region.medium(), Relaxed)
        };
        assert_eq!(is_needed([send, receive], [7, 2]), [Weak::Acquire, Weak::Release]);
        let by_exchange: Thread = |region| {
            region.at(X).store(region.medium(), 1, Relaxed);
            region.at(Y).fetch_or(region.medium(), 1, AcqRel);
            7 + region.at(Z).load(region.medium(), Relaxed)
        };
        assert_eq!(is_needed([by_exchange, receive], [7, 2]), [Weak::Acquire, Weak::Release]);
        // A Release keeps what was before it from passing it, and not itself from what is behind.
        let released_before: Thread = |region| {
            region.at(X).store(region.medium(), 1, Release);
            region.at(Y).store(region.medium(), 1, Release);
            7 + region.at(Z).load(region.medium(), Relaxed)
        };
        assert_eq!(is_needed([released_before, receive], [7, 2]), [Weak::Acquire, Weak::Release]);
    }

    #[test]
    fn what_one_word_held_is_never_seen_behind_what_it_holds() {
        let count: Thread = |region| {
            (1..=4).for_each(|value| region.at(X).store(region.medium(), value, Release));
            7 + region.at(Z).load(region.medium(), Relaxed)
        };
        let watch: Thread = |region| {
            let values: Vec<u64> = (0..6).map(|_| region.at(X).load(region.medium(), Acquire)).collect();
            u64::from(!values.is_sorted())
        };
        assert_eq!(is_needed([count, watch], [7, 1]), []);
    }

    #[test]
    fn of_two_who_announce_themselves_one_sees_the_other_by_a_total_order_only() {
        let one: Thread = |region| {
            region.at(X).store(region.medium(), 1, SeqCst);
            region.at(Y).load(region.medium(), SeqCst) + region.at(Z).load(region.medium(), Relaxed)
        };
        let other: Thread = |region| {
            region.at(Y).store(region.medium(), 1, Relaxed);
            full_barrier(region.medium());
            region.at(X).load(region.medium(), Relaxed) + region.at(Z).load(region.medium(), Relaxed)
        };
        assert_eq!(is_needed([one, other], [0, 0]), [Weak::Total; 3]);
    }
}
