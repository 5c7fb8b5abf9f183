//! The lock of every structure in a pool: a word that names its holder and the pool's generation.
//!
//! ```text
//!   63        32 31         14 13          2      1       0
//!   | generation | incarnation | participant | unfenced | held |
//! ```
//! Locks are not data. A word of another generation than the pool's is a free lock, so a crash of
//! all processes leaves nothing to unlock. In a held lock, incarnation and participant name the
//! process that holds it. A free lock is *unfenced* while the last holder has written back its
//! changes but not fenced them. Its incarnation field then contains the number of that holder's
//! thread, so that only that thread confirms it.
//!
//! Locks are never persisted: no write-back, no fence. (Their intents are, between hosts: see
//! `intents`.)
//!
//! In a shared pool, any process may die while it holds locks. So a thread records an intent before
//! it tries a lock (see `intents`), and a thread that waits for a lock checks now and then whether
//! the holder is alive. An exclusive pool does neither: after its process is killed, the new
//! generation frees all locks.

use crate::pool::Inner;
use crate::reclaim::epoch::Guard;
use crate::reclaim::slots::ThreadSlot;
use crate::sharing::participants::Owner;
use crate::sync::backoff::Backoff;
use crate::sync::intents::Intent;
use crate::sync::waiting::Waiting;
use std::cell::Cell;
use std::marker::PhantomData;
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use terrace_medium::{MappedMedium, Medium, Persistent, Word};

const HELD: u64 = 1;
const UNFENCED: u64 = 2;
const PARTICIPANT_SHIFT: u32 = 2;
const INCARNATION_SHIFT: u32 = 14;
const GENERATION_SHIFT: u32 = 32;
const INCARNATION_BITS: u32 = 18;

/// The constant parts of the lock words that this process writes.
pub(crate) struct LockWords {
    held: u64,
    free: u64,
}

impl LockWords {
    pub(crate) fn of(owner: Owner) -> Self {
        Self { held: held_word(owner), free: generation_word(owner) }
    }
}

/// A lock word. `0` is a free lock.
#[repr(transparent)]
pub struct Lock(Word);

// SAFETY: a transparent wrapper of a Word.
unsafe impl Persistent for Lock {}

impl Lock {
    /// The lock in `word`.
    #[inline(always)]
    pub fn of(word: &Word) -> &Self {
        // SAFETY: Lock is a transparent wrapper of Word.
        unsafe { &*(&raw const *word).cast() }
    }

