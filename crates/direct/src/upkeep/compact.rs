//! Moves records together, so that the memory between them serves every size again.
//!
//! A pool that was full of values of one size, and has lost most of them, has few records left in
//! many slabs. A *round* takes the sparsest slabs out of use (`vacate` in the pool), copies each of
//! their records to a block elsewhere, and frees the slabs once their blocks are free:
//! ```text
//!   choose slabs | grace period | copy records, fence, swap the index's words, fence,
//!   retire the old blocks | grace period | free the slabs
//! ```
//! # Invariants
//! 1. A copy has the words of its record: key, value, expiry, stamp. So it is the same version of
//!    its key ([`Token`](terrace_engine::Token)), for transactions and watches too.
//! 2. The copy is durable before one compare-and-swap of the index's word replaces the record by
//!    it. If the word has changed, another writer retires the record, and the copy is freed. So a
//!    move is a put of the same entry, also for concurrent writers and in a crash.
//! 3. Before the grace period is over, a block of a slab may be a record that a writer has not
//!    linked yet. After it, each block is linked, or in limbo, or no record.
//! 4. A record that a batch has claimed, a damaged record, and a block that is no record stay in
//!    place. Their slab is used again.
//!
//! **A crash** between the copy and the swap leaves an unreachable copy; after the swap, an
//! unreachable old record. The collector frees either. The next round, of any process, finds slabs
//! that are being emptied.

use super::expiry::Pass;
use super::record::{Role, Shape, UseIn};
use super::store::Direct;
use super::view::Record;
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, TryLockError};
use terrace_index::{Deferred, Place, Swapped};
use terrace_medium::{MappedMedium, Offset, Word};
use terrace_pool::{Backoff, Fresh, Guard, PoolFull, Sparse};

/// Records that are moved under one pin, and share their fences.
const TOGETHER: usize = 64;
/// The same where there may be no memory to record more old blocks in limbo.
const FEW: usize = 8;
/// Bytes of records that a background step moves.
const STEP_BYTES: u64 = 1 << 20;
/// Background steps empty only slabs that hold at most this percentage of their blocks, and none
/// while less than `SLACK_PERCENT` of all slabs is free.
const BACKGROUND_PERCENT: u64 = 60;
const SLACK_PERCENT: u64 = 25;
/// Fewer slabs than this are not worth a search.
const SLACK_SLABS: u64 = 4;
/// Background steps that a slab waits for its last blocks.
const WAITS: u32 = 20;

/// What a store keeps about its moves.
#[derive(Default)]
pub(super) struct Compactor {
    state: Mutex<State>,
    /// Counts the times that room was made for a write.
    pub(super) gains: AtomicU64,
}

#[derive(Default)]
pub(super) struct State {
    round: Option<Round>,
    /// Slabs that could not be emptied, and units with something that could not be moved.
    pub(super) stuck: BTreeSet<u64>,
    /// Total bytes freed when the first of those was found.
    stuck_since: u64,
    /// Total bytes freed when a background step found nothing to gain.
    fruitless: Option<u64>,
    /// The same for a write that found the pool full, and the bytes that it needed.
    pub(super) refused: Option<(u64, u64)>,
    pub(super) pass: Pass,
    /// Whether a thread that stayed pinned has blocked reclamation.
    pub(super) was_blocked: bool,
}

/// Slabs that are being emptied.
struct Round {
    slabs: Vec<u64>,
    /// The epoch of their last change.
    since: u64,
    has_moved: bool,
    waits: u32,
}

/// The state of a block in a slab that is being emptied.
enum Resident<'g> {
    /// A record that can be moved.
    Linked(Record<'g>),
    /// It will be freed, or may be moved later.
    Leaving,
    /// It cannot be moved.
    Stuck,
}

impl Compactor {
    /// Waits with a backoff, as for any lock of the pool, so that a test can schedule threads.
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
    /// Records slabs or units that could not be emptied.
    pub(super) fn add_stuck(&mut self, slabs: impl IntoIterator<Item = u64>, freed: u64) {
        if self.stuck.is_empty() {
            self.stuck_since = freed;
        }
        self.stuck.extend(slabs);
    }

    /// Forgets them once a 64th of the pool's size has been freed since.
    pub(super) fn forget_stuck(&mut self, freed: u64, size: u64) {
        if freed.wrapping_sub(self.stuck_since) > size / 64 {
            self.stuck.clear();
        }
    }
}

