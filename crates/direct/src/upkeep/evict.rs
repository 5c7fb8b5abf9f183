//! Eviction: room for new keys in a store that serves as a cache.
//!
//! A write that finds the pool full, or the store above its limit, evicts and tries again. The keys
//! to evict are chosen as Redis does: a few random ones are compared with the best of those seen
//! before, which a list of 16 keeps.
//!
//! `record::uses` says what a policy by use knows of each key.

use crate::record::format::Role;
use crate::record::records::Records;
use crate::record::uses::{Recorded, age};
use crate::record::view::Record;
use crate::slot::Slots;
use crate::upkeep::room::Room;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, PoisonError};
use terrace_engine::{Eviction, First, Policy, WriteError};
use terrace_index::Place;
use terrace_medium::MappedMedium;
use terrace_pool::{Guard, Pool};

/// Candidates that are kept.
const KEPT: usize = 16;
/// Places that are looked at for each sample that is wanted: of a few, no key may be evicted.
const PLACES: usize = 16;
/// Candidates that are tried for one eviction before all keys are searched: one more than may have
/// been used since they were kept.
const TRIES: usize = KEPT + 1;
/// The bytes that are evicted at a time: a part of the pool, within these bounds.
const PART: u64 = 1024;
const LEAST: u64 = 16 << 10;
const MOST: u64 = 1 << 20;
/// Evictions for one write after which records are moved together, if they have not helped: for
/// one in a slab, and for one that needs a range of its own.
const BEFORE_MOVING: [u32; 2] = [8, 2];
/// Evictions for one write after which it fails: other writes have taken all the memory.
const EVICTIONS_MAX: u32 = 2 * PART as u32;

/// What a store keeps about its evictions.
#[derive(Default)]
pub(crate) struct Evictor {
    /// There is a policy.
    is_evicting: AtomicBool,
    evicted: AtomicU64,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    eviction: Eviction,
    /// The best last.
    candidates: Vec<Candidate>,
    /// Where a search of all records continues.
    place: Place,
}

struct Candidate {
    /// The higher, the sooner it is evicted.
    score: u64,
    word: u64,
    key: Vec<u8>,
}

impl Evictor {
    /// Number of keys that were evicted.
    pub(crate) fn evicted(&self) -> u64 {
        self.evicted.load(Relaxed)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // Candidates are looked at again before they are evicted.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The eviction of a store. It borrows the room for writes, on which it stands, and what the store
/// keeps about its evictions.
#[derive(Clone, Copy)]
pub(crate) struct Evictions<'s, M: MappedMedium> {
    pub(crate) room: Room<'s, M>,
    pub(crate) evictor: &'s Evictor,
}

impl<'s, M: MappedMedium> Evictions<'s, M> {
    fn slots(&self) -> &'s Slots<M> {
        self.room.compaction.slots
    }

