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
mod tests {
    use super::*;
    use crate::tests::fixtures::participants;
    use crate::{Geometry, Pool, PoolOptions};
    use terrace_medium::{Dram, Offset, Pmem, Shm};

    fn word<M: MappedMedium>(pool: &Pool<M>) -> &Word {
        let offset = pool.pin().alloc(8).unwrap().fenced_later().into_offset();
        let word: &Word = pool.region().at(Offset::new(offset));
        word.store(pool.medium(), 0, Relaxed);
        word
    }

    /// Participants of one pool.
    fn shared<M: MappedMedium, const N: usize>() -> (tempfile::TempDir, [Pool<M>; N]) {
        participants(Geometry { thread_slots: 8, ..Geometry::tiny() })
    }

    /// The place of a free lock.
    fn place<M: MappedMedium>(pool: &Pool<M>) -> Offset<Word> {
        pool.region().offset_of(word(pool))
    }

    fn at<M: MappedMedium>(pool: &Pool<M>, place: Offset<Word>) -> &Lock {
        Lock::of(pool.region().at(place))
    }

    /// Takes the lock and never releases it.
    fn hold<M: MappedMedium>(pool: &Pool<M>, place: Offset<Word>) {
        std::mem::forget(at(pool, place).acquire(&pool.pin()));
    }

    #[test]
    fn lock_word_encodes_generation_and_holder() {
        let owner = Owner { generation: 0x89ab_cdef, incarnation: 0x2_aaaa, participant: 0xabc };
        let generation = 0x89ab_cdef << 32;
        assert_eq!(generation_word(owner), generation);
        assert_eq!(held_word(owner), generation | 0x2_aaaa << 14 | 0xabc << 2 | HELD);
        // A number that is too large is truncated.
        set_thread_number(1 << INCARNATION_BITS | 0x1_5555);
        assert_eq!(unfenced_word(owner), generation | 0x1_5555 << 14 | 0xabc << 2 | UNFENCED);
    }

    #[test]
    fn acquire_keeps_the_unfenced_bit() {
        let pool = PoolOptions::anonymous().size(1 << 20).create::<Pmem>().unwrap();
        let (guard, word) = (pool.pin(), word(&pool));
        let lock = Lock::of(word);
        let before = Owner { generation: pool.generation() + 1, ..pool.owner() };
        // The lock was released before its fence, its holder was killed, both, or neither.
        for (left, is_unfenced) in [(UNFENCED, true), (HELD, true), (HELD | UNFENCED, true), (0, false)] {
            word.store(pool.medium(), generation_word(before) | left, Relaxed);
            let held = lock.try_acquire(&guard).unwrap();
            let expected = held_word(pool.owner()) | if is_unfenced { UNFENCED } else { 0 };
            assert_eq!(
                (lock.load_word(pool.medium()), held.was_unfenced()),
                (expected, is_unfenced),
                "{left}"
            );
        }
    }

    #[test]
    fn held_lock_excludes_until_released() {
        let pool = Pool::<Dram>::anonymous(1 << 20).unwrap();
        let (guard, lock) = (pool.pin(), Lock::of(word(&pool)));
        let held = lock.try_acquire(&guard).unwrap();
        assert!(lock.is_held(&pool) && lock.try_acquire(&guard).is_none());
        assert!(Lock::may_be_unfenced(lock.load_word(pool.medium())));
        drop(held);
        assert!(!lock.is_held(&pool) && !Lock::may_be_unfenced(lock.load_word(pool.medium())));
        lock.acquire(&guard).release();
    }

    #[test]
    fn lock_of_another_generation_is_free() {
        let pool = Pool::<Pmem>::anonymous(1 << 20).unwrap();
        let (guard, word) = (pool.pin(), word(&pool));
        let lock = Lock::of(word);
        let other = Owner { generation: pool.generation() + 1, ..pool.owner() };
        word.store(pool.medium(), held_word(other) | UNFENCED, Relaxed);
        assert!(!lock.is_held(&pool));
        // Free, but the holder's changes may still be in the processor's cache.
        let held = lock.try_acquire(&guard).unwrap();
        assert!(held.was_unfenced());
    }