impl<M: MappedMedium> Direct<M> {
    /// A background step: see [`Pooled::compact`](terrace_engine::Pooled::compact).
    pub(super) fn compact_step(&self) -> bool {
        if self.check_writable().is_err() {
            return false;
        }
        let Ok(mut state) = self.compactor.state.try_lock() else { return false };
        if state.round.is_none() && !self.begin_round(&mut state) {
            return false;
        }
        let Some(mut round) = state.round.take() else { return false };
        if !self.pool().is_grace_period_over(round.since) {
            state.round = Some(round);
            return false;
        }
        if !round.has_moved {
            self.move_round(&mut state, &mut round);
            // In most cases no reader blocks it.
            let _ = self.pool().is_grace_period_over(round.since);
        }
        round.waits += 1;
        let (released, left) = self.pool().compaction().end_vacating(&round.slabs, round.waits > WAITS);
        if round.waits > WAITS {
            state.add_stuck(left, self.pool().total_freed());
        } else if !left.is_empty() {
            state.round = Some(Round { slabs: left, ..round });
        }
        released > 0
    }

    /// Chooses slabs, if there is something to gain.
    fn begin_round(&self, state: &mut State) -> bool {
        let (pool, freed) = (self.pool(), self.pool().total_freed());
        let (slabs, slack) = pool.compaction().slack();
        let is_little =
            slack * 100 < slabs * SLACK_PERCENT || slack < SLACK_SLABS * pool.compaction().slab_bytes();
        let is_early = state.fruitless.is_some_and(|then| freed.wrapping_sub(then) < slabs / 16);
        // Slabs that another process has left, or that are left of a round that `end_round` has
        // taken over.
        let mut chosen = pool.compaction().vacating();
        if chosen.is_empty() && !is_little && !is_early {
            state.forget_stuck(freed, pool.size());
            let which = Sparse { bytes: STEP_BYTES, percent: BACKGROUND_PERCENT };
            chosen = pool.compaction().vacate(which, &|slab| self.should_stay(state, slab));
            state.fruitless = chosen.is_empty().then_some(freed);
        }
        if chosen.is_empty() {
            return false;
        }
        state.round = Some(Round { slabs: chosen, since: pool.epoch(), has_moved: false, waits: 0 });
        true
    }

    /// Moves the records of a round whose grace period is over.
    fn move_round(&self, state: &mut State, round: &mut Round) {
        let stuck: Vec<u64> =
            round.slabs.iter().copied().filter(|&slab| !self.empty_slab(slab, Destination::InUse)).collect();
        let _ = self.pool().compaction().end_vacating(&stuck, true);
        round.slabs.retain(|slab| !stuck.contains(slab));
        state.add_stuck(stuck, self.pool().total_freed());
        (round.has_moved, round.since) = (true, self.pool().epoch());
    }

    /// Completes the running round, if there is one, so that its slabs are free or in use again.
    /// Returns whether one is free. The caller must not be pinned; this waits for pinned threads.
    pub(super) fn end_round(&self, state: &mut State) -> bool {
        let mut slabs = state.round.take().map_or(Vec::new(), |round| round.slabs);
        if slabs.is_empty() {
            slabs = self.pool().compaction().vacating();
        }
        !slabs.is_empty() && self.empty_slabs(&slabs, Destination::InUse, state) > 0
    }

    /// Empties slabs that are out of use, waits for their blocks, and frees them. Slabs that cannot
    /// be emptied are used again. Returns how many it freed.
    pub(super) fn empty_slabs(&self, slabs: &[u64], destination: Destination, state: &mut State) -> u64 {
        let pool = self.pool();
        state.was_blocked |= !pool.wait_for_readers();
        if !state.was_blocked {
            let mut stuck = Vec::new();
            for &slab in slabs {
                if !self.empty_slab(slab, destination) {
                    stuck.push(slab);
                }
            }
            state.add_stuck(stuck, pool.total_freed());
            state.was_blocked |= !pool.wait_for_readers();
        }
        let (released, left) = pool.compaction().end_vacating(slabs, false);
        let _ = pool.compaction().end_vacating(&left, true);
        if !state.was_blocked {
            state.add_stuck(left, pool.total_freed());
        }
        released
    }

    /// Whether a slab should not be emptied: it was tried in vain, or one of its blocks is no
    /// record. Reads one word of each block, which another thread may be writing.
    pub(super) fn should_stay(&self, state: &State, slab: u64) -> bool {
        let guard = self.pool().pin();
        let region = guard.pool().region();
        let is_record = |block: u64| {
            // ORDER: Relaxed: records that are moved are read again, after a grace period.
            let shape =
                region.get(Offset::<Word>::new(block)).map(|shape| shape.load(region.medium(), Relaxed));
            shape.and_then(Shape::decode).is_some()
        };
        state.stuck.contains(&slab) || !guard.blocks_in(slab).into_iter().all(is_record)
    }

