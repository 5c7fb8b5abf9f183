//! Moving records together, so that the memory between them comes back in pieces that serve every
//! size.
//!
//! A pool that was full of values of one size, and has lost most of them, has few records left in
//! many slabs. A *round* takes the sparsest slabs out of use (`vacate` in the pool), copies each
//! record of these to a block elsewhere, and gives the slabs back once their blocks have come back:
//!
//! ```text
//!   choose slabs | grace period | copy records, fence, swap the index's words, fence,
//!   retire the old blocks | grace period | give the slabs back
//! ```
//! # Invariants
//! 1. A copy has the words of its record: key, value, expiry, stamp. So it is the same version of
//!    its key ([`Token`](crate::Token)), for transactions and watches too.
//! 2. The copy is durable before one compare-and-swap of the index's word puts it in the record's
//!    place. If the word has changed, another writer retires the record, and the copy is freed. So
//!    a move is a put of the same entry: what holds beside puts, and in a crash in the middle of
//!    one, holds here.
//! 3. Until the grace period is over, a block of a slab may be a record that a writer has not
//!    linked yet. Behind it each block is linked, or in limbo, or no record.
//! 4. A record that a batch has claimed, one that does not match its checksum, and what is no
//!    record stay where they are, and with them the slab, which is used again.
//!
//! **A crash** between the copy and the swap leaves a copy that nothing reaches; behind the swap,
//! an old record that nothing reaches. The collector frees either. Slabs that are being emptied are
//! found by the next round, of any process.

use super::expiry::Pass;
use super::record::{Role, Shape};
use super::store::Direct;
use super::view::Record;
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, TryLockError};
use terrace_index::{Deferred, Swapped};
use terrace_medium::{MappedMedium, Offset, Word};
use terrace_pool::{Backoff, Fresh, Guard, PoolFull, Sparse};

/// Records that are moved under one pin, and share their fences.
const TOGETHER: usize = 64;
/// The same where there may be no memory to note more old blocks in.
const FEW: usize = 8;
/// Bytes of records that a step in the background moves.
const STEP_BYTES: u64 = 1 << 20;
/// In the background slabs are left alone that hold more than so many percent of their blocks, and
/// all of them while less than this is free in them.
const BACKGROUND_PERCENT: u64 = 60;
const SLACK_PERCENT: u64 = 25;
/// Less than so many slabs are not worth the looking.
const SLACK_SLABS: u64 = 4;
/// Steps in the background that a slab waits for its last blocks.
const WAITS: u32 = 20;

/// What a store knows about its moves.
#[derive(Default)]
pub(super) struct Compactor {
    state: Mutex<State>,
    /// Counts the times that room was made for a write.
    pub(super) gains: AtomicU64,
}

#[derive(Default)]
pub(super) struct State {
    round: Option<Round>,
    /// Slabs that could not be emptied, and units in which something could not be moved.
    pub(super) stuck: BTreeSet<u64>,
    /// Bytes that had been freed in all when the first of those was found.
    stuck_since: u64,
    /// Bytes that had been freed in all when there was nothing to be gained in the background.
    fruitless: Option<u64>,
    /// The same where more was tried, and the bytes that were wanted then.
    pub(super) refused: Option<(u64, u64)>,
    pub(super) pass: Pass,
    /// Whether a thread that stayed pinned has kept memory from coming back.
    pub(super) was_held_up: bool,
}

/// Slabs on their way.
struct Round {
    slabs: Vec<u64>,
    /// The epoch of the last change of them.
    since: u64,
    has_moved: bool,
    waits: u32,
}

/// What a block of a slab that is being emptied is.
enum Resident<'g> {
    /// A record that can be moved.
    Linked(Record<'g>),
    /// It comes back by itself, or may be moved later.
    Leaving,
    /// Nobody can move it.
    Stuck,
}

impl Compactor {
    /// Waits for its turn as for any lock of the pool: a test may say whose turn it is.
    pub(super) fn lock(&self) -> MutexGuard<'_, State> {
        let mut backoff = Backoff::new();
        loop {
            match self.state.try_lock() {
                Ok(state) => return state,
                Err(TryLockError::Poisoned(poisoned)) => return poisoned.into_inner(),
                Err(TryLockError::WouldBlock) => _ = backoff.rest(),
            }
        }
    }
}

