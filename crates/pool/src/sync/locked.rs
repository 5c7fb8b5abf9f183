//! Taking and releasing a lock in an open base.

use crate::base::Base;
use crate::sync::backoff::Backoff;
use crate::sync::intents::Intent;
use crate::sync::lock::{Lock, UNFENCED, holder_of_word, is_held_word, unfenced_word};
use crate::sync::waiting::Waiting;
use std::marker::PhantomData;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use terrace_medium::MappedMedium;

impl Lock {
    /// Waits until `try_again` takes the lock. Calls `stuck` whenever it has slept: the holder may
    /// have died.
    #[cold]
    pub(crate) fn wait<M: MappedMedium, T>(
        &self,
        base: &Base<M>,
        try_again: impl Fn() -> Option<T>,
        stuck: impl Fn(),
    ) -> T {
        let (mut backoff, mut waiting) = (Backoff::new(), None);
        loop {
            if !is_held_word(self.0.load(base.medium(), Relaxed), base.owner)
                && let Some(taken) = try_again()
            {
                return taken;
            }
            if backoff.spin() {
                waiting.get_or_insert_with(Waiting::begin);
                stuck();
            }
        }
    }

    /// Takes the lock; returns `None` once `gives_up` returns true. That is called whenever the
    /// thread has slept; the caller recovers the holder there if it died.
    pub(crate) fn acquire_until<'g, M: MappedMedium>(
        &'g self,
        base: &'g Base<M>,
        gives_up: &dyn Fn() -> bool,
    ) -> Option<Locked<'g, M>> {
        let mut backoff = Backoff::new();
        loop {
            if let Some(locked) = self.try_acquire_in(base) {
                return Some(locked);
            }
            if backoff.spin() && gives_up() {
                return None;
            }
        }
    }

    /// Takes the lock if it is free, without an intent: for the pool's own locks. Recovery knows
    /// where these are.
    #[inline(always)]
    pub(crate) fn try_acquire_in<'g, M: MappedMedium>(&'g self, base: &'g Base<M>) -> Option<Locked<'g, M>> {
        self.take(base).then(|| Locked::new(self, base, None))
    }

    /// Takes the lock if it is free.
    #[inline(always)]
    pub(crate) fn take<M: MappedMedium>(&self, base: &Base<M>) -> bool {
        let now = self.0.load(base.medium(), Relaxed);
        if is_held_word(now, base.owner) {
            return false;
        }
        let mine = match M::VOLATILE_CACHE {
            true => base.lock_words.held | now & UNFENCED | now << 1 & UNFENCED,
            false => base.lock_words.held,
        };
        // ORDER: Acquire pairs with the Release store of the last holder and makes its changes
        // visible. Release: in a shared base, the intent becomes visible before the lock is held.
        self.0.compare_exchange(base.medium().point("lock.take"), now, mine, AcqRel, Relaxed).is_ok()
    }

    /// Releases a lock whose [`Locked`] was forgotten.
    pub(crate) fn release_in<M: MappedMedium>(&self, base: &Base<M>) {
        // ORDER: Release: as in `Locked`.
        self.0.store(base.medium().point("lock.release-in"), base.lock_words.free, Release);
    }

    /// Releases the lock if its holder is dead. The holder's changes under it may not be durable.
    pub(crate) fn release_if_dead<M: MappedMedium>(&self, base: &Base<M>) {
        let word = self.0.load(base.medium(), Acquire);
        if is_held_word(word, base.owner) && base.is_holder_dead(word) {
            self.release_word(base, word);
        }
    }

    /// Releases a lock with this word, of a dead holder.
    pub(crate) fn release_word<M: MappedMedium>(&self, base: &Base<M>, word: u64) {
        debug_assert!(is_held_word(word, base.owner), "only a held lock has a dead holder");
        let free = base.lock_words.free | if M::VOLATILE_CACHE { UNFENCED } else { 0 };
        let place = base.medium().point("lock.release-dead");
        // ORDER: AcqRel: the next holder sees the stores of the dead one. After a failure another
        // thread has released the lock.
        let _ = self.0.compare_exchange(place, word, free, AcqRel, Relaxed);
    }

    /// Takes the lock over if its holder is dead. [`Lock::release_in`] releases it.
    pub(crate) fn take_over_if_dead<M: MappedMedium>(&self, base: &Base<M>) -> bool {
        let word = self.0.load(base.medium(), Acquire);
        let mine = base.lock_words.held | if M::VOLATILE_CACHE { UNFENCED } else { 0 };
        is_held_word(word, base.owner)
            && base.is_holder_dead(word)
            // ORDER: AcqRel: as above.
            && self
                .0
                .compare_exchange(base.medium().point("lock.take-over"), word, mine, AcqRel, Relaxed)
                .is_ok()
    }

    /// The participant and incarnation of the holder; `None` if the lock is free.
    pub(crate) fn holder<M: MappedMedium>(&self, base: &Base<M>) -> Option<(u32, u32)> {
        let word = self.0.load(base.medium(), Acquire);
        is_held_word(word, base.owner).then(|| holder_of_word(word))
    }

    pub(crate) fn is_held_in<M: MappedMedium>(&self, base: &Base<M>) -> bool {
        is_held_word(self.0.load(base.medium().point("lock.is-held"), Acquire), base.owner)
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
    base: &'g Base<M>,
    /// Only in a shared base, and only if recovery does not know the lock anyway.
    intent: Option<Intent>,
    /// An intent must be cleared by the thread that recorded it.
    not_send: PhantomData<*const ()>,
}

impl<'g, M: MappedMedium> Locked<'g, M> {
    /// A lock that this thread has taken.
    #[inline(always)]
    pub(crate) fn new(lock: &'g Lock, base: &'g Base<M>, intent: Option<Intent>) -> Self {
        Self { lock, base, intent, not_send: PhantomData }
    }

    /// Whether the last holder released the lock before its fence, or was killed while it held it.
    /// Its changes must be made durable before anything builds on them. Always false without a
    /// volatile cache.
    #[inline(always)]
    pub fn was_unfenced(&self) -> bool {
        // The bit is set or clear since the lock was taken.
        M::VOLATILE_CACHE && self.lock.0.load(self.base.medium(), Relaxed) & UNFENCED != 0
    }

    /// Releases the lock. All changes under it, by this holder and previous ones, are durable.
    #[inline(always)]
    pub fn release(self) {}

    /// Releases the lock while changes under it are written back but not fenced. The thread fences
    /// later and then calls [`Lock::confirm`].
    #[inline(always)]
    pub fn release_unfenced(self) {
        self.free(unfenced_word(self.base.owner));
        std::mem::forget(self);
    }

    /// Releases a lock under which this holder changed nothing. If the previous holder's writes may
    /// not be durable, the lock stays marked *unfenced*.
    #[inline(always)]
    pub fn release_unchanged(self) {
        if self.was_unfenced() {
            // Without a thread number: no thread's later fence confirms it.
            self.free(self.base.lock_words.free | UNFENCED);
            std::mem::forget(self);
        }
    }

    #[inline(always)]
    fn free(&self, word: u64) {
        debug_assert!(!is_held_word(word, self.base.owner), "a release leaves no holder");
        // ORDER: Release pairs with the Acquire of the next holder, and with readers that check the
        // word after reading the data.
        self.lock.0.store(self.base.medium().point("lock.release"), word, Release);
        if let Some(intent) = &self.intent {
            intent.clear(self.base);
        }
    }
}

impl<M: MappedMedium> Drop for Locked<'_, M> {
    #[inline(always)]
    fn drop(&mut self) {
        self.free(self.base.lock_words.free);
    }
}