    /// Moves every record out of a slab. `false` if some block cannot be moved, or there is no room
    /// for it elsewhere.
    fn empty_slab(&self, slab: u64, destination: Destination) -> bool {
        let blocks = self.pool().pin().blocks_in(slab);
        let mut rest = &blocks[..];
        while !rest.is_empty() {
            match self.move_some(rest, destination) {
                Some(done) => rest = &rest[done..],
                None => return false,
            }
        }
        true
    }

    /// Moves the first of these blocks, as many as one pin allows. Returns how many it has
    /// completed; `None` if one of them is stuck.
    fn move_some(&self, blocks: &[u64], destination: Destination) -> Option<usize> {
        let guard = self.pool().pin();
        let many = guard.reserve_retirements(TOGETHER).is_ok();
        let blocks = &blocks[..blocks.len().min(if many { TOGETHER } else { FEW })];
        let (mut moves, mut is_stuck) = (Vec::with_capacity(blocks.len()), false);
        for &block in blocks {
            match self.resident(&guard, block) {
                Resident::Linked(record) if self.has_expired(&record) => {
                    let removed = self.unlink(&guard, record.body.key, block);
                    self.root.count_expired(&guard, u64::from(removed == Ok(true)));
                }
                Resident::Linked(record) => match self.copy(&guard, &record, destination) {
                    Ok(copy) => moves.push((record, copy)),
                    Err(_) => is_stuck = true,
                },
                Resident::Leaving => {}
                Resident::Stuck => is_stuck = true,
            }
            if is_stuck {
                break;
            }
        }
        self.publish_moves(&guard, moves);
        (!is_stuck).then_some(blocks.len())
    }

