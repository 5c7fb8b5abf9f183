//! The intention log: which locks a thread of a shared pool may hold (SHIFT, sections 5.2.2 and 5.3).
//!
//! Before a thread tries a lock it notes the lock's place in its seat, and it strikes the note out once the lock is free again. Whoever survives it finds in the notes all
//! that the dead one may hold, and frees what has its name; see `recover`. A seat has room for 16 notes. A thread that holds more locks takes a further seat for its
//! notes, and gives it back with the last of them: whoever recovers looks through all seats that the dead one had.
//!
//! The processes of one machine have their caches in common, so what a dead one noted is seen, wherever it is on its way to. Of hosts each has caches of its own, and where these are lost
//! with it, a note is written back before the lock is tried: two lines and a fence, which SHIFT, too, pays without GPF.
//!
//! The paper gives a process 1 KiB of log and chains more of it. Here each thread has its own, so that its threads share no line, and two lines do.

use crate::pool::Inner;
use crate::seats::Seat;
use std::cell::Cell;
use std::num::NonZeroU64;
use std::sync::atomic::Ordering::{Relaxed, Release};
use terrace_medium::MappedMedium;

/// Notes of one seat.
pub(crate) const NOTES: usize = 16;

/// The further seat that this thread has for its notes, if it has one in this opening of a pool.
#[derive(Clone, Copy, PartialEq)]
struct Further {
    pool: u64,
    index: u32,
}

const NONE: Further = Further { pool: 0, index: 0 };

thread_local! {
    static FURTHER: Cell<Further> = const { Cell::new(NONE) };
}

/// Where a thread has noted that it may hold a lock: `| seat (32) | 0 | further (1) | 1 | number (16) |`, one word, for it goes wherever the lock goes.
pub(crate) struct Note(NonZeroU64);

const NUMBER: u64 = 0xffff;
const IS_NOTE: u64 = 1 << 16;
/// The seat is there for its notes alone.
const IN_FURTHER: u64 = 1 << 17;
const SEAT_SHIFT: u32 = 32;

impl Note {
    /// Notes the lock at `offset`, before it is tried.
    pub(crate) fn make<M: MappedMedium>(pool: &Inner<M>, seat: &Seat, offset: u64) -> Self {
        match Self::make_in(pool, seat, offset) {
            Some(note) => note,
            None => Self::make_further(pool, offset),
        }
    }

    /// Notes it in `seat`, unless that has no room.
    #[inline(always)]
    fn make_in<M: MappedMedium>(pool: &Inner<M>, seat: &Seat, offset: u64) -> Option<Self> {
        let used = seat.noted.load(pool.medium(), Relaxed);
        let number = used.trailing_ones();
        seat.notes.get(number as usize)?.store(pool.medium(), offset, Relaxed);
        // ORDER: Release: the place before the bit that says it is there. Only this thread writes either; who reads them does so after its death.
        seat.noted.store(pool.medium().point("intent.record"), used | 1 << number, Release);
        if M::VOLATILE_CACHE && pool.is_among_hosts() {
            // PERSIST: the note, before the lock is tried. A host that goes down before it is durable does not hold the lock; one that goes down later has noted it. Of the two lines the
            // second one alone may have arrived: then another lock seems to be noted, which nobody frees unless it has the dead one's name.
            pool.medium().point("intent.write-back");
            pool.region.write_back(&seat.notes[number as usize]);
            pool.medium().point("intent-set.write-back");
            pool.region.write_back(&seat.noted);
            pool.medium().point("intent.fence");
            pool.region.fence();
        }
        NonZeroU64::new(pool.index_of(seat) << SEAT_SHIFT | IS_NOTE | u64::from(number)).map(Self)
    }