impl State {
    /// Takes note that a slab could not be emptied, or a unit.
    pub(super) fn give_up(&mut self, slabs: impl IntoIterator<Item = u64>, freed: u64) {
        if self.stuck.is_empty() {
            self.stuck_since = freed;
        }
        self.stuck.extend(slabs);
    }

    /// Tries what could not be emptied again, once a 64th of the pool's size has been freed since.
    pub(super) fn forget_stuck(&mut self, freed: u64, size: u64) {
        if freed.wrapping_sub(self.stuck_since) > size / 64 {
            self.stuck.clear();
        }
    }
}

impl<M: MappedMedium> Direct<M> {
    /// A step in the background: see [`Engine::compact`](crate::Engine::compact).
    pub(super) fn compact_step(&self) -> bool {
        if self.is_running().is_err() {
            return false;
        }
        let Ok(mut state) = self.compactor.state.try_lock() else { return false };
        if state.round.is_none() && !self.begin_round(&mut state) {
            return false;
        }
        let Some(mut round) = state.round.take() else { return false };
        if !self.pool().has_passed(round.since) {
            state.round = Some(round);
            return false;
        }
        if !round.has_moved {
            self.move_round(&mut state, &mut round);
            // In most cases nobody is in the way.
            let _ = self.pool().has_passed(round.since);
        }
        round.waits += 1;
        let (released, left) = self.pool().end_vacating(&round.slabs, round.waits > WAITS);
        if round.waits > WAITS {
            state.give_up(left, self.pool().freed());
        } else if !left.is_empty() {
            state.round = Some(Round { slabs: left, ..round });
        }
        released > 0
    }

    /// Chooses slabs, if there is something to be gained.
    fn begin_round(&self, state: &mut State) -> bool {
        let (pool, freed) = (self.pool(), self.pool().freed());
        let (slabs, slack) = pool.slack();
        let is_little = slack * 100 < slabs * SLACK_PERCENT || slack < SLACK_SLABS * pool.slab_bytes();
        let is_early = state.fruitless.is_some_and(|then| freed.wrapping_sub(then) < slabs / 16);
        // Those that another process has left, or a round that somebody in need has taken over.
        let mut chosen = pool.vacating();
        if chosen.is_empty() && !is_little && !is_early {
            state.forget_stuck(freed, pool.size());
            let which = Sparse { bytes: STEP_BYTES, percent: BACKGROUND_PERCENT };
            chosen = pool.vacate(which, &|slab| self.is_to_stay(state, slab));
            state.fruitless = chosen.is_empty().then_some(freed);
        }
        if chosen.is_empty() {
            return false;
        }
        state.round = Some(Round { slabs: chosen, since: pool.epoch_now(), has_moved: false, waits: 0 });
        true
    }

    /// Moves what lies in the slabs of a round, whose grace is over.
    fn move_round(&self, state: &mut State, round: &mut Round) {
        let stuck: Vec<u64> =
            round.slabs.iter().copied().filter(|&slab| !self.empty_slab(slab, Elsewhere::InUse)).collect();
        let _ = self.pool().end_vacating(&stuck, true);
        round.slabs.retain(|slab| !stuck.contains(slab));
        state.give_up(stuck, self.pool().freed());
        (round.has_moved, round.since) = (true, self.pool().epoch_now());
    }

    /// Ends the round that is under way, if there is one, so that its slabs are free or in use
    /// again. Returns whether one is free. The caller is not pinned, and waits for threads that
    /// are.
    pub(super) fn end_round(&self, state: &mut State) -> bool {
        let mut slabs = state.round.take().map_or(Vec::new(), |round| round.slabs);
        if slabs.is_empty() {
            slabs = self.pool().vacating();
        }
        !slabs.is_empty() && self.empty_slabs(&slabs, Elsewhere::InUse, state) > 0
    }