    /// Moves every record that can be moved.
    pub(super) fn move_each(&self) {
        let (mut place, mut words) = (Place::Start, Vec::with_capacity(2 * FEW));
        loop {
            let guard = self.pool().pin();
            place = self.index.scan(&guard, &place, FEW, &mut |word| words.push(word));
            for word in words.drain(..) {
                let Resident::Linked(record) = self.resident(&guard, word) else { continue };
                if record.shape.has_external_value() {
                    let _ = self.move_extent(&guard, &record);
                } else if let Ok(copy) = self.copy(&guard, &record, Destination::Anywhere) {
                    self.publish_moves(&guard, vec![(record, copy)]);
                }
            }
            if place.is_end() {
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

    /// Whether a copy of a record has the same meaning: if a batch wrote it, it is finalized. A
    /// damaged batch word must not be lost.
    fn is_movable(&self, guard: &Guard<'_, M>, record: &Record<'_>) -> bool {
        matches!(record.shape.role, Role::Single | Role::Put)
            && matches!(self.pending(guard, record), Ok(None))
    }

    /// Whether a record that the index names may be moved now.
    pub(super) fn may_move(&self, guard: &Guard<'_, M>, record: &Record<'_>) -> bool {
        self.is_movable(guard, record) && !self.is_claimed(guard, record.offset)
    }

    /// A copy of a record, written back and not fenced.
    fn copy<'g>(
        &self,
        guard: &'g Guard<'_, M>,
        record: &Record<'_>,
        destination: Destination,
    ) -> Result<Fresh<'g, M>, PoolFull> {
        let bytes = record.shape.size();
        let copy = match destination {
            Destination::InUse => guard.alloc_from_existing_slabs(record.offset, bytes)?,
            Destination::Anywhere => guard.alloc(bytes)?,
        };
        let (head, body) = record.parts();
        head.iter().zip([0, 8]).for_each(|(word, at)| copy.write(at, &word.to_le_bytes()));
        if record.batch_word().is_some() {
            // Its batch is finalized.
            copy.write(16, &[0; 8]);
        }
        if let Some(at) = record.shape.use_word_at() {
            let used = record.use_word(guard).map_or(0, |word| word.load(guard.pool().medium(), Relaxed));
            copy.write(at, &used.to_le_bytes());
        }
        copy.write(record.shape.body_at(), body);
        // PERSIST: started here; `publish_moves` fences before it links.
        copy.write_back();
        Ok(copy)
    }

    /// Replaces a sound record by a copy that has a word for its use.
    pub(super) fn move_with_use(
        &self,
        guard: &Guard<'_, M>,
        record: &Record<'_>,
        used: u32,
    ) -> Result<(), PoolFull> {
        if self.check_writable().is_err() || !self.may_move(guard, record) {
            return Ok(());
        }
        guard.reserve_retirements(1)?;
        let shape = Shape { use_in: UseIn::Word, ..record.shape };
        let copy = guard.alloc(shape.size())?;
        let ([_, seal], body) = record.parts();
        copy.write(0, &shape.encode().to_le_bytes());
        copy.write(8, &seal.to_le_bytes());
        if record.batch_word().is_some() {
            // Its batch is finalized.
            copy.write(16, &[0; 8]);
        }
        let place = shape.use_word_at().expect("its use lies in a word");
        copy.write(place, &u64::from(used).to_le_bytes());
        copy.write(shape.body_at(), body);
        // PERSIST: the copy before the index's word.
        copy.write_back();
        self.pool().region().fence();
        let (key, new) = (record.body.key, copy.fenced_later().into_offset());
        match self.index.compare_and_swap(guard, key, Some(record.offset), Some(new)) {
            Ok(Swapped::Done) => guard.retire(record.offset, record.shape.size()),
            _ => guard.free(new, shape.size()),
        }
        Ok(())
    }

    /// Replaces records by their copies, and retires the records.
    pub(super) fn publish_moves(&self, guard: &Guard<'_, M>, moves: Vec<(Record<'_>, Fresh<'_, M>)>) {
        if moves.is_empty() {
            return;
        }
        // PERSIST: all copies before the index's words. A crash before this leaves unreachable
        // copies.
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
        // PERSIST: the words, before the old records can be reused: until then a crash restores
        // them.
        self.index.persist_deferred(guard, deferred);
        old.into_iter().for_each(|(offset, bytes)| guard.retire(offset, bytes));
    }
}

/// The memory that records are moved to.
#[derive(Clone, Copy)]
pub(super) enum Destination {
    /// Slabs that are in use: takes no new one.
    InUse,
    /// Any memory.
    Anywhere,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::descriptor::Status;
    use crate::plan::{AbortReason, BatchStep};
    use crate::small::{Store, store};
    use terrace_engine::{Change, Commit, Durably, Engine, Pooled, Write, WriteKind};

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
        store.put_entry(keys[0], b"value", None);
        store.put_entry(keys[1], &LONG, Some(5000));
        store.put_entry(keys[2], b"value", Some(5000));
        let put = WriteKind::Put { value: b"value", expires_at: None };
        let both = [Write { key: keys[3], what: put }, Write { key: b"other", what: put }];
        store.commit(&both, &[], Durably::Store).unwrap();
        let state = |store: &Store| {
            keys.map(|key| {
                let value = store.get(key).unwrap().unwrap();
                (value.to_vec(), value.expires_at(), value.token())
            })
        };
        let (before, places) = (state(&store), keys.map(|key| store.record_offset(key)));
        let known: Vec<_> = keys.iter().map(|&key| (key, store.version(key).unwrap())).collect();
        store.move_all();
        assert_eq!(state(&store), before);
        assert!(keys.iter().zip(places).all(|(key, place)| store.record_offset(key) != place));
        // Nor is it a change to a transaction.
        assert_eq!(store.commit(&both, &known, Durably::Store), Ok(Commit::Done));
        assert_whole(&store);
    }

    #[test]
    fn claimed_record_is_not_moved() {
        let (store, _) = store();
        store.put_entry(b"key", b"value", None);
        let steps = [BatchStep::keep(b"key")];
        let guard = store.pool().pin();
        let Ok(mut running) = store.prepare(&guard, &steps) else { panic!("there is room") };
        assert!(running.publish().is_ok());
        let place = store.record_offset(b"key");
        store.move_all();
        assert_eq!(store.record_offset(b"key"), place);
        running.abort();
        store.retire_blocks(&running.remains());
        drop(guard);
        assert_whole(&store);
    }

    #[test]
    fn damaged_record_is_not_moved() {
        let (store, _) = store();
        [&b"whole"[..], b"head", b"value"].iter().for_each(|key| store.put_entry(key, &LONG, None));
        let places = [&b"head"[..], b"value"].map(|key| store.record_offset(key));
        store.damage(places[0] + 16);
        let guard = store.pool().pin();
        let extent = Record::at(&guard, places[1]).unwrap().body.external.unwrap().extent;
        drop(guard);
        store.damage(extent);
        store.move_all();
        assert_eq!([&b"head"[..], b"value"].map(|key| store.record_offset(key)), places);
        assert!(store.get(b"head").is_err() && store.get(b"value").is_err());
        assert_eq!(*store.get(b"whole").unwrap().unwrap(), LONG);
    }

