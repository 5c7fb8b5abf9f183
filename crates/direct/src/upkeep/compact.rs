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

use crate::record::format::Shape;
use crate::record::records::Records;
use crate::record::view::Record;
use crate::slot::Slots;
use crate::upkeep::expiry::Pass;
use std::collections::BTreeSet;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::{Mutex, MutexGuard, TryLockError};
use terrace_index::{Deferred, Place, Swapped};
use terrace_medium::{MappedMedium, Offset, Word};
use terrace_pool::{Backoff, Fresh, Guard, Pool, PoolFull, Sparse};

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
pub(crate) struct Compactor {
    state: Mutex<State>,
    /// Counts the times that room was made for a write.
    gains: AtomicU64,
}

#[derive(Default)]
pub(crate) struct State {
    round: Option<Round>,
    /// Slabs that could not be emptied, and units with something that could not be moved.
    pub(crate) stuck: BTreeSet<u64>,
    /// Total bytes freed when the first of those was found.
    stuck_since: u64,
    /// Total bytes freed when a background step found nothing to gain.
    fruitless: Option<u64>,
    /// The same for a write that found the pool full, and the bytes that it needed.
    pub(crate) refused: Option<(u64, u64)>,
    pub(crate) pass: Pass,
    /// Whether a thread that stayed pinned has blocked reclamation.
    pub(crate) was_blocked: bool,
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
    /// How often room was made for a write.
    #[inline(always)]
    pub(crate) fn gains(&self) -> u64 {
        // ORDER: Acquire: pairs with the Release in `count_gain`.
        self.gains.load(Acquire)
    }

    /// Counts that room was made for a write.
    pub(crate) fn count_gain(&self) {
        // ORDER: Release: a thread that sees the gain finds the freed memory.
        self.gains.fetch_add(1, Release);
    }

    /// Waits with a backoff, as for any lock of the pool, so that a test can schedule threads.
    pub(crate) fn lock(&self) -> MutexGuard<'_, State> {
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
    pub(crate) fn add_stuck(&mut self, slabs: impl IntoIterator<Item = u64>, freed: u64) {
        if self.stuck.is_empty() {
            self.stuck_since = freed;
        }
        self.stuck.extend(slabs);
    }

    /// Forgets them once a 64th of the pool's size has been freed since.
    pub(crate) fn forget_stuck(&mut self, freed: u64, size: u64) {
        if freed.wrapping_sub(self.stuck_since) > size / 64 {
            self.stuck.clear();
        }
    }
}

/// The moving of records. It borrows the slots, on which it stands, and what the store keeps about
/// its moves.
#[derive(Clone, Copy)]
pub(crate) struct Compaction<'s, M: MappedMedium> {
    pub(crate) slots: &'s Slots<M>,
    pub(crate) compactor: &'s Compactor,
}

impl<'s, M: MappedMedium> Compaction<'s, M> {
    pub(crate) fn records(&self) -> &'s Records<M> {
        self.slots.records()
    }

    pub(crate) fn pool(&self) -> &'s Pool<M> {
        self.slots.pool()
    }

    /// A background step: see [`Pooled::compact`](terrace_engine::Pooled::compact).
    pub(crate) fn compact_step(&self) -> bool {
        if self.records().check_writable().is_err() {
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
    pub(crate) fn end_round(&self, state: &mut State) -> bool {
        let mut slabs = state.round.take().map_or(Vec::new(), |round| round.slabs);
        if slabs.is_empty() {
            slabs = self.pool().compaction().vacating();
        }
        !slabs.is_empty() && self.empty_slabs(&slabs, Destination::InUse, state) > 0
    }

    /// Empties slabs that are out of use, waits for their blocks, and frees them. Slabs that cannot
    /// be emptied are used again. Returns how many it freed.
    pub(crate) fn empty_slabs(&self, slabs: &[u64], destination: Destination, state: &mut State) -> u64 {
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
    pub(crate) fn should_stay(&self, state: &State, slab: u64) -> bool {
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
                Resident::Linked(record) if self.records().has_expired(&record) => {
                    let removed = self.slots.unlink(&guard, record.body.key, block);
                    self.records().root.count_expired(&guard, u64::from(removed == Ok(true)));
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
    pub(crate) fn move_each(&self) {
        let (mut place, mut words) = (Place::Start, Vec::with_capacity(2 * FEW));
        loop {
            let guard = self.pool().pin();
            place = self.records().index.scan(&guard, &place, FEW, &mut |word| words.push(word));
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
        match self.records().index.get(guard, record.body.key) == Some(block)
            && !self.slots.claims().is_claimed(guard, block)
        {
            true if self.slots.claims().is_movable(guard, &record) => Resident::Linked(record),
            true => Resident::Stuck,
            false => Resident::Leaving,
        }
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

    /// Replaces records by their copies, and retires the records.
    pub(crate) fn publish_moves(&self, guard: &Guard<'_, M>, moves: Vec<(Record<'_>, Fresh<'_, M>)>) {
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
            match self.records().index.compare_and_swap_deferred(guard, key, expected, new, &mut deferred) {
                Ok(Swapped::Done) => old.push((record.offset, record.shape.size())),
                _ => guard.free(new.unwrap_or(0), record.shape.size()),
            }
        }
        // PERSIST: the words, before the old records can be reused: until then a crash restores
        // them.
        self.records().index.persist_deferred(guard, deferred);
        old.into_iter().for_each(|(offset, bytes)| guard.retire(offset, bytes));
    }

    /// Moves a record with its value.
    pub(crate) fn move_extent(&self, guard: &Guard<'_, M>, record: &Record<'_>) -> Result<(), PoolFull> {
        guard.reserve_retirements(2)?;
        // A value that does not match its checksum stays where it is.
        let Ok((_, value)) = record.value(guard, true) else { return Ok(()) };
        let staged = self.records().stage_moved(guard, record, value)?;
        // PERSIST: record and value before the index's word.
        self.pool().region().fence();
        let new = staged.into_offset();
        let swapped =
            self.records().index.compare_and_swap(guard, record.body.key, Some(record.offset), Some(new));
        match swapped {
            Ok(Swapped::Done) => self.records().retire(guard, record, None),
            _ => self.records().discard(guard, new, None),
        }
        Ok(())
    }
}

/// The memory that records are moved to.
#[derive(Clone, Copy)]
pub(crate) enum Destination {
    /// Slabs that are in use: takes no new one.
    InUse,
    /// Any memory.
    Anywhere,
}

#[cfg(test)]
#[path = "tests/compact.rs"]
mod tests;