    /// Empties slabs that are out of use, waits for their blocks, and gives them back. Those that
    /// cannot be emptied are used again. Returns how many it gave back.
    pub(super) fn empty_slabs(&self, slabs: &[u64], elsewhere: Elsewhere, state: &mut State) -> u64 {
        let pool = self.pool();
        state.was_held_up |= !pool.outwait();
        if !state.was_held_up {
            let mut stuck = Vec::new();
            for &slab in slabs {
                if !self.empty_slab(slab, elsewhere) {
                    stuck.push(slab);
                }
            }
            state.give_up(stuck, pool.freed());
            state.was_held_up |= !pool.outwait();
        }
        let (released, left) = pool.end_vacating(slabs, false);
        let _ = pool.end_vacating(&left, true);
        if !state.was_held_up {
            state.give_up(left, pool.freed());
        }
        released
    }

    /// Whether a slab is not to be emptied: it was tried in vain, or something lies in it that is
    /// no record. Reads one word of each block, which may be being written.
    pub(super) fn is_to_stay(&self, state: &State, slab: u64) -> bool {
        let guard = self.pool().pin();
        let region = guard.pool().region();
        let is_record = |block: u64| {
            // ORDER: Relaxed: what is moved is looked at again, behind a grace period.
            let shape =
                region.get(Offset::<Word>::new(block)).map(|shape| shape.load(region.medium(), Relaxed));
            shape.and_then(Shape::decode).is_some()
        };
        state.stuck.contains(&slab) || !guard.blocks_in(slab).into_iter().all(is_record)
    }

    /// Moves every record out of a slab. `false` if something is in it that cannot be moved, or
    /// there is no room for it elsewhere.
    fn empty_slab(&self, slab: u64, elsewhere: Elsewhere) -> bool {
        let blocks = self.pool().pin().blocks_in(slab);
        let mut rest = &blocks[..];
        while !rest.is_empty() {
            match self.move_some(rest, elsewhere) {
                Some(done) => rest = &rest[done..],
                None => return false,
            }
        }
        true
    }

    /// Moves the first of these blocks, as many as go under one pin. Returns how many it has done
    /// with; `None` if one of them is stuck.
    fn move_some(&self, blocks: &[u64], elsewhere: Elsewhere) -> Option<usize> {
        let guard = self.pool().pin();
        let many = guard.reserve_retirements(TOGETHER).is_ok();
        let blocks = &blocks[..blocks.len().min(if many { TOGETHER } else { FEW })];
        let (mut moves, mut trouble) = (Vec::with_capacity(blocks.len()), false);
        for &block in blocks {
            match self.resident(&guard, block) {
                Resident::Linked(record) if self.has_expired(&record) => {
                    let removed = self.unlink(&guard, record.body.key, block);
                    self.root.count_expired(&guard, u64::from(removed == Ok(true)));
                }
                Resident::Linked(record) => match self.copy(&guard, &record, elsewhere) {
                    Ok(copy) => moves.push((record, copy)),
                    Err(_) => trouble = true,
                },
                Resident::Leaving => {}
                Resident::Stuck => trouble = true,
            }
            if trouble {
                break;
            }
        }
        self.publish_moves(&guard, moves);
        (!trouble).then_some(blocks.len())
    }

    /// Moves every record that can be moved.
    pub(super) fn move_each(&self) {
        let (mut position, mut words) = (0, Vec::with_capacity(2 * FEW));
        loop {
            let guard = self.pool().pin();
            position = self.index.scan(&guard, position, FEW, &mut |word| words.push(word));
            for word in words.drain(..) {
                let Resident::Linked(record) = self.resident(&guard, word) else { continue };
                if record.shape.is_outline() {
                    let _ = self.move_extent(&guard, &record);
                } else if let Ok(copy) = self.copy(&guard, &record, Elsewhere::Anywhere) {
                    self.publish_moves(&guard, vec![(record, copy)]);
                }
            }
            if position == 0 {
                return;
            }
        }
    }