    #[test]
    fn record_of_missing_batch_is_not_moved() {
        let (store, _) = store();
        let put = WriteKind::Put { value: b"value", expires_at: None };
        store.commit(&[b"one", b"two"].map(|key| Write { key, what: put }), &[], Durably::Store).unwrap();
        let place = store.record_offset(b"one");
        store.damage(place + 16);
        let error = store.get(b"one").unwrap_err();
        store.move_all();
        assert_eq!((store.record_offset(b"one"), store.get(b"one")), (place, Err(error)));
        assert!(store.record_offset(b"two") != place && store.get(b"two").unwrap().unwrap() == b"value");
    }

    /// The steps of a commit that gives a key another expiry, and writes another key.
    fn expiry(store: &Store) -> [BatchStep<'static>; 2] {
        let expected = Some(Box::new((0, store.version(b"key").unwrap())));
        let put = WriteKind::Put { value: b"new", expires_at: None };
        [
            BatchStep { key: b"key", what: Some(WriteKind::Expire(Some(5000))), expected },
            BatchStep { key: b"other", what: Some(put), expected: None },
        ]
    }

    #[test]
    fn batch_takes_over_no_moved_value() {
        let (store, _) = store();
        store.put_entry(b"key", &LONG, None);
        let steps = expiry(&store);
        let guard = store.pool().pin();
        let Ok(mut running) = store.prepare(&guard, &steps) else { panic!("there is room") };
        store.move_all();
        assert!(matches!(running.publish(), Err(AbortReason::Moved)));
        running.abort();
        assert_eq!(running.descriptor.status(), Some(Status::Aborted));
        store.retire_blocks(&running.remains());
        drop(guard);
        // Prepared again, it succeeds, for the version is the same.
        let writes = steps.each_ref().map(|step| Write { key: step.key, what: step.what.unwrap() });
        let version = steps[0].expectation().unwrap().1;
        assert_eq!(store.commit(&writes, &[(b"key", version)], Durably::Store), Ok(Commit::Done));
        let value = store.get(b"key").unwrap().unwrap();
        assert_eq!((value.expires_at(), &*value), (Some(5000), &LONG[..]));
        drop(value);
        assert_whole(&store);
    }

    #[test]
    fn failed_expiry_frees_no_shared_value() {
        let (store, _) = store();
        store.put_entry(b"key", &LONG, None);
        let steps = expiry(&store);
        let guard = store.pool().pin();
        let Ok(mut running) = store.prepare(&guard, &steps) else { panic!("there is room") };
        store.put_entry(b"key", b"another", None);
        assert!(matches!(running.publish(), Err(AbortReason::Changed(0))));
        running.abort();
        store.retire_blocks(&running.remains());
        drop(guard);
        while store.pool().reclaim_blocking() {}
        assert_whole(&store);
    }

    #[test]
    fn modify_runs_again_for_a_moved_record() {
        let (store, _) = store();
        store.put_entry(b"key", &LONG, None);
        let mut asked = 0;
        let mut change = |_: Option<terrace_engine::Entry<'_>>| {
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
    fn step_without_gain_changes_nothing() {
        let (store, _) = store();
        (0..20_000u32).for_each(|n| store.put_entry(&n.to_le_bytes(), &[7; 100], None));
        let before = store.pool().space();
        assert!(!store.compact());
        assert_eq!(store.pool().space(), before);
        assert!(store.pool().compaction().vacating().is_empty());
    }

    #[test]
    fn steps_free_memory_between_records() {
        let (store, _) = store();
        (0..20_000u32).for_each(|n| store.put_entry(&n.to_le_bytes(), &[n as u8; 400], None));
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
    fn slab_with_unmovable_block_is_used_again() {
        let (store, _) = store();
        (0..10_000u32).for_each(|n| store.put_entry(&n.to_le_bytes(), &[n as u8; 400], None));
        (0..10_000u32)
            .filter(|n| n % 20 != 0)
            .for_each(|n| assert!(store.remove(&n.to_le_bytes(), Durably::Store).unwrap()));
        (0..10_000u32)
            .filter(|n| n % 20 == 0)
            .for_each(|n| store.damage(store.record_offset(&n.to_le_bytes()) + 16));
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
        assert!(store.pool().compaction().vacating().is_empty());
        assert_eq!(store.pool().verify_memory(), []);
    }
}