    /// Takes the lock; waits while another thread holds it. The lock is not reentrant.
    #[inline(always)]
    pub fn acquire<'g, M: MappedMedium>(&'g self, guard: &'g Guard<'_, M>) -> Locked<'g, M> {
        let pool = guard.inner();
        // `wait` returns only the intent, which fits a register. A `Locked` returned by a function
        // that is not inlined would always live in memory.
        let intent = match self.try_take(guard) {
            Some(intent) => intent,
            None => self.wait(pool, || self.try_take(guard)),
        };
        Locked { lock: self, pool, intent, not_send: PhantomData }
    }

    /// Takes the lock if it is free.
    ///
    /// # Panics
    /// If the pool is shared, this thread holds 16 locks, and all thread slots of the pool are
    /// taken.
    #[inline(always)]
    pub fn try_acquire<'g, M: MappedMedium>(&'g self, guard: &'g Guard<'_, M>) -> Option<Locked<'g, M>> {
        self.try_take(guard).map(|intent| Locked {
            lock: self,
            pool: guard.inner(),
            intent,
            not_send: PhantomData,
        })
    }

    /// As [`Lock::try_acquire`], but returns the intent.
    #[inline(always)]
    fn try_take<M: MappedMedium>(&self, guard: &Guard<'_, M>) -> Option<Option<Intent>> {
        let pool = guard.inner();
        let intent =
            if pool.is_shared() { Some(self.record_intent(pool, guard.thread_slot())?) } else { None };
        if !self.take(pool) {
            intent.inspect(|intent| intent.clear(pool));
            return None;
        }
        Some(intent)
    }

    /// As [`Lock::acquire`], for the pool's own locks. Recovery knows where these are, so they need
    /// no intent.
    #[inline(always)]
    pub(crate) fn acquire_in<'g, M: MappedMedium>(&'g self, pool: &'g Inner<M>) -> Locked<'g, M> {
        match self.try_acquire_in(pool) {
            Some(locked) => locked,
            None => {
                self.wait(pool, || self.take(pool).then_some(()));
                Locked { lock: self, pool, intent: None, not_send: PhantomData }
            }
        }
    }

    /// As [`Lock::acquire_in`], but returns `None` once `should_stop` returns true during the wait.
    pub(crate) fn acquire_until<'g, M: MappedMedium>(
        &'g self,
        pool: &'g Inner<M>,
        should_stop: &dyn Fn() -> bool,
    ) -> Option<Locked<'g, M>> {
        let mut backoff = Backoff::new();
        loop {
            if let Some(locked) = self.try_acquire_in(pool) {
                return Some(locked);
            }
            if backoff.spin() {
                if should_stop() {
                    return None;
                }
                self.recover_if_dead_in(pool);
            }
        }
    }

    #[cold]
    fn wait<M: MappedMedium, T>(&self, pool: &Inner<M>, try_again: impl Fn() -> Option<T>) -> T {
        let (mut backoff, mut waiting) = (Backoff::new(), None);
        loop {
            if !is_held_word(self.0.load(pool.medium(), Relaxed), pool.owner)
                && let Some(taken) = try_again()
            {
                return taken;
            }
            if backoff.spin() {
                waiting.get_or_insert_with(Waiting::begin);
                self.recover_if_dead_in(pool);
            }
        }
    }

    /// Takes the lock for this process until it closes the pool, unless another live process holds
    /// it. Returns whether this process holds it. Such a lock elects one of several processes for a
    /// task; no thread waits for it.
    pub fn hold_for_process<M: MappedMedium>(&self, pool: &crate::Pool<M>) -> bool {
        let inner = &*pool.0;
        if self.0.load(inner.medium(), Relaxed) & !UNFENCED == inner.lock_words.held {
            return true;
        }
        match self.try_acquire_in(inner) {
            Some(locked) => {
                std::mem::forget(locked);
                true
            }
            None => inner.is_shared() && self.take_over_if_dead(inner),
        }
    }

    /// If the lock's holder is dead, recovers that participant, which releases all its locks. For a
    /// caller that does not wait for the lock.
    pub fn recover_if_dead<M: MappedMedium>(&self, guard: &Guard<'_, M>) {
        self.recover_if_dead_in(guard.inner());
    }

    #[cold]
    pub(crate) fn recover_if_dead_in<M: MappedMedium>(&self, pool: &Inner<M>) {
        // ORDER: Acquire, as before every check of a holder's liveness: this thread must also see
        // that the holder joined.
        let word = self.0.load(pool.medium(), Acquire);
        if !pool.is_shared() || !is_held_word(word, pool.owner) || !pool.is_holder_dead(word) {
            return;
        }
        let participant = holder_of_word(word).0;
        if pool.has_participant(participant) && !pool.recover_participant(participant) {
            // Another thread is at it.
            return;
        }
        // The recovery has released what the dead one had noted. Among hosts this lock may be
        // none of that: its release and the end of its note are two lines of a cache, and the
        // memory may have got the second one alone. But only the holder of above was recovered: a
        // later one that has died as well may have left what the lock guards half changed.
        self.release_word(pool, word);
    }

    /// Records that this thread tries the lock, unless it is held.
    #[inline(never)]
    fn record_intent<M: MappedMedium>(&self, pool: &Inner<M>, slot: &ThreadSlot) -> Option<Intent> {
        let is_held = is_held_word(self.0.load(pool.medium(), Relaxed), pool.owner);
        (!is_held).then(|| Intent::record(pool, slot, pool.region.offset_of(self).raw()))
    }

    #[inline(always)]
    pub(crate) fn try_acquire_in<'g, M: MappedMedium>(&'g self, pool: &'g Inner<M>) -> Option<Locked<'g, M>> {
        self.take(pool).then(|| Locked { lock: self, pool, intent: None, not_send: PhantomData })
    }

    /// Takes the lock if it is free.
    #[inline(always)]
    fn take<M: MappedMedium>(&self, pool: &Inner<M>) -> bool {
        let now = self.0.load(pool.medium(), Relaxed);
        if is_held_word(now, pool.owner) {
            return false;
        }
        let mine = match M::VOLATILE_CACHE {
            true => pool.lock_words.held | now & UNFENCED | now << 1 & UNFENCED,
            false => pool.lock_words.held,
        };
        // ORDER: Acquire pairs with the Release store of the last holder and makes its changes
        // visible. Release: in a shared pool, the intent becomes visible before the lock is held.
        self.0.compare_exchange(pool.medium().point("lock.take"), now, mine, AcqRel, Relaxed).is_ok()
    }

    /// Releases a lock whose [`Locked`] was forgotten.
    pub(crate) fn release_in<M: MappedMedium>(&self, pool: &Inner<M>) {
        // ORDER: Release: as in `Locked`.
        self.0.store(pool.medium().point("lock.release-in"), pool.lock_words.free, Release);
    }

    /// Releases the lock if its holder is dead. The holder's changes under it may not be durable.
    pub(crate) fn release_if_dead<M: MappedMedium>(&self, pool: &Inner<M>) {
        let word = self.0.load(pool.medium(), Acquire);
        if is_held_word(word, pool.owner) && pool.is_holder_dead(word) {
            self.release_word(pool, word);
        }
    }

    /// Releases a lock with this word, of a dead holder.
    fn release_word<M: MappedMedium>(&self, pool: &Inner<M>, word: u64) {
        let free = pool.lock_words.free | if M::VOLATILE_CACHE { UNFENCED } else { 0 };
        let place = pool.medium().point("lock.release-dead");
        // ORDER: AcqRel: the next holder sees the stores of the dead one. After a failure another
        // thread has released the lock.
        let _ = self.0.compare_exchange(place, word, free, AcqRel, Relaxed);
    }

    /// Takes the lock over if its holder is dead. [`Lock::release_in`] releases it.
    pub(crate) fn take_over_if_dead<M: MappedMedium>(&self, pool: &Inner<M>) -> bool {
        let word = self.0.load(pool.medium(), Acquire);
        let mine = pool.lock_words.held | if M::VOLATILE_CACHE { UNFENCED } else { 0 };
        is_held_word(word, pool.owner)
            && pool.is_holder_dead(word)
            // ORDER: AcqRel: as above.
            && self
                .0
                .compare_exchange(pool.medium().point("lock.take-over"), word, mine, AcqRel, Relaxed)
                .is_ok()
    }

    /// The participant and incarnation of the holder; `None` if the lock is free.
    pub(crate) fn holder<M: MappedMedium>(&self, pool: &Inner<M>) -> Option<(u32, u32)> {
        let word = self.0.load(pool.medium(), Acquire);
        is_held_word(word, pool.owner).then(|| holder_of_word(word))
    }

    /// Whether a thread or process holds it in the pool's current generation.
    pub fn is_held<M: MappedMedium>(&self, pool: &crate::Pool<M>) -> bool {
        self.is_held_in(&pool.0)
    }

    pub(crate) fn is_held_in<M: MappedMedium>(&self, pool: &Inner<M>) -> bool {
        is_held_word(self.0.load(pool.medium().point("lock.is-held"), Acquire), pool.owner)
    }

    /// The current word, for [`Lock::may_be_unfenced`].
    #[inline(always)]
    pub fn load_word<M: Medium>(&self, medium: &M) -> u64 {
        self.0.load(medium, Acquire)
    }

    /// Whether data under this lock may not be durable yet: the lock is held, or was released
    /// before its fence. The caller read the data without the lock, then loaded `word`. The
    /// generation does not matter: a process killed while it held the lock may have left stores in
    /// the processor's cache, which a power failure would still lose.
    #[inline(always)]
    pub fn may_be_unfenced(word: u64) -> bool {
        word & (HELD | UNFENCED) != 0
    }

    /// Confirms after a fence: clears the mark that this thread left with
    /// [`Locked::release_unfenced`]. Does nothing if another thread has taken the lock since; that
    /// thread then persists the data itself.
    pub fn confirm<M: MappedMedium>(&self, guard: &Guard<'_, M>) {
        let pool = guard.inner();
        let free = pool.lock_words.free;
        // ORDER: Release: a thread that finds the lock confirmed also finds what was fenced. After
        // a failure another thread has taken the lock.
        let _ = self.0.compare_exchange(
            pool.medium().point("lock.confirm"),
            unfenced_word(pool.owner),
            free,
            Release,
            Relaxed,
        );
    }
}