    fn resident<'g>(&self, guard: &'g Guard<'_, M>, block: u64) -> Resident<'g> {
        let Ok(record) = Record::at(guard, block) else { return Resident::Stuck };
        if record.verify().is_err() {
            return Resident::Stuck;
        }
        match self.index.get(guard, record.body.key) == Some(block) && !self.is_claimed(guard, block) {
            true if self.is_movable(guard, &record) => Resident::Linked(record),
            true => Resident::Stuck,
            false => Resident::Leaving,
        }
    }

    /// Whether a copy of a record means the same: if a batch wrote it, that is settled. What a batch
    /// word says that was damaged is not to be forgotten.
    fn is_movable(&self, guard: &Guard<'_, M>, record: &Record<'_>) -> bool {
        matches!(record.shape.role, Role::Single | Role::Put)
            && matches!(self.pending(guard, record), Ok(None))
    }

    /// Whether a record, which the index names, may be moved now.
    pub(super) fn may_move(&self, guard: &Guard<'_, M>, record: &Record<'_>) -> bool {
        self.is_movable(guard, record) && !self.is_claimed(guard, record.offset)
    }

    /// A copy of a record, written back and not fenced.
    fn copy<'g>(
        &self,
        guard: &'g Guard<'_, M>,
        record: &Record<'_>,
        elsewhere: Elsewhere,
    ) -> Result<Fresh<'g, M>, PoolFull> {
        let bytes = record.shape.size();
        let copy = match elsewhere {
            Elsewhere::InUse => guard.alloc_from_listed(record.offset, bytes)?,
            Elsewhere::Anywhere => guard.alloc(bytes)?,
        };
        let (head, body) = record.parts();
        head.iter().zip([0, 8]).for_each(|(word, at)| copy.write(at, &word.to_le_bytes()));
        if record.batch_word().is_some() {
            // Its batch is settled.
            copy.write(16, &[0; 8]);
        }
        copy.write(record.shape.body_at(), body);
        // PERSIST: started here; `publish_moves` fences before it links.
        copy.write_back();
        Ok(copy)
    }

    /// Puts copies in the place of their records, and retires these.
    pub(super) fn publish_moves(&self, guard: &Guard<'_, M>, moves: Vec<(Record<'_>, Fresh<'_, M>)>) {
        if moves.is_empty() {
            return;
        }
        // PERSIST: all copies before the index's words for them. A crash before this leaves copies
        // that nobody names.
        self.pool().region().fence();
        let mut deferred = Deferred::default();
        let mut old = Vec::with_capacity(moves.len());
        for (record, copy) in moves {
            let (key, new) = (record.body.key, copy.fenced_later().into_offset());
            let (expected, new) = (Some(record.offset), Some(new));
            match self.index.compare_and_swap_deferred(guard, key, expected, new, &mut deferred) {
                Ok(Swapped::Done) => old.push((record.offset, record.shape.size())),
                _ => guard.free(new.unwrap_or(0), record.shape.size()),
            }
        }
        // PERSIST: the words, before the old records can be used again: until then a crash brings
        // these back.
        self.index.persist_deferred(guard, deferred);
        old.into_iter().for_each(|(offset, bytes)| guard.retire(offset, bytes));
    }
}

/// Where a record is moved to.
#[derive(Clone, Copy)]
pub(super) enum Elsewhere {
    /// Slabs that are in use: no new one is taken.
    InUse,
    /// Any memory.
    Anywhere,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::direct::descriptor::Status;
    use crate::direct::plan::{Step, Trouble};
    use crate::direct::small::{Store, store};
    use crate::{Change, Commit, Durably, Engine, Pooled, What, Write};

    const LONG: [u8; 9000] = [7; 9000];

    fn assert_whole(store: &Store) {
        let report = store.check(&mut |_, _| {});
        assert!(report.is_sound(), "{:#?}", report.findings);
        let memory = store.memory();
        assert_eq!((memory.garbage, memory.used, memory.overlapping), (0, memory.reachable, 0));
        assert_eq!(store.pool().faults(), 0);
    }