    #[cold]
    fn make_further<M: MappedMedium>(pool: &Inner<M>, offset: u64) -> Self {
        let further = FURTHER.get();
        let known = (further.pool == pool.id).then(|| pool.seat(further.index));
        let note = known.and_then(|seat| Self::make_in(pool, seat, offset)).unwrap_or_else(|| {
            // The one before, if there was one, stays this thread's until its notes are struck out.
            let index = pool.claim_any();
            FURTHER.set(Further { pool: pool.id, index });
            let note = Self::make_in(pool, pool.seat(index), offset);
            note.expect("nobody has noted anything in a seat that was free")
        });
        Self(note.0 | IN_FURTHER)
    }

    /// The lock is free, or another's. (Not inlined: only shared pools need it, and who drops a lock of another one is short without it.)
    #[inline(never)]
    pub(crate) fn strike_out<M: MappedMedium>(&self, pool: &Inner<M>) {
        let note = self.0.get();
        let index = (note >> SEAT_SHIFT) as u32;
        let noted = &pool.seat(index).noted;
        let left = noted.load(pool.medium(), Relaxed) & !(1 << (note & NUMBER));
        // ORDER: Release: after the lock was freed.
        noted.store(pool.medium(), left, Release);
        if note & IN_FURTHER != 0 && left == 0 {
            Self::leave(pool, index);
        }
    }

    #[cold]
    fn leave<M: MappedMedium>(pool: &Inner<M>, index: u32) {
        if FURTHER.get() == (Further { pool: pool.id, index }) {
            FURTHER.set(NONE);
        }
        pool.unclaim(index);
    }
}

#[cfg(test)]
mod tests {
    use super::{NOTES, Note};
    use crate::small::participants;
    use crate::{Geometry, Lock, Locked, Pool};
    use std::panic::{AssertUnwindSafe, catch_unwind};
    use std::sync::atomic::Ordering::Relaxed;
    use terrace_medium::{Offset, Shm, Word};

    const SEATS: usize = 4;

    fn shared() -> (tempfile::TempDir, [Pool<Shm>; 2]) {
        participants(Geometry { seats: SEATS as u32, ..Geometry::tiny() })
    }

    /// So many locks, all free.
    fn locks(pool: &Pool<Shm>, count: usize) -> u64 {
        let at = pool.pin().alloc(8 * count).unwrap().fenced_later().into_offset();
        (0..count).for_each(|n| {
            pool.region().at(Offset::<Word>::new(at + 8 * n as u64)).store(pool.medium(), 0, Relaxed)
        });
        at
    }

    fn lock(pool: &Pool<Shm>, at: u64, n: usize) -> &Lock {
        pool.region().at(Offset::new(at + 8 * n as u64))
    }

    #[test]
    fn whoever_survives_frees_all_locks_however_many() {
        for count in [NOTES, NOTES + 1, 3 * NOTES] {
            let (_directory, [dead, survivor]) = shared();
            let at = locks(&dead, count);
            let guard = dead.pin();
            (0..count).for_each(|n| std::mem::forget(lock(&dead, at, n).acquire(&guard)));
            std::mem::forget(guard);
            dead.abandon();
            assert_eq!(survivor.recover_dead(), 1);
            let held = (0..count).filter(|&n| lock(&survivor, at, n).is_held(&survivor)).count();
            assert_eq!((held, survivor.0.count_seats()), (0, 0), "of {count}");
        }
    }

    fn noted(pool: &Pool<Shm>) -> usize {
        pool.0.used_seats().map(|seat| seat.noted.load(pool.medium(), Relaxed).count_ones() as usize).sum()
    }

