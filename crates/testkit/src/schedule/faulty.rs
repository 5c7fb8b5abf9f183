//! A medium that plants a bug: one place of the source that stores does so wrongly.
//!
//! * [`FlawKind::Lost`]: the store, the copy or the read-modify-write is not done. A lock whose taking is lost is a lock that was never taken; a mark that is lost was never
//!   set.
//! * [`FlawKind::Keeps`]: some bits are not stored.
//! * [`FlawKind::Late`]: the store becomes visible only after some later ones of its thread. So does a weakly ordered processor if the Release of a later store is missing.
//!
//! A thread sees its own late stores, as a processor does: whatever of it comes to the same place makes them visible. So does a fence, and the end of the call.
//!
//! Threads use it one at a time, under a [`Stage`](super::Stage); others get wrong bugs, never undefined memory.

use super::stage::number;
use crate::{Noted, threads};
use std::collections::BTreeSet;
use std::panic::Location;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use terrace_medium::{Access, MappedMedium, Mapping, Medium};

/// What is wrong with a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum FlawKind {
    /// It is not done.
    Lost,
    /// It becomes visible after so many later stores of its thread.
    Late(u32),
    /// These bits stay as they were.
    Keeps(u64),
}

/// A bug at one place of the source.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Flaw {
    /// The place.
    pub site: &'static Location<'static>,
    /// What is wrong there.
    pub kind: FlawKind,
}

/// Places that stored, and whether by read-modify-write.
pub type Sites = BTreeSet<(&'static Location<'static>, bool)>;

#[derive(Default)]
struct State {
    sites: Sites,
    /// What the words of the access that is under way held before.
    old: Vec<u64>,
    late: Vec<Store>,
}

/// Words that are not visible yet.
struct Store {
    thread: u64,
    first: u64,
    words: Vec<u64>,
    /// Stores of the thread that come first.
    after: u32,
}

impl Store {
    fn touches(&self, first: u64, words: u64) -> bool {
        first < self.first + self.words.len() as u64 && self.first < first + words
    }
}

/// Plants a [`Flaw`] in what is done to the medium below, and notes the places that store.
pub struct Faulty<M> {
    below: M,
    flaw: Option<Flaw>,
    state: Arc<Mutex<State>>,
}

/// The places that have stored to a [`Faulty`].
#[derive(Clone)]
pub struct Seen(Arc<Mutex<State>>);

impl Seen {
    /// All of them.
    pub fn sites(&self) -> Sites {
        lock(&self.0).sites.clone()
    }
}

fn lock(state: &Mutex<State>) -> MutexGuard<'_, State> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Who does it: a thread of a stage, by its number.
fn me() -> u64 {
    match number() {
        u64::MAX => 1 << 32 | threads::identity(),
        number => number,
    }
}

impl<M: Medium> Faulty<M> {
    /// Plants `flaw` in what is done to `below`.
    pub fn over(below: M, flaw: Option<Flaw>) -> Self {
        Self { below, flaw, state: Arc::default() }
    }

    /// The places that store, as they do.
    pub fn seen(&self) -> Seen {
        Seen(self.state.clone())
    }

    fn word(&self, word: u64) -> &AtomicU64 {
        assert!(word < self.below.len() as u64 / 8, "word {word} does not lie in the medium");
        // SAFETY: in bounds (checked) and aligned, since the base is; the medium keeps the range mapped.
        unsafe { AtomicU64::from_ptr(self.below.base().as_ptr().cast::<u64>().add(word as usize)) }
    }

    fn place(&self, first: u64, words: &[u64]) {
        (first..).zip(words).for_each(|(word, &value)| self.word(word).store(value, Relaxed));
    }

    /// The words that `len` bytes at `at` lie in: the first one and how many.
    fn words(&self, at: *const u8, len: usize) -> (u64, u64) {
        let start = at.addr().wrapping_sub(self.below.base().addr().get()) as u64;
        (start / 8, (start + len as u64).div_ceil(8) - start / 8)
    }

    /// Makes those late stores of this thread visible that are `due`.
    fn show(&self, due: impl Fn(&Store) -> bool) {
        let me = me();
        let due: Vec<Store> =
            lock(&self.state).late.extract_if(.., |store| store.thread == me && due(store)).collect();
        due.iter().for_each(|store| self.place(store.first, &store.words));
    }

    /// What was just stored is undone, and comes later or never.
    fn plant(&self, kind: FlawKind, first: u64, words: u64, is_rmw: bool) {
        let new: Vec<u64> = (first..first + words).map(|word| self.word(word).load(Relaxed)).collect();
        let mut state = lock(&self.state);
        match kind {
            FlawKind::Lost => self.place(first, &state.old),
            FlawKind::Late(after) if !is_rmw => {
                self.place(first, &state.old);
                state.late.push(Store { thread: me(), first, words: new, after });
            }
            FlawKind::Late(_) => {}
            FlawKind::Keeps(mask) => {
                let mixed: Vec<u64> =
                    new.iter().zip(&state.old).map(|(new, old)| new & !mask | old & mask).collect();
                self.place(first, &mixed);
            }
        }
    }
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

impl<M: Noted> Noted for Faulty<M> {
    fn note(&self, note: u64) {
        self.show(|_| true);
        self.below.note(note);
    }
}

impl<M: MappedMedium> MappedMedium for Faulty<M> {
    fn new(mapping: Mapping) -> Self {
        Self::over(M::new(mapping), None)
    }
    fn mapping(&self) -> &Mapping {
        self.below.mapping()
    }
}

// SAFETY: base and length are those of the medium below, which promises the same.
unsafe impl<M: Medium> Medium for Faulty<M> {
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
        self.show(|_| true);
        self.below.fence();
    }
    fn before_access(&self, access: Access, at: *const u8) {
        let (len, stores) = extent(access);
        let (first, words) = self.words(at, len);
        self.show(|store| store.after == 0 || store.touches(first, words));
        self.below.before_access(access, at);
        if stores && self.flaw.is_some() {
            lock(&self.state).old =
                (first..first + words).map(|word| self.word(word).load(Relaxed)).collect();
        }
    }
    fn accessed(&self, access: Access, at: *const u8, site: &'static Location<'static>) {
        self.below.accessed(access, at, site);
        let (len, stores) = extent(access);
        if !stores || len == 0 {
            return;
        }
        let (first, words) = self.words(at, len);
        let (me, is_rmw) = (me(), access == Access::Rmw);
        let mut state = lock(&self.state);
        state.late.iter_mut().filter(|store| store.thread == me).for_each(|store| store.after -= 1);
        match self.flaw {
            None => _ = state.sites.insert((site, is_rmw)),
            Some(flaw) if flaw.site == site => {
                drop(state);
                self.plant(flaw.kind, first, words, is_rmw);
            }
            Some(_) => {}
        }
    }
    fn persisted_at(&self, site: &'static Location<'static>) {
        self.below.persisted_at(site);
    }
    fn prefetched(&self, at: *const u8) {
        self.below.prefetched(at);
    }
}