    #[test]
    fn moved_record_is_the_same_version_elsewhere() {
        let (store, _) = store();
        let keys = [&b"short"[..], b"long", b"late", b"batch"];
        store.give(keys[0], b"value", None);
        store.give(keys[1], &LONG, Some(5000));
        store.give(keys[2], b"value", Some(5000));
        let put = What::Put { value: b"value", expires_at: None };
        let both = [Write { key: keys[3], what: put }, Write { key: b"other", what: put }];
        store.commit(&both, &[], Durably::Store).unwrap();
        let state = |store: &Store| {
            keys.map(|key| {
                let value = store.get(key).unwrap().unwrap();
                (value.to_vec(), value.expires_at(), value.token())
            })
        };
        let (before, places) = (state(&store), keys.map(|key| store.place(key)));
        let known: Vec<_> = keys.iter().map(|&key| (key, store.version(key).unwrap())).collect();
        store.move_all();
        assert_eq!(state(&store), before);
        assert!(keys.iter().zip(places).all(|(key, place)| store.place(key) != place));
        // Nor is it a change to a transaction.
        assert_eq!(store.commit(&both, &known, Durably::Store), Ok(Commit::Done));
        assert_whole(&store);
    }

    #[test]
    fn claimed_record_is_not_moved() {
        let (store, _) = store();
        store.give(b"key", b"value", None);
        let steps = [Step::keep(b"key")];
        let guard = store.pool().pin();
        let Ok(mut flight) = store.prepare(&guard, &steps) else { panic!("there is room") };
        assert!(flight.publish().is_ok());
        let place = store.place(b"key");
        store.move_all();
        assert_eq!(store.place(b"key"), place);
        flight.take_back();
        store.retire_blocks(&flight.remains());
        drop(guard);
        assert_whole(&store);
    }

    #[test]
    fn damaged_record_is_not_moved() {
        let (store, _) = store();
        [&b"whole"[..], b"head", b"value"].iter().for_each(|key| store.give(key, &LONG, None));
        let places = [&b"head"[..], b"value"].map(|key| store.place(key));
        store.damage(places[0] + 16);
        let guard = store.pool().pin();
        let extent = Record::at(&guard, places[1]).unwrap().body.outline.unwrap().extent;
        drop(guard);
        store.damage(extent);
        store.move_all();
        assert_eq!([&b"head"[..], b"value"].map(|key| store.place(key)), places);
        assert!(store.get(b"head").is_err() && store.get(b"value").is_err());
        assert_eq!(*store.get(b"whole").unwrap().unwrap(), LONG);
    }

    #[test]
    fn record_of_a_batch_that_is_not_there_is_not_moved() {
        let (store, _) = store();
        let put = What::Put { value: b"value", expires_at: None };
        store.commit(&[b"one", b"two"].map(|key| Write { key, what: put }), &[], Durably::Store).unwrap();
        let place = store.place(b"one");
        store.damage(place + 16);
        let told = store.get(b"one").unwrap_err();
        store.move_all();
        assert_eq!((store.place(b"one"), store.get(b"one")), (place, Err(told)));
        assert!(store.place(b"two") != place && store.get(b"two").unwrap().unwrap() == b"value");
    }

    /// The steps of a commit that gives a key another expiry, and writes another one.
    fn expiry(store: &Store) -> [Step<'static>; 2] {
        let expected = Some(Box::new((0, store.version(b"key").unwrap())));
        let put = What::Put { value: b"new", expires_at: None };
        [
            Step { key: b"key", what: Some(What::Expire(Some(5000))), expected },
            Step { key: b"other", what: Some(put), expected: None },
        ]
    }