    #[test]
    fn a_further_seat_is_given_back_with_its_last_note_in_whichever_order_locks_are_freed() {
        let (_directory, [pool, other]) = shared();
        let (at, at_other) = (locks(&pool, 3 * NOTES), locks(&other, 1));
        let (guard, guard_of_other) = (pool.pin(), other.pin());
        for (first, count) in
            [(0, NOTES + 3), (5, 2 * NOTES), (17, 3 * NOTES), (31, 3 * NOTES), (0, NOTES + 1)]
        {
            let mut held: Vec<Option<Locked<'_, Shm>>> =
                (0..count).map(|n| Some(lock(&pool, at, n).acquire(&guard))).collect();
            drop(lock(&other, at_other, 0).acquire(&guard_of_other));
            let seats = count.div_ceil(NOTES) as u64;
            assert_eq!(pool.0.count_seats(), 1 + seats, "of this thread in both, and the further ones");
            for left in (0..count).rev() {
                drop(held[(first + 5 * left) % count].take());
                assert_eq!(noted(&pool), left, "from {first} on, of {count}");
            }
            assert_eq!(pool.0.count_seats(), 2, "from {first} on, of {count}");
        }
    }

    #[test]
    fn without_a_seat_for_its_notes_a_thread_goes_no_further_and_what_it_has_is_free_again() {
        let (_directory, [pool, _other]) = shared();
        let room = SEATS * NOTES;
        let at = locks(&pool, room + 1);
        let guard = pool.pin();
        let held: Vec<_> = (0..room).map(|n| lock(&pool, at, n).acquire(&guard)).collect();
        let refused = catch_unwind(AssertUnwindSafe(|| drop(lock(&pool, at, room).try_acquire(&guard))));
        let message = refused.unwrap_err().downcast::<String>().unwrap();
        assert_eq!(*message, "the pool's 4 seats are all taken");
        drop(held);
        assert!((0..=room).all(|n| !lock(&pool, at, n).is_held(&pool)));
        assert_eq!(pool.0.count_seats(), 1);
        drop(lock(&pool, at, room).acquire(&guard));
    }

    #[test]
    fn a_lock_that_the_dead_one_tried_and_a_living_one_holds_stays_with_that_one() {
        let (_directory, [dead, survivor]) = shared();
        let at = locks(&survivor, 2);
        let guard = survivor.pin();
        let held = lock(&survivor, at, 0).acquire(&guard);
        let guard_of_dead = dead.pin();
        drop(lock(&dead, at, 1).acquire(&guard_of_dead));
        // It is killed between its note and its look at the lock; and the other one it holds.
        Note::make(&dead.0, guard_of_dead.seat(), at);
        std::mem::forget(lock(&dead, at, 1).acquire(&guard_of_dead));
        std::mem::forget(guard_of_dead);
        dead.abandon();
        assert_eq!(survivor.recover_dead(), 1);
        let me = (u32::from(survivor.owner().participant), survivor.owner().incarnation);
        let holders = [0, 1].map(|n| lock(&survivor, at, n).holder(&survivor.0));
        assert_eq!((holders, noted(&survivor)), ([Some(me), None], 1));
        drop(held);
        assert_eq!((lock(&survivor, at, 0).is_held(&survivor), noted(&survivor)), (false, 0));
    }

    #[test]
    fn who_finds_a_lock_held_leaves_no_note() {
        let (_directory, [pool, other]) = shared();
        let at = locks(&pool, 1);
        let (guard, guard_of_other) = (pool.pin(), other.pin());
        let held = lock(&pool, at, 0).acquire(&guard);
        assert!(lock(&other, at, 0).try_acquire(&guard_of_other).is_none());
        assert_eq!(noted(&pool), 1, "its holder's");
        drop(held);
        assert_eq!(noted(&pool), 0);
    }

    #[test]
    fn who_has_a_pool_for_itself_notes_nothing() {
        let pool = Pool::<Shm>::anonymous(1 << 20).unwrap();
        let at = locks(&pool, 2 * NOTES);
        let guard = pool.pin();
        let held: Vec<_> = (0..2 * NOTES).map(|n| lock(&pool, at, n).acquire(&guard)).collect();
        assert_eq!((noted(&pool), pool.0.count_seats()), (0, 1));
        drop(held);
    }
}
