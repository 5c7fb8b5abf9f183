//! One lock for everything in a pool: a word that says who holds it, in which of the pool's lives.
//!
//! ```text
//!   63        32 31         14 13          2      1       0
//!   | generation | incarnation | participant | unfenced | held |
//! ```
//! A lock is not data. A word of another generation than the pool's is a free lock, so nothing has to be unlocked after a crash. While it is
//! held, incarnation and participant name the process that holds it. While it is free but *unfenced*, the last holder has written back what it
//! changed but not fenced yet, and the incarnation's place holds the number of that holder's thread, so that only that thread settles it.
//!
//! Locks are never persisted: no write-back, no fence. (Their notes are, among hosts: see `notes`.)
//!
//! In a pool that several processes share, any of them may die while it holds locks. So before a thread tries a lock it notes the lock's place (see `notes`). Who waits
//! for a lock looks now and then whether its holder is alive. A pool that one process has for itself does none of this: for its locks, a killed process and a
//! new generation are the same.

use crate::backoff::Backoff;
use crate::epoch::Guard;
use crate::notes::Intent;
use crate::participants::Owner;
use crate::pool::Inner;
use crate::seats::ThreadSlot;
use crate::waiting::Waiting;
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

/// What this process writes into lock words, put together once.
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

    /// Takes the lock, and waits for it while another thread holds it. It is not reentrant.
    #[inline(always)]
    pub fn acquire<'g, M: MappedMedium>(&'g self, guard: &'g Guard<'_, M>) -> Locked<'g, M> {
        let pool = guard.inner();
        // Who waits returns the note alone, which fits a register: a guard that a function returns lies in memory, and then always.
        let intent = match self.try_take(guard) {
            Some(intent) => intent,
            None => self.wait(pool, || self.try_take(guard)),
        };
        Locked { lock: self, pool, intent, not_send: PhantomData }
    }

    /// Takes the lock if it is free.
    ///
    /// # Panics
    /// If the pool is shared, this thread holds 16 locks, and others have taken all seats of the pool.
    #[inline(always)]
    pub fn try_acquire<'g, M: MappedMedium>(&'g self, guard: &'g Guard<'_, M>) -> Option<Locked<'g, M>> {
        self.try_take(guard).map(|intent| Locked {
            lock: self,
            pool: guard.inner(),
            intent,
            not_send: PhantomData,
        })
    }

    /// As [`Lock::try_acquire`]: returns the note that was made of it.
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

    /// As [`Lock::acquire`], for the pool's own locks, of which whoever recovers knows where they are.
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

    /// As [`Lock::acquire_in`], but `None` once `should_stop` says so while it waits.
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

    /// Whether this process holds the lock for as long as it has the pool open. It takes it if nobody alive does. For a lock that says who of several
    /// processes is to do something, and that nobody waits for.
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

    /// If the lock is held by somebody who died: frees all that he held. For who does not wait for it.
    pub fn recover_if_dead<M: MappedMedium>(&self, guard: &Guard<'_, M>) {
        self.recover_if_dead_in(guard.inner());
    }

    #[cold]
    pub(crate) fn recover_if_dead_in<M: MappedMedium>(&self, pool: &Inner<M>) {
        // ORDER: Acquire, as wherever it is asked whether a holder lives: that it has come is seen, too.
        let word = self.0.load(pool.medium(), Acquire);
        if pool.is_shared() && is_held_word(word, pool.owner) && pool.is_holder_dead(word) {
            pool.recover_participant(holder_of_word(word).0);
        }
    }

    /// Notes that this thread tries the lock, unless somebody holds it.
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
        // ORDER: Acquire pairs with the Release store of the last holder: what it changed is seen. Release: the note of a shared pool comes before.
        self.0.compare_exchange(pool.medium().point("lock.take"), now, mine, AcqRel, Relaxed).is_ok()
    }

    /// Frees a lock whose [`Locked`] was forgotten.
    pub(crate) fn release_in<M: MappedMedium>(&self, pool: &Inner<M>) {
        // ORDER: Release: as in `Locked`.
        self.0.store(pool.medium().point("lock.release-in"), pool.lock_words.free, Release);
    }

    /// Frees the lock if it is held by somebody who died. What he changed under it may not be durable.
    pub(crate) fn release_if_dead<M: MappedMedium>(&self, pool: &Inner<M>) {
        let word = self.0.load(pool.medium(), Acquire);
        if is_held_word(word, pool.owner) && pool.is_holder_dead(word) {
            let free = pool.lock_words.free | if M::VOLATILE_CACHE { UNFENCED } else { 0 };
            // ORDER: AcqRel: who takes it next sees what the dead one stored. A failure means that somebody else has freed it.
            let _ = self.0.compare_exchange(
                pool.medium().point("lock.release-dead"),
                word,
                free,
                AcqRel,
                Relaxed,
            );
        }
    }

    /// Takes the lock over if it is held by somebody who died. It is freed by [`Lock::release_in`].
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

    /// The participant and the incarnation that hold it, if any do.
    pub(crate) fn holder<M: MappedMedium>(&self, pool: &Inner<M>) -> Option<(u32, u32)> {
        let word = self.0.load(pool.medium(), Acquire);
        is_held_word(word, pool.owner).then(|| holder_of_word(word))
    }

    /// Whether somebody holds it in this generation of the pool.
    pub fn is_held<M: MappedMedium>(&self, pool: &crate::Pool<M>) -> bool {
        self.is_held_in(&pool.0)
    }

    pub(crate) fn is_held_in<M: MappedMedium>(&self, pool: &Inner<M>) -> bool {
        is_held_word(self.0.load(pool.medium().point("lock.is-held"), Acquire), pool.owner)
    }

    /// The word as it is now, for [`Lock::may_be_unfenced`].
    #[inline(always)]
    pub fn load_word<M: Medium>(&self, medium: &M) -> u64 {
        self.0.load(medium, Acquire)
    }

    /// Whether something that this lock protects may not be durable yet: it is held, or was released before its fence. `word` was loaded
    /// from the lock after what was read under no lock. In whichever life of the pool: a process that was killed while it held the lock may have left
    /// stores in the processor's cache, which a power failure would still take.
    #[inline(always)]
    pub fn may_be_unfenced(word: u64) -> bool {
        word & (HELD | UNFENCED) != 0
    }

    /// After a fence: takes back the note that this thread left with [`Locked::release_unfenced`]. Does nothing if another thread has
    /// taken the lock since, which then settles it itself.
    pub fn confirm<M: MappedMedium>(&self, guard: &Guard<'_, M>) {
        let pool = guard.inner();
        let free = pool.lock_words.free;
        // ORDER: Release: who finds the lock settled also finds what was fenced. (A failure means that another thread took it.)
        let _ = self.0.compare_exchange(
            pool.medium().point("lock.confirm"),
            unfenced_word(pool.owner),
            free,
            Release,
            Relaxed,
        );
    }
}