    #[test]
    fn batch_takes_over_no_value_that_was_moved_meanwhile() {
        let (store, _) = store();
        store.give(b"key", &LONG, None);
        let steps = expiry(&store);
        let guard = store.pool().pin();
        let Ok(mut flight) = store.prepare(&guard, &steps) else { panic!("there is room") };
        store.move_all();
        assert!(matches!(flight.publish(), Err(Trouble::Moved)));
        flight.take_back();
        assert_eq!(flight.descriptor.status(), Some(Status::Aborted));
        store.retire_blocks(&flight.remains());
        drop(guard);
        // Prepared anew, it succeeds, for the version is the same.
        let writes = steps.each_ref().map(|step| Write { key: step.key, what: step.what.unwrap() });
        let version = steps[0].expectation().unwrap().1;
        assert_eq!(store.commit(&writes, &[(b"key", version)], Durably::Store), Ok(Commit::Done));
        let value = store.get(b"key").unwrap().unwrap();
        assert_eq!((value.expires_at(), &*value), (Some(5000), &LONG[..]));
        drop(value);
        assert_whole(&store);
    }

    #[test]
    fn refused_expiry_frees_nothing_of_another() {
        let (store, _) = store();
        store.give(b"key", &LONG, None);
        let steps = expiry(&store);
        let guard = store.pool().pin();
        let Ok(mut flight) = store.prepare(&guard, &steps) else { panic!("there is room") };
        store.give(b"key", b"another", None);
        assert!(matches!(flight.publish(), Err(Trouble::Changed(0))));
        flight.take_back();
        store.retire_blocks(&flight.remains());
        drop(guard);
        while store.pool().reclaim_blocking() {}
        assert_whole(&store);
    }

    #[test]
    fn modify_is_asked_again_about_a_moved_record() {
        let (store, _) = store();
        store.give(b"key", &LONG, None);
        let mut asked = 0;
        let mut change = |_: Option<crate::Entry<'_>>| {
            asked += 1;
            if asked == 1 {
                store.move_all();
            }
            Change::Expire(Some(7000))
        };
        store.modify(b"key", &mut change, Durably::Store).unwrap();
        assert_eq!((asked, store.get(b"key").unwrap().unwrap().expires_at()), (2, Some(7000)));
        assert_whole(&store);
    }

    #[test]
    fn step_where_nothing_is_to_be_gained_changes_nothing() {
        let (store, _) = store();
        (0..20_000u32).for_each(|n| store.give(&n.to_le_bytes(), &[7; 100], None));
        let before = store.pool().space();
        assert!(!store.compact());
        assert_eq!(store.pool().space(), before);
        assert!(store.pool().vacating().is_empty());
    }

    #[test]
    fn steps_give_back_what_lies_idle_between_records() {
        let (store, _) = store();
        (0..20_000u32).for_each(|n| store.give(&n.to_le_bytes(), &[n as u8; 400], None));
        let full = store.pool().space();
        (0..20_000u32)
            .filter(|n| n % 5 != 0)
            .for_each(|n| assert!(store.remove(&n.to_le_bytes(), Durably::Store).unwrap()));
        while store.pool().reclaim_blocking() {}
        (0..200).for_each(|_| _ = store.compact());
        let space = store.pool().space();
        assert!(space.free > full.used_by_blocks / 2, "{space:?}");
        assert!(space.slab_free < full.used_by_blocks / 10, "{space:?}");
        assert!((0..20_000u32).all(|n| store.get(&n.to_le_bytes()).unwrap().is_some() == (n % 5 == 0)));
        assert_whole(&store);
    }

    #[test]
    fn slab_with_something_that_cannot_be_moved_is_used_again() {
        let (store, _) = store();
        (0..10_000u32).for_each(|n| store.give(&n.to_le_bytes(), &[n as u8; 400], None));
        (0..10_000u32)
            .filter(|n| n % 20 != 0)
            .for_each(|n| assert!(store.remove(&n.to_le_bytes(), Durably::Store).unwrap()));
        (0..10_000u32).filter(|n| n % 20 == 0).for_each(|n| store.damage(store.place(&n.to_le_bytes()) + 16));
        while store.pool().reclaim_blocking() {}
        let places = |store: &Store| {
            let mut places = Vec::new();
            store.index.for_each(&store.pool().pin(), &mut |word| places.push(word));
            places.sort_unstable();
            places
        };
        let before = places(&store);
        (0..200).for_each(|_| _ = store.compact());
        assert_eq!(places(&store), before);
        assert!(store.pool().vacating().is_empty());
        assert_eq!(store.pool().verify_memory(), []);
    }
}