    fn records(&self) -> &'s Records<M> {
        self.slots().records()
    }

    fn pool(&self) -> &'s Pool<M> {
        self.slots().pool()
    }

    /// Whether writes that find no room have something to do here.
    pub(crate) fn is_on(&self) -> bool {
        self.records().limit.bytes().is_some() || self.evictor.is_evicting.load(Relaxed)
    }

    /// See [`Evicting::set_eviction`](terrace_engine::Evicting::set_eviction).
    pub(crate) fn set_eviction(&self, eviction: &Eviction) -> Result<(), WriteError> {
        let records = self.records();
        records.check_writable()?;
        let mut state = self.evictor.lock();
        let recorded = match eviction.policy.map(|policy| policy.first) {
            Some(First::LeastRecent) => Recorded::Time,
            Some(First::LeastFrequent) => Recorded::Frequency,
            Some(First::Random | First::NextToExpire) | None => Recorded::Nothing,
        };
        if recorded != Recorded::Nothing {
            // Before the first record with a use, which an older program takes for damaged.
            let raised = self.pool().raise_format();
            raised.map_err(|error| {
                WriteError::OverLimit(format!("the pool's format cannot be raised: {error}"))
            })?;
        }
        let now_ms = || records.settings.clock.coarse_ms();
        records.uses.set(recorded, eviction.log_factor, eviction.decay_minutes, now_ms);
        self.evictor.is_evicting.store(eviction.policy.is_some(), Relaxed);
        records.limit.set(eviction.limit_bytes);
        *state = State { eviction: eviction.clone(), ..State::default() };
        Ok(())
    }

    /// Makes room for a write that failed for want of `wanted` bytes. `tries` counts the earlier
    /// calls. Returns whether the write must be tried again. The caller holds no guard.
    ///
    /// # Errors
    /// The store is above its limit, and nothing can be evicted.
    pub(crate) fn evict_for(&self, wanted: u64, tries: u32) -> Result<bool, WriteError> {
        if self.records().check_writable().is_err() || self.records().is_pinned() {
            return Ok(false);
        }
        let set = &self.records().limit;
        if let Some(limit) = set.bytes().filter(|_| set.is_used_up()) {
            // A batch takes more than what its last record wanted; how much, only a try tells.
            let wanted = wanted.saturating_mul(1 << tries.min(40));
            if tries > 0 && wanted > limit {
                return Err(WriteError::MemoryLimit { limit });
            }
            return self.evict_below(limit, wanted).map(|()| true);
        }
        let pool = self.pool();
        // Where readers hold up so much memory, what is evicted would not become free either.
        let is_held_up = pool.waiting_bytes() > pool.size() / 8 && !pool.reclaim_blocking();
        if is_held_up || wanted > pool.size() / 2 || tries >= EVICTIONS_MAX {
            return Ok(false);
        }
        let evicted = self.evict((pool.size() / PART).clamp(LEAST, MOST).max(2 * wanted));
        if evicted == 0 {
            return Ok(false);
        }
        pool.reclaim_blocking();
        let before_moving = BEFORE_MOVING[usize::from(pool.compaction().is_extent(wanted))];
        if (tries + 1).is_multiple_of(before_moving) {
            self.room.make_room(wanted, tries / before_moving, self.room.compaction.compactor.gains());
        }
        Ok(true)
    }

    /// Evicts until a write of `wanted` bytes stays below the limit, or as much as one write may.
    fn evict_below(&self, limit: u64, wanted: u64) -> Result<(), WriteError> {
        let (used, least) = (used_now(self.pool()), wanted.saturating_mul(2));
        let part = (limit / PART).clamp(LEAST, MOST).max(least);
        // Not all of it at once: other processes write, too.
        let room = |used: u64| (limit - used).min(part).max(least);
        let headroom = match used.saturating_add(wanted).checked_sub(limit) {
            None | Some(0) => room(used),
            Some(above) => {
                let most = match self.evictor.lock().eviction.tenacity {
                    100.. => u64::MAX,
                    tenacity => MOST / 10 * u64::from(tenacity).max(1),
                };
                if self.evict(above.min(most).saturating_add(part)) > 0 {
                    self.pool().reclaim_blocking();
                    if above > most { least } else { part }
                } else {
                    // No key is evicted, but what has expired makes room.
                    self.room.remove_expired(above.saturating_add(part));
                    let used = used_now(self.pool());
                    if used.saturating_add(wanted) > limit {
                        return Err(WriteError::MemoryLimit { limit });
                    }
                    room(used)
                }
            }
        };
        self.records().limit.set_headroom(headroom);
        Ok(())
    }

    /// Evicts records of about `bytes` bytes. Returns how many bytes.
    fn evict(&self, bytes: u64) -> u64 {
        let mut state = self.evictor.lock();
        let (mut evicted, Some(policy)) = (0, state.eviction.policy) else { return 0 };
        while evicted < bytes {
            match self.evict_one(policy, &mut state) {
                Some(more) => evicted += more,
                None => break,
            }
        }
        evicted
    }

    /// Evicts one record. Returns its bytes, or `None` if none can be evicted.
    fn evict_one(&self, policy: Policy, state: &mut State) -> Option<u64> {
        for _ in 0..TRIES {
            let guard = self.pool().try_pin().ok()?;
            if policy.first == First::Random {
                state.candidates.clear();
            }
            self.draw_candidates(&guard, policy, state);
            // None: few keys may be evicted.
            let Some(best) = state.candidates.pop() else { break };
            if let Some(bytes) = self.evict_candidate(&guard, policy, &best) {
                return Some(bytes);
            }
        }
        let has_none =
            policy.only_volatile && self.records().root.tally(&self.pool().try_pin().ok()?).expiring == 0;
        if has_none { None } else { self.evict_any(policy, state) }
    }

    /// Draws a few random records, and keeps those that are better than the worst one kept.
    fn draw_candidates(&self, guard: &Guard<'_, M>, policy: Policy, state: &mut State) {
        let wanted = if policy.first == First::Random { 1 } else { state.eviction.samples as usize };
        let mut drawn = 0;
        for _ in 0..wanted * PLACES {
            let place = self.records().index.random_place(guard, self.records().random_u64());
            let mut words = Vec::new();
            self.records().index.scan(guard, &place, 1, &mut |word| words.push(word));
            if policy.first == First::Random && !words.is_empty() {
                words = vec![words[self.records().random_u64() as usize % words.len()]];
            }
            // All that are there: in a chain of many, each would be drawn seldom.
            for word in words {
                let Some((score, record)) = self.score(guard, policy, word) else { continue };
                if state.eviction.spared != Some(record.body.key) {
                    keep(&mut state.candidates, score, word, record.body.key);
                    drawn += 1;
                }
            }
            if drawn >= wanted {
                return;
            }
        }
    }

    /// The record at `word`, and how soon it should be evicted; `None` if it may not be.
    fn score<'g>(&self, guard: &'g Guard<'_, M>, policy: Policy, word: u64) -> Option<(u64, Record<'g>)> {
        let record = Record::at(guard, word).ok()?;
        if !matches!(record.shape.role, Role::Single | Role::Put)
            || self.slots().claims().is_claimed(guard, word)
        {
            return None;
        }
        let now_ms = self.records().settings.clock.coarse_ms();
        let expires_at = record.body.expires_at;
        if policy.only_volatile && expires_at.is_none() {
            return None;
        }
        let used = || record.used(guard).unwrap_or(self.records().uses.before());
        let score = match policy.first {
            _ if self.records().has_expired(&record) => u64::MAX,
            First::Random => 0,
            First::NextToExpire => u64::MAX - 1 - expires_at.unwrap_or(u64::MAX - 1),
            First::LeastRecent => u64::from(age(used(), now_ms)),
            First::LeastFrequent => 255 - u64::from(self.records().uses.frequency_at(used(), now_ms)),
        };
        Some((score, record))
    }

    /// Evicts a candidate, unless it was used since. Returns its bytes.
    fn evict_candidate(&self, guard: &Guard<'_, M>, policy: Policy, candidate: &Candidate) -> Option<u64> {
        let word = self.records().index.get(guard, &candidate.key).filter(|word| *word == candidate.word)?;
        let (score, record) = self.score(guard, policy, word)?;
        if record.body.key != candidate.key || score < candidate.score || record.verify().is_err() {
            return None;
        }
        let bytes =
            record.shape.size() + if record.shape.has_external_value() { record.shape.value_len } else { 0 };
        if !matches!(self.slots().unlink(guard, record.body.key, word), Ok(true)) {
            return None;
        }
        self.evictor.evicted.fetch_add(1, Relaxed);
        Some(bytes as u64)
    }

    /// Searches all records for one that may be evicted: samples have found none. Continues where
    /// the last search has found one, so that few such keys are found fast.
    fn evict_any(&self, policy: Policy, state: &mut State) -> Option<u64> {
        let mut ends = 0;
        while ends < 2 {
            let guard = self.pool().try_pin().ok()?;
            let mut words = Vec::new();
            let next = self.records().index.scan(&guard, &state.place, PLACES, &mut |word| words.push(word));
            for word in words {
                let Some((score, record)) = self.score(&guard, policy, word) else { continue };
                let candidate = Candidate { score, word, key: record.body.key.to_vec() };
                if state.eviction.spared == Some(&candidate.key) {
                    continue;
                }
                // The next search begins at the same place: there may be more.
                if let Some(bytes) = self.evict_candidate(&guard, policy, &candidate) {
                    return Some(bytes);
                }
            }
            ends += u32::from(next.is_end());
            state.place = if next.is_end() { Place::Start } else { next };
        }
        None
    }
}

/// Bytes in use, without those that wait for readers.
pub(crate) fn used_now<M: MappedMedium>(pool: &Pool<M>) -> u64 {
    let space = pool.space();
    (space.used_by_blocks + space.metadata).saturating_sub(space.waiting_bytes)
}

/// Keeps a candidate if it is better than the worst one, or there is room.
fn keep(candidates: &mut Vec<Candidate>, score: u64, word: u64, key: &[u8]) {
    if candidates.iter().any(|kept| kept.word == word) {
        return;
    }
    let at = candidates.partition_point(|kept| kept.score < score);
    if candidates.len() == KEPT {
        if at == 0 {
            return;
        }
        candidates.remove(0);
    }
    let at = candidates.partition_point(|kept| kept.score < score);
    candidates.insert(at, Candidate { score, word, key: key.to_vec() });
}