    #[test]
    fn release_unchanged_keeps_the_unfenced_bit() {
        let pool = Pool::<Pmem>::anonymous(1 << 20).unwrap();
        let (guard, lock) = (pool.pin(), Lock::of(word(&pool)));
        lock.acquire(&guard).release_unchanged();
        assert!(!lock.is_held(&pool) && !Lock::may_be_unfenced(lock.load_word(pool.medium())));
        lock.acquire(&guard).release_unfenced();
        lock.acquire(&guard).release_unchanged();
        lock.confirm(&guard);
        assert!(!lock.is_held(&pool) && Lock::may_be_unfenced(lock.load_word(pool.medium())));
    }

    #[test]
    fn unfenced_release_is_visible_until_confirmed() {
        let pool = Pool::<Dram>::anonymous(1 << 20).unwrap();
        let (guard, lock) = (pool.pin(), Lock::of(word(&pool)));
        lock.acquire(&guard).release_unfenced();
        assert!(!lock.is_held(&pool) && Lock::may_be_unfenced(lock.load_word(pool.medium())));
        lock.confirm(&guard);
        assert!(!Lock::may_be_unfenced(lock.load_word(pool.medium())));
    }

    #[test]
    fn thread_does_not_confirm_anothers_release() {
        let pool = Pool::<Pmem>::anonymous(1 << 20).unwrap();
        let lock = Lock::of(word(&pool));
        lock.acquire(&pool.pin()).release_unfenced();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let guard = pool.pin();
                let held = lock.acquire(&guard);
                assert!(held.was_unfenced());
                held.release_unfenced();
            });
        });
        lock.confirm(&pool.pin());
        assert!(Lock::may_be_unfenced(lock.load_word(pool.medium())));
    }

    #[test]
    fn waiting_thread_gets_a_released_lock() {
        let pool = Pool::<Dram>::anonymous(1 << 20).unwrap();
        let (lock, barrier) = (Lock::of(word(&pool)), std::sync::Barrier::new(2));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for _ in 0..100 {
                    barrier.wait();
                    lock.acquire(&pool.pin()).release();
                    barrier.wait();
                }
            });
            for _ in 0..100 {
                let guard = pool.pin();
                let held = lock.acquire(&guard);
                barrier.wait();
                // Gives the other thread time to find it held. If it comes later, this round tests
                // nothing.
                for _ in 0..10 {
                    std::thread::yield_now();
                }
                held.release();
                barrier.wait();
            }
        });
    }

    #[test]
    fn two_threads_never_hold_lock_together() {
        let pool = Pool::<Dram>::anonymous(1 << 20).unwrap();
        let (lock, count) = (Lock::of(word(&pool)), AtomicU32::new(0));
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    for _ in 0..20_000 {
                        let guard = pool.pin();
                        let held = lock.acquire(&guard);
                        let now = count.load(Relaxed);
                        count.store(now + 1, Relaxed);
                        held.release();
                    }
                });
            }
        });
        assert_eq!(count.into_inner(), 40_000);
    }

    #[test]
    fn held_word_names_its_holder_exactly() {
        for (participant, incarnation) in [(0, 1), (1, 2), (0xabc, 0x1_5555), (0xfff, 0x3_ffff)] {
            for generation in [1, 0x5555_5555, u32::MAX] {
                let owner = Owner { generation, incarnation, participant: participant as u16 };
                for word in [held_word(owner), held_word(owner) | UNFENCED] {
                    assert_eq!(holder_of_word(word), (participant, incarnation), "{word:#x}");
                    assert!(is_held_word(word, owner));
                    let next = Owner { generation: generation.wrapping_add(1), ..owner };
                    assert!(!is_held_word(word, next), "free in the next generation");
                }
                assert!(!is_held_word(unfenced_word(owner), owner) && !is_held_word(0, owner));
            }
        }
    }

    #[test]
    fn each_thread_keeps_a_distinct_number() {
        let numbers = || std::thread::scope(|scope| scope.spawn(|| [(); 3].map(|()| thread_number())).join());
        let (one, other) = (numbers().unwrap(), numbers().unwrap());
        assert!(one[0] != 0 && other[0] != 0 && one[0] != other[0]);
        assert_eq!((one, other), ([one[0]; 3], [other[0]; 3]));
    }

    fn hold_one_process_lock<M: MappedMedium>() {
        let (_directory, [one, two, three]) = shared::<M, 3>();
        let place = place(&one);
        let hold = |pool: &Pool<M>| at(pool, place).hold_for_process(pool);
        for _ in 0..2 {
            assert!(hold(&one) && !hold(&two) && !hold(&three));
        }
        assert_eq!(at(&two, place).holder(&two.0), Some((0, one.owner().incarnation)));
        one.abandon();
        // No other operation has observed the death.
        for _ in 0..2 {
            assert!(hold(&two) && !hold(&three));
        }
        let left = if M::VOLATILE_CACHE { UNFENCED } else { 0 };
        assert_eq!(at(&two, place).load_word(two.medium()), held_word(two.owner()) | left);
        two.close().unwrap();
        assert!(hold(&three) && hold(&three));
    }

    #[test]
    fn process_lock_is_held_until_close() {
        hold_one_process_lock::<Shm>();
        hold_one_process_lock::<Pmem>();
    }

    #[test]
    fn exclusive_pool_holds_free_process_lock_for_good() {
        let pool = Pool::<Pmem>::anonymous(1 << 20).unwrap();
        let (elected, other) = (Lock::of(word(&pool)), Lock::of(word(&pool)));
        assert!(elected.hold_for_process(&pool) && elected.hold_for_process(&pool) && elected.is_held(&pool));
        // A lock held by a thread, even of this process, does not elect the process.
        let participant = Owner { participant: pool.owner().participant + 1, ..pool.owner() };
        other.0.store(pool.medium(), held_word(participant), Relaxed);
        assert!(!other.hold_for_process(&pool));
    }

    #[test]
    fn recover_if_dead_releases_all_locks_of_a_dead_holder() {
        let (_directory, [survivor, live, dead]) = shared::<Shm, 3>();
        let places = [(); 4].map(|()| place(&survivor));
        let [free, of_live, one, two] = places;
        hold(&live, of_live);
        hold(&dead, one);
        hold(&dead, two);
        dead.abandon();
        let guard = survivor.pin();
        let held = || places.map(|place| at(&survivor, place).is_held(&survivor));
        // Other locks are unchanged, whichever process died.
        at(&survivor, free).recover_if_dead(&guard);
        at(&survivor, of_live).recover_if_dead(&guard);
        assert_eq!(held(), [false, true, true, true]);
        at(&survivor, one).recover_if_dead(&guard);
        assert_eq!(held(), [false, true, false, false]);
        assert_eq!(at(&survivor, of_live).holder(&survivor.0), Some((1, live.owner().incarnation)));
    }

    /// Between the recovery of a dead holder and the release, another one takes the lock, and dies.
    #[test]
    fn waiter_releases_the_lock_of_the_recovered_holder_alone() {
        let (_directory, [survivor, first, second]) = shared::<Shm, 3>();
        let place = place(&survivor);
        let lock = at(&survivor, place);
        hold(&first, place);
        let word = lock.load_word(survivor.medium());
        first.abandon();
        assert_eq!(survivor.recover_dead(), 1);
        hold(&second, place);
        second.abandon();
        lock.release_word(&survivor.0, word);
        assert!(lock.is_held(&survivor), "what the second one left was not repaired");
        lock.recover_if_dead(&survivor.pin());
        assert!(!lock.is_held(&survivor));
    }

    fn free_after_death<M: MappedMedium>() {
        let (_directory, [dead, survivor]) = shared::<M, 2>();
        let place = place(&survivor);
        hold(&dead, place);
        dead.abandon();
        assert_eq!(survivor.recover_dead(), 1);
        let (lock, guard) = (at(&survivor, place), survivor.pin());
        // No live thread has fenced the changes.
        lock.confirm(&guard);
        assert!(!lock.is_held(&survivor));
        assert_eq!(Lock::may_be_unfenced(lock.load_word(survivor.medium())), M::VOLATILE_CACHE);
        assert_eq!(lock.try_acquire(&guard).unwrap().was_unfenced(), M::VOLATILE_CACHE);
        // The next holder has persisted them.
        assert!(!Lock::may_be_unfenced(lock.load_word(survivor.medium())));
    }

    #[test]
    fn lock_of_a_dead_holder_is_unfenced_if_cache_is_volatile() {
        free_after_death::<Shm>();
        free_after_death::<Pmem>();
    }
}