/// A held lock. Dropping it releases it. Three words, so it moves in registers. It stays with its
/// thread, whose slot has the intent:
///
/// ```compile_fail
/// fn elsewhere(locked: terrace_pool::Locked<'static, terrace_medium::Shm>) {
///     std::thread::spawn(move || drop(locked));
/// }
/// ```
#[must_use = "a lock that is not kept is released at once"]
pub struct Locked<'g, M: MappedMedium> {
    lock: &'g Lock,
    pool: &'g Inner<M>,
    /// Only in a shared pool, and only if recovery does not know the lock anyway.
    intent: Option<Intent>,
    /// An intent must be cleared by the thread that recorded it.
    not_send: PhantomData<*const ()>,
}

impl<M: MappedMedium> Locked<'_, M> {
    /// Whether the last holder released the lock before its fence, or was killed while it held it.
    /// Its changes must be made durable before anything builds on them. Always false without a
    /// volatile cache.
    #[inline(always)]
    pub fn was_unfenced(&self) -> bool {
        // The bit is set or clear since the lock was taken.
        M::VOLATILE_CACHE && self.lock.0.load(self.pool.medium(), Relaxed) & UNFENCED != 0
    }

    /// Releases the lock. All changes under it, by this holder and previous ones, are durable.
    #[inline(always)]
    pub fn release(self) {}

    /// Releases the lock while changes under it are written back but not fenced. The thread fences
    /// later and then calls [`Lock::confirm`].
    #[inline(always)]
    pub fn release_unfenced(self) {
        self.free(unfenced_word(self.pool.owner));
        std::mem::forget(self);
    }

    /// Releases a lock under which this holder changed nothing. If the previous holder's writes may
    /// not be durable, the lock stays marked *unfenced*.
    #[inline(always)]
    pub fn release_unchanged(self) {
        if self.was_unfenced() {
            // Without a thread number: no thread's later fence confirms it.
            self.free(self.pool.lock_words.free | UNFENCED);
            std::mem::forget(self);
        }
    }

    #[inline(always)]
    fn free(&self, word: u64) {
        // ORDER: Release pairs with the Acquire of the next holder, and with readers that check the
        // word after reading the data.
        self.lock.0.store(self.pool.medium().point("lock.release"), word, Release);
        if let Some(intent) = &self.intent {
            intent.clear(self.pool);
        }
    }
}

