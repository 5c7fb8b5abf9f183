//! A medium that records a trace of all changes to another.
//!
//! Changes are serialised, so the trace has their actual order. With one thread, or under a
//! deterministic scheduler in [`Medium::before_access`] of the medium below, equal runs give equal
//! traces.

use crate::observer::CallObserver;
use crate::points;
use crate::threads;
use crate::trace::{Event, Role, Trace, What};
use std::panic::Location;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use terrace_medium::{Access, LINE, MappedMedium, Mapping, Medium};

struct State {
    trace: Trace,
    threads: Vec<Thread>,
    /// Identifies the calling thread.
    identity: fn() -> u64,
}

struct Thread {
    identity: u64,
    /// The place that last asked for durability, and its name.
    requested_at: Option<(&'static Location<'static>, Option<&'static str>)>,
}

impl State {
    /// The number of the calling thread.
    fn thread(&mut self) -> usize {
        let identity = (self.identity)();
        let known = self.threads.iter().position(|thread| thread.identity == identity);
        known.unwrap_or_else(|| {
            self.threads.push(Thread { identity, requested_at: None });
            self.threads.len() - 1
        })
    }
}

/// Records a [`Trace`] of the stores, copies, write-backs and fences of the medium below.
pub struct Recording<M> {
    below: M,
    state: Mutex<State>,
    /// A lock held from before a change until it is in the trace.
    turn: AtomicBool,
    /// The word's value before the current change. Only the holder of `turn` accesses it.
    old: AtomicU64,
}

impl<M: Medium> Recording<M> {
    /// Records the changes to `below`.
    pub fn over(below: M) -> Self {
        let state = State { trace: Trace::default(), threads: Vec::new(), identity: threads::identity };
        Self { below, state: Mutex::new(state), turn: AtomicBool::new(false), old: AtomicU64::new(0) }
    }

    /// Identifies threads by `identity` from now on, for schedulers that run several on one system
    /// thread.
    pub fn identify_threads_by(&self, identity: fn() -> u64) {
        self.state().identity = identity;
    }

    /// Clears the trace and returns the content of the medium, word by word, where a replay of the
    /// following trace starts. No other thread may use the medium meanwhile.
    pub fn start(&self) -> Vec<u64> {
        let mut state = self.state();
        state.trace = Trace::default();
        state.threads.clear();
        drop(state);
        (0..self.below.len() as u64 / 8).map(|word| self.word(word)).collect()
    }

    /// A copy of the trace.
    pub fn trace(&self) -> Trace {
        self.state().trace.clone()
    }

    /// Number of events.
    pub fn len(&self) -> usize {
        self.state().trace.events().len()
    }

    /// Whether the trace is empty.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Adds a mark to the trace, such as "operation 7 has returned".
    #[track_caller]
    pub fn mark(&self, mark: u64) {
        self.push(What::Mark(mark), Location::caller(), None);
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn offset(&self, at: *const u8) -> u64 {
        (at.addr() - self.below.base().addr().get()) as u64
    }

    /// The word with this number.
    fn word(&self, word: u64) -> u64 {
        assert!(word < self.below.len() as u64 / 8, "word {word} is not in the medium");
        // SAFETY: in bounds (checked) and aligned, since the base is; the medium keeps the range
        // mapped.
        let word =
            unsafe { AtomicU64::from_ptr(self.below.base().as_ptr().cast::<u64>().add(word as usize)) };
        word.load(Ordering::Relaxed)
    }

    fn push(&self, what: What, site: &'static Location<'static>, point: Option<&'static str>) {
        let mut state = self.state();
        let thread = state.thread() as u32;
        state.trace.push(Event { thread, what, site, point, role: Role::Done });
    }

    /// Adds a write-back or fence, at the place that asked for it.
    fn push_persist(&self, what: What) {
        let mut state = self.state();
        let thread = state.thread();
        let (site, point) = state.threads[thread].requested_at.unwrap_or((Location::caller(), None));
        state.trace.push(Event { thread: thread as u32, what, site, point, role: Role::Done });
    }

    fn take_turn(&self) {
        // ORDER: Acquire: pairs with the Release of `end_turn`, so that changes do not interleave.
        while self.turn.swap(true, Ordering::Acquire) {
            std::thread::yield_now();
        }
    }

    fn end_turn(&self) {
        self.turn.store(false, Ordering::Release);
    }

    fn copied(&self, at: *const u8, len: usize) -> crate::trace::Piece {
        let offset = self.offset(at);
        let words = (offset / 8..).map(|word| self.word(word));
        self.state().trace.keep(offset, len as u64, words)
    }
}

/// Whether an access changes the medium or orders write-backs.
fn is_recorded(access: Access) -> bool {
    !matches!(access, Access::Load | Access::Read(_))
}

impl<M: MappedMedium> CallObserver for Recording<M> {
    fn mark_call(&self, mark: u64) {
        self.mark(mark);
    }
    fn unmake(&self, at: u64, value: u64) {
        self.state().trace.unmake(at, value);
    }
}

impl<M: MappedMedium> MappedMedium for Recording<M> {
    fn new(mapping: Mapping) -> Self {
        Self::over(M::new(mapping))
    }
    fn mapping(&self) -> &Mapping {
        self.below.mapping()
    }
}

// SAFETY: base and length are those of the medium below, which promises the same.
unsafe impl<M: Medium> Medium for Recording<M> {
    const VOLATILE_CACHE: bool = M::VOLATILE_CACHE;

    fn base(&self) -> NonNull<u8> {
        self.below.base()
    }

    fn len(&self) -> usize {
        self.below.len()
    }

    fn write_back(&self, at: *const u8) {
        self.take_turn();
        self.below.write_back(at);
        self.push_persist(What::WriteBack { line: self.offset(at) / LINE as u64 * LINE as u64 });
        self.end_turn();
    }

    fn fence(&self) {
        self.take_turn();
        self.below.fence();
        self.push_persist(What::Fence);
        self.end_turn();
    }

    fn before_access(&self, access: Access, at: *const u8) {
        // A scheduler below may run other threads here, so the lock is taken afterwards.
        self.below.before_access(access, at);
        if is_recorded(access) {
            self.take_turn();
            if let Access::Store | Access::Rmw = access {
                self.old.store(self.word(self.offset(at) / 8), Ordering::Relaxed);
            }
        }
    }

    fn accessed(&self, access: Access, at: *const u8, site: &'static Location<'static>) {
        if is_recorded(access) {
            let offset = self.offset(at);
            let old = self.old.load(Ordering::Relaxed);
            let what = match access {
                Access::Store => What::Store { at: offset, old, new: self.word(offset / 8) },
                Access::Rmw => What::Rmw { at: offset, old, new: self.word(offset / 8) },
                Access::Copy(len) => What::Copy(self.copied(at, len)),
                Access::StreamedCopy(len) => What::StreamedCopy(self.copied(at, len)),
                Access::RmwFailed | Access::Load | Access::Read(_) => What::RmwFailed { at: offset },
            };
            self.push(what, site, points::current());
            self.end_turn();
        }
        self.below.accessed(access, at, site);
    }

    fn persisted_at(&self, site: &'static Location<'static>) {
        let mut state = self.state();
        let thread = state.thread();
        state.threads[thread].requested_at = Some((site, points::current()));
        drop(state);
        self.below.persisted_at(site);
    }
}