/// A lock that is held. Dropping it releases it. Three words, so that it is moved in registers. It stays with its thread, in whose seat it is noted:
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
    /// In a shared pool, unless whoever recovers knows of the lock anyway.
    intent: Option<Intent>,
    /// Notes are struck out by the thread that made them.
    not_send: PhantomData<*const ()>,
}

impl<M: MappedMedium> Locked<'_, M> {
    /// Whether the last holder released it before its fence, or was killed while it held it: what it changed must be made durable before
    /// it is built upon. Never so where the processor's cache outlives what the pool is to outlive.
    #[inline(always)]
    pub fn was_unfenced(&self) -> bool {
        // The word says so from when it was taken.
        M::VOLATILE_CACHE && self.lock.0.load(self.pool.medium(), Relaxed) & UNFENCED != 0
    }

    /// Frees the lock. Everything changed under it, by this holder and those before, is durable.
    #[inline(always)]
    pub fn release(self) {}

    /// Frees the lock although what was changed under it is written back but not fenced yet. The thread fences later and then calls
    /// [`Lock::confirm`].
    #[inline(always)]
    pub fn release_unfenced(self) {
        self.free(unfenced_word(self.pool.owner));
        std::mem::forget(self);
    }

    /// Frees the lock of which nothing was built upon what the last holder left: if that may not be durable, the lock goes on to say so.
    #[inline(always)]
    pub fn release_unchanged(self) {
        if self.was_unfenced() {
            // No thread's note: none that fences something else takes it back.
            self.free(self.pool.lock_words.free | UNFENCED);
            std::mem::forget(self);
        }
    }

    #[inline(always)]
    fn free(&self, word: u64) {
        // ORDER: Release pairs with the Acquire of the next holder, and of readers who check the word after what they read.
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

/// The participant and the incarnation that a held word names.
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

/// Gives this thread a number of the caller's choice, so that a test can repeat what it did. No two threads that meet in a pool may have the same.
#[doc(hidden)]
pub fn set_thread_number(number: u32) {
    NUMBER.set(number);
}

/// Tells the threads of this process apart. Two threads have the same number only if 2^18 others were started between them.
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
    use crate::small::participants;
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

    /// Where a lock lies that is free.
    fn place<M: MappedMedium>(pool: &Pool<M>) -> Offset<Word> {
        pool.region().offset_of(word(pool))
    }

    fn at<M: MappedMedium>(pool: &Pool<M>, place: Offset<Word>) -> &Lock {
        Lock::of(pool.region().at(place))
    }

    /// Takes the lock, and never frees it.
    fn hold<M: MappedMedium>(pool: &Pool<M>, place: Offset<Word>) {
        std::mem::forget(at(pool, place).acquire(&pool.pin()));
    }

    #[test]
    fn the_word_says_who_holds_it_in_which_life() {
        let owner = Owner { generation: 0x89ab_cdef, incarnation: 0x2_aaaa, participant: 0xabc };
        let generation = 0x89ab_cdef << 32;
        assert_eq!(generation_word(owner), generation);
        assert_eq!(held_word(owner), generation | 0x2_aaaa << 14 | 0xabc << 2 | HELD);
        // Of a number too large, what fits.
        set_thread_number(1 << INCARNATION_BITS | 0x1_5555);
        assert_eq!(unfenced_word(owner), generation | 0x1_5555 << 14 | 0xabc << 2 | UNFENCED);
    }

    #[test]
    fn acquire_keeps_the_unfenced_bit() {
        let pool = PoolOptions::anonymous().size(1 << 20).create::<Pmem>().unwrap();
        let (guard, word) = (pool.pin(), word(&pool));
        let lock = Lock::of(word);
        let before = Owner { generation: pool.generation() + 1, ..pool.owner() };
        // It was released before its fence, its holder was killed, or both, or neither.
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
    fn a_held_lock_is_held_once_and_free_again_after() {
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
    fn a_lock_of_another_generation_is_free() {
        let pool = Pool::<Pmem>::anonymous(1 << 20).unwrap();
        let (guard, word) = (pool.pin(), word(&pool));
        let lock = Lock::of(word);
        let other = Owner { generation: pool.generation() + 1, ..pool.owner() };
        word.store(pool.medium(), held_word(other) | UNFENCED, Relaxed);
        assert!(!lock.is_held(&pool));
        // Free, but what its holder did may still be in the processor's cache.
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
    fn an_unfenced_release_is_seen_until_it_is_settled() {
        let pool = Pool::<Dram>::anonymous(1 << 20).unwrap();
        let (guard, lock) = (pool.pin(), Lock::of(word(&pool)));
        lock.acquire(&guard).release_unfenced();
        assert!(!lock.is_held(&pool) && Lock::may_be_unfenced(lock.load_word(pool.medium())));
        lock.confirm(&guard);
        assert!(!Lock::may_be_unfenced(lock.load_word(pool.medium())));
    }

    #[test]
    fn a_thread_does_not_settle_what_another_left() {
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
                // Time for the other to find it held; if it comes later, this round shows nothing.
                for _ in 0..10 {
                    std::thread::yield_now();
                }
                held.release();
                barrier.wait();
            }
        });
    }

    #[test]
    fn two_threads_never_hold_it_together() {
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
    fn a_held_word_names_its_holder_and_nothing_else() {
        for (participant, incarnation) in [(0, 1), (1, 2), (0xabc, 0x1_5555), (0xfff, 0x3_ffff)] {
            for generation in [1, 0x5555_5555, u32::MAX] {
                let owner = Owner { generation, incarnation, participant: participant as u16 };
                for word in [held_word(owner), held_word(owner) | UNFENCED] {
                    assert_eq!(holder_of_word(word), (participant, incarnation), "{word:#x}");
                    assert!(is_held_word(word, owner));
                    let next = Owner { generation: generation.wrapping_add(1), ..owner };
                    assert!(!is_held_word(word, next), "in the next life it is free");
                }
                assert!(!is_held_word(unfenced_word(owner), owner) && !is_held_word(0, owner));
            }
        }
    }

    #[test]
    fn each_thread_has_a_number_of_its_own_and_keeps_it() {
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
        // Nobody need have noticed.
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
        // One that is in use as any lock is, by this process too, elects nobody.
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
        // Of others nothing is asked, whoever has died.
        at(&survivor, free).recover_if_dead(&guard);
        at(&survivor, of_live).recover_if_dead(&guard);
        assert_eq!(held(), [false, true, true, true]);
        at(&survivor, one).recover_if_dead(&guard);
        assert_eq!(held(), [false, true, false, false]);
        assert_eq!(at(&survivor, of_live).holder(&survivor.0), Some((1, live.owner().incarnation)));
    }

    fn free_after_death<M: MappedMedium>() {
        let (_directory, [dead, survivor]) = shared::<M, 2>();
        let place = place(&survivor);
        hold(&dead, place);
        dead.abandon();
        assert_eq!(survivor.recover_dead(), 1);
        let (lock, guard) = (at(&survivor, place), survivor.pin());
        // Nobody alive has fenced what it changed.
        lock.confirm(&guard);
        assert!(!lock.is_held(&survivor));
        assert_eq!(Lock::may_be_unfenced(lock.load_word(survivor.medium())), M::VOLATILE_CACHE);
        assert_eq!(lock.try_acquire(&guard).unwrap().was_unfenced(), M::VOLATILE_CACHE);
        // Whoever took it has seen to that.
        assert!(!Lock::may_be_unfenced(lock.load_word(survivor.medium())));
    }

    #[test]
    fn lock_of_a_dead_holder_is_unfenced_if_cache_is_volatile() {
        free_after_death::<Shm>();
        free_after_death::<Pmem>();
    }
}