impl<M: MappedMedium> Drop for Locked<'_, M> {
    #[inline(always)]
    fn drop(&mut self) {
        self.free(self.pool.lock_words.free);
    }
}

#[inline(always)]
fn generation_word(owner: Owner) -> u64 {
    u64::from(owner.generation) << GENERATION_SHIFT
}

#[inline(always)]
fn held_word(owner: Owner) -> u64 {
    named_word(owner, owner.incarnation) | HELD
}

#[inline(always)]
fn unfenced_word(owner: Owner) -> u64 {
    named_word(owner, thread_number()) | UNFENCED
}

#[inline(always)]
fn named_word(owner: Owner, number: u32) -> u64 {
    let number = u64::from(number) & ((1 << INCARNATION_BITS) - 1);
    let participant = u64::from(owner.participant) & 0xfff;
    generation_word(owner) | number << INCARNATION_SHIFT | participant << PARTICIPANT_SHIFT
}

/// The participant and incarnation that a held word names.
pub(crate) fn holder_of_word(word: u64) -> (u32, u32) {
    let incarnation = word >> INCARNATION_SHIFT & ((1 << INCARNATION_BITS) - 1);
    ((word >> PARTICIPANT_SHIFT & 0xfff) as u32, incarnation as u32)
}

#[inline(always)]
fn is_current(word: u64, owner: Owner) -> bool {
    word >> GENERATION_SHIFT == u64::from(owner.generation)
}

#[inline(always)]
fn is_held_word(word: u64, owner: Owner) -> bool {
    word & HELD != 0 && is_current(word, owner)
}

thread_local! {
    static NUMBER: Cell<u32> = const { Cell::new(0) };
}

/// Sets this thread's number, so that a test is reproducible. Threads that use the same pool need
/// different numbers.
#[doc(hidden)]
pub fn set_thread_number(number: u32) {
    NUMBER.set(number);
}

/// A number that distinguishes the threads of this process. Two threads can have the same number
/// only if 2^18 others were started between them.
#[inline(always)]
pub(crate) fn thread_number() -> u32 {
    static NEXT: AtomicU32 = AtomicU32::new(1);
    match NUMBER.get() {
        0 => {
            let number = NEXT.fetch_add(1, Relaxed);
            NUMBER.set(number);
            number
        }
        number => number,
    }
}

#[cfg(test)]
#[path = "tests/lock.rs"]
mod tests;
