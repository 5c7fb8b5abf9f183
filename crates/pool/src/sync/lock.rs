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

use std::cell::Cell;
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::{Acquire, Relaxed};
use terrace_medium::{Medium, Persistent, Word};

pub(crate) const HELD: u64 = 1;
pub(crate) const UNFENCED: u64 = 2;
const PARTICIPANT_SHIFT: u32 = 2;
const INCARNATION_SHIFT: u32 = 14;
const GENERATION_SHIFT: u32 = 32;
const INCARNATION_BITS: u32 = 18;

/// The participant and incarnation that a lock word names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Owner {
    /// Entry in the participant table, below 4096.
    pub participant: u16,
    /// How often the entry has been taken, modulo 2^18.
    pub incarnation: u32,
    /// The pool's generation. Locks of other generations are free.
    pub generation: u32,
}

const _: () = assert!(PARTICIPANT_SHIFT + 12 == INCARNATION_SHIFT, "the fields of a lock word meet");
const _: () = assert!(INCARNATION_SHIFT + INCARNATION_BITS == GENERATION_SHIFT);

/// The constant parts of the lock words that this process writes.
pub(crate) struct LockWords {
    pub(crate) held: u64,
    pub(crate) free: u64,
}

impl LockWords {
    pub(crate) fn of(owner: Owner) -> Self {
        debug_assert!(owner.participant < 1 << 12, "a lock word has 12 bits for its participant");
        debug_assert!(owner.incarnation < 1 << INCARNATION_BITS, "and 18 for its incarnation");
        debug_assert!(owner.generation != 0, "a word of zeros is a free lock");
        Self { held: held_word(owner), free: generation_word(owner) }
    }
}

/// A lock word. `0` is a free lock.
#[repr(transparent)]
pub struct Lock(pub(crate) Word);

// SAFETY: a transparent wrapper of a Word.
unsafe impl Persistent for Lock {}

impl Lock {
    /// The lock in `word`.
    #[inline(always)]
    pub fn of(word: &Word) -> &Self {
        // SAFETY: Lock is a transparent wrapper of Word.
        unsafe { &*(&raw const *word).cast() }
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
pub(crate) fn unfenced_word(owner: Owner) -> u64 {
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
pub(crate) fn is_held_word(word: u64, owner: Owner) -> bool {
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
