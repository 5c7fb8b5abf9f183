//! Eviction: room for new keys in a store that serves as a cache.
//!
//! A write that finds the pool full, or the store above its limit, evicts and tries again. The keys
//! to evict are chosen as Redis does: a few random ones are compared with the best of those seen
//! before, which a list of 16 keeps.
//!
//! A policy by use needs to know when, or how often, each key was used. A read stores that into the
//! record's head, which it has loaded anyway, and only if it has changed:
//!
//! ```text
//!   least recent     time of the last use, in units of 256 ms, modulo 2^24
//!   least frequent   [23:8] minutes, modulo 2^16   [7:0] frequency, on a logarithmic scale
//! ```
//! # Invariants
//! 1. A use is no part of a record's version or checksum. It is never written back: after a loss of
//!    power it may be older.
//! 2. Only readers store it, each the whole word. Of two that meet, one is lost.
//! 3. A record from before the policy was set has no use until it is read: it counts as used once,
//!    at that time. The use that it gets changes the record's shape, not its version: its checksum
//!    covers the shape that it had.

use super::record::{Role, Shape, USE_MASK, UseIn};
use super::store::Direct;
use super::view::Record;
use std::cell::Cell;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU8, AtomicU32, AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread::LocalKey;
use terrace_engine::{Evicting, Eviction, First, KeyUse, Policy, ReadError, WriteError};
use terrace_index::Place;
use terrace_medium::MappedMedium;
use terrace_pool::Guard;

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
/// Frequency of a new key.
const FIRST_FREQUENCY: u8 = KeyUse::FIRST_FREQUENCY;
/// The unit of the time of a use: 2^8 ms.
const TIME_SHIFT: u32 = 8;

thread_local! {
    /// Whether reads of this thread are not recorded.
    static UNRECORDED: Cell<bool> = const { Cell::new(false) };
    /// Whether writes of this thread go on above the limit.
    static UNLIMITED: Cell<bool> = const { Cell::new(false) };
    /// State of the generator of this thread's random numbers.
    static DRAW: Cell<u64> = const { Cell::new(0) };
}

/// What a read records: nothing, times or frequencies.
#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
enum Kind {
    Nothing = 0,
    Time = 1,
    Frequency = 2,
}

/// The eviction of a store.
pub(super) struct Evictor {
    kind: AtomicU8,
    /// There is a policy.
    is_evicting: AtomicBool,
    log_factor: AtomicU32,
    decay_minutes: AtomicU32,
    /// What a record without a use counts as.
    before: AtomicU32,
    /// Bytes that the store may use; `u64::MAX`: no limit but the pool.
    limit: AtomicU64,
    /// Bytes that may be written before the use is measured.
    headroom: AtomicI64,
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

impl Default for Evictor {
    fn default() -> Self {
        Self {
            kind: AtomicU8::new(Kind::Nothing as u8),
            is_evicting: AtomicBool::new(false),
            log_factor: AtomicU32::new(0),
            decay_minutes: AtomicU32::new(0),
            before: AtomicU32::new(0),
            limit: AtomicU64::new(u64::MAX),
            headroom: AtomicI64::new(0),
            evicted: AtomicU64::new(0),
            state: Mutex::default(),
        }
    }
}

/// A flag of this thread that is set. It is as before once this is dropped, also by a panic.
struct Set(&'static LocalKey<Cell<bool>>, bool);

impl Set {
    fn new(flag: &'static LocalKey<Cell<bool>>) -> Self {
        Self(flag, flag.replace(true))
    }
}

impl Drop for Set {
    fn drop(&mut self) {
        self.0.set(self.1);
    }
}

impl Evictor {
    // ORDER: Relaxed, here and below: settings and hints, which publish nothing.
    #[inline(always)]
    fn kind(&self) -> Kind {
        match self.kind.load(Relaxed) {
            0 => Kind::Nothing,
            1 => Kind::Time,
            _ => Kind::Frequency,
        }
    }

    /// Whether writes that find no room have something to do here.
    pub(super) fn is_on(&self) -> bool {
        self.limit.load(Relaxed) != u64::MAX || self.is_evicting.load(Relaxed)
    }

    /// Takes bytes of a new record from what may be written. Returns whether there were as many.
    #[inline(always)]
    pub(super) fn may_write(&self, bytes: u64) -> bool {
        if self.limit.load(Relaxed) == u64::MAX {
            return true;
        }
        self.headroom.fetch_sub(bytes as i64, Relaxed) > 0 || UNLIMITED.get()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // Candidates are looked at again before they are evicted.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A frequency after a use or, without one, as it is now.
    fn frequency(&self, used: u32, now: u32, is_use: bool) -> u8 {
        let minutes = (now >> 8).wrapping_sub(used >> 8) & 0xffff;
        let decay = minutes.checked_div(self.decay_minutes.load(Relaxed)).unwrap_or(0);
        let frequency = (used as u8).saturating_sub(u8::try_from(decay).unwrap_or(u8::MAX));
        let base = u64::from(frequency.saturating_sub(FIRST_FREQUENCY));
        let one_in = base * u64::from(self.log_factor.load(Relaxed)) + 1;
        frequency.saturating_add(u8::from(is_use && draw().is_multiple_of(one_in)))
    }

    /// A use that follows `used`, or is the first.
    #[inline]
    fn after(&self, used: Option<u32>, now_ms: u64) -> u32 {
        match self.kind() {
            Kind::Frequency => {
                let now = minutes(now_ms);
                let used = used.unwrap_or(now | u32::from(FIRST_FREQUENCY));
                now | u32::from(self.frequency(used, now, true))
            }
            _ => time(now_ms),
        }
    }

    /// The use of a new record for a key without one.
    fn first(&self, now_ms: u64) -> u32 {
        match self.kind() {
            Kind::Frequency => minutes(now_ms) | u32::from(FIRST_FREQUENCY),
            _ => time(now_ms),
        }
    }
}

fn time(now_ms: u64) -> u32 {
    (now_ms >> TIME_SHIFT) as u32 & USE_MASK
}

fn minutes(now_ms: u64) -> u32 {
    ((now_ms / 60_000) as u32) << 8 & USE_MASK
}

/// A random number (SplitMix64): which uses count need not be unpredictable.
fn draw() -> u64 {
    let state = DRAW.get().wrapping_add(0x9e37_79b9_7f4a_7c15);
    DRAW.set(state);
    let mut z = state;
    z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ z >> 31
}

impl<M: MappedMedium> Direct<M> {
    /// Records the use of a record that a reader has found.
    #[inline(always)]
    pub(super) fn record_use(&self, guard: &Guard<'_, M>, record: &Record<'_>) {
        if self.evictor.kind() != Kind::Nothing {
            self.record_use_now(guard, record);
        }
    }

    #[inline(never)]
    fn record_use_now(&self, guard: &Guard<'_, M>, record: &Record<'_>) {
        if UNRECORDED.get() {
            return;
        }
        let used = record.used(guard);
        let before = used.unwrap_or_else(|| self.evictor.before.load(Relaxed));
        let now = self.evictor.after(Some(before), self.settings.clock.coarse_ms());
        if used.is_none() {
            self.give_use(guard, record, now);
        } else if now != before {
            record.set_used(guard, now);
        }
    }

    /// Gives a record from before the policy a use, in place if word 0 has room for one. If not, a
    /// copy with a word more replaces it, the same version of its key; if the pool is full, the
    /// next read tries again.
    #[cold]
    fn give_use(&self, guard: &Guard<'_, M>, record: &Record<'_>, used: u32) {
        let shape = record.shape;
        if record.verify().is_err() {
            return;
        }
        match Shape::place_of_use(shape.role, shape.key_len, shape.value_len) {
            UseIn::Nothing => {}
            use_in @ UseIn::Shape => {
                if let Some(word) = record.first_word(guard) {
                    let given = Shape { use_in, ..shape }.encode_with(used);
                    // ORDER: Relaxed: both words describe the same record, and only readers store
                    // them.
                    word.store(guard.pool().medium(), given, Relaxed);
                }
            }
            UseIn::Word => _ = self.move_with_use(guard, record, used),
        }
    }

    /// The use of a new record of a key for which the index has this word. Needs no line that the
    /// change does not need: it frees the record there.
    #[inline(always)]
    pub(super) fn use_of_new(&self, guard: &Guard<'_, M>, seen: Option<u64>) -> Option<u32> {
        match self.evictor.kind() {
            Kind::Nothing => None,
            Kind::Time => Some(self.evictor.first(self.settings.clock.coarse_ms())),
            Kind::Frequency => {
                let used = seen.and_then(|word| Record::at(guard, word).ok()?.used(guard));
                let now_ms = self.settings.clock.coarse_ms();
                Some(used.map_or_else(
                    || self.evictor.first(now_ms),
                    |used| self.evictor.after(Some(used), now_ms),
                ))
            }
        }
    }

    /// As [`Direct::use_of_new`], for a key that was not looked up.
    pub(super) fn use_of_new_key(&self, guard: &Guard<'_, M>, key: &[u8]) -> Option<u32> {
        match self.evictor.kind() {
            Kind::Frequency => self.use_of_new(guard, self.index.get(guard, key)),
            _ => self.use_of_new(guard, None),
        }
    }

    /// Makes room for a write that failed for want of `wanted` bytes. `tries` counts the earlier
    /// calls. Returns whether the write must be tried again. The caller holds no guard.
    ///
    /// # Errors
    /// The store is above its limit, and nothing can be evicted.
    pub(super) fn evict_for(&self, wanted: u64, tries: u32) -> Result<bool, WriteError> {
        if self.check_writable().is_err() || self.keeps_pins() {
            return Ok(false);
        }
        let limit = self.evictor.limit.load(Relaxed);
        if limit != u64::MAX && self.evictor.headroom.load(Relaxed) <= 0 {
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
            self.make_room(wanted, tries / before_moving, self.gains());
        }
        Ok(true)
    }

    /// Evicts until a write of `wanted` bytes stays below the limit, or as much as one write may.
    fn evict_below(&self, limit: u64, wanted: u64) -> Result<(), WriteError> {
        let (used, least) = (self.used_now(), wanted.saturating_mul(2));
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
                    self.remove_expired(above.saturating_add(part));
                    let used = self.used_now();
                    if used.saturating_add(wanted) > limit {
                        return Err(WriteError::MemoryLimit { limit });
                    }
                    room(used)
                }
            }
        };
        self.evictor.headroom.store(headroom as i64, Relaxed);
        Ok(())
    }

    /// Whether this thread holds an entry: then nothing that it evicts becomes free.
    fn keeps_pins(&self) -> bool {
        self.pool().try_pin().is_ok_and(|guard| guard.depth() > 1)
    }

    /// Bytes in use, without those that wait for readers.
    pub(super) fn used_now(&self) -> u64 {
        let space = self.pool().space();
        (space.used_by_blocks + space.metadata).saturating_sub(space.waiting_bytes)
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
        let has_none = policy.only_volatile && self.root.tally(&self.pool().try_pin().ok()?).expiring == 0;
        if has_none { None } else { self.evict_any(policy, state) }
    }

    /// Draws a few random records, and keeps those that are better than the worst one kept.
    fn draw_candidates(&self, guard: &Guard<'_, M>, policy: Policy, state: &mut State) {
        let wanted = if policy.first == First::Random { 1 } else { state.eviction.samples as usize };
        let mut drawn = 0;
        for _ in 0..wanted * PLACES {
            let place = self.index.random_place(guard, self.random_u64());
            let mut words = Vec::new();
            self.index.scan(guard, &place, 1, &mut |word| words.push(word));
            if policy.first == First::Random && !words.is_empty() {
                words = vec![words[self.random_u64() as usize % words.len()]];
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
        if !matches!(record.shape.role, Role::Single | Role::Put) || self.is_claimed(guard, word) {
            return None;
        }
        let now_ms = self.settings.clock.coarse_ms();
        let expires_at = record.body.expires_at;
        if policy.only_volatile && expires_at.is_none() {
            return None;
        }
        let used = || record.used(guard).unwrap_or(self.evictor.before.load(Relaxed));
        let score = match policy.first {
            _ if self.has_expired(&record) => u64::MAX,
            First::Random => 0,
            First::NextToExpire => u64::MAX - 1 - expires_at.unwrap_or(u64::MAX - 1),
            First::LeastRecent => u64::from(time(now_ms).wrapping_sub(used()) & USE_MASK),
            First::LeastFrequent => 255 - u64::from(self.evictor.frequency(used(), minutes(now_ms), false)),
        };
        Some((score, record))
    }

    /// Evicts a candidate, unless it was used since. Returns its bytes.
    fn evict_candidate(&self, guard: &Guard<'_, M>, policy: Policy, candidate: &Candidate) -> Option<u64> {
        let word = self.index.get(guard, &candidate.key).filter(|word| *word == candidate.word)?;
        let (score, record) = self.score(guard, policy, word)?;
        if record.body.key != candidate.key || score < candidate.score || record.verify().is_err() {
            return None;
        }
        let bytes =
            record.shape.size() + if record.shape.has_external_value() { record.shape.value_len } else { 0 };
        if !matches!(self.unlink(guard, record.body.key, word), Ok(true)) {
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
            let next = self.index.scan(&guard, &state.place, PLACES, &mut |word| words.push(word));
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

impl<M: MappedMedium> Evicting for Direct<M> {
    fn set_eviction(&self, eviction: &Eviction) -> Result<(), WriteError> {
        self.check_writable()?;
        let evictor = &self.evictor;
        let mut state = evictor.lock();
        let kind = match eviction.policy.map(|policy| policy.first) {
            Some(First::LeastRecent) => Kind::Time,
            Some(First::LeastFrequent) => Kind::Frequency,
            Some(First::Random | First::NextToExpire) | None => Kind::Nothing,
        };
        if kind != Kind::Nothing {
            // Before the first record with a use, which an older program takes for damaged.
            let raised = self.pool().raise_format();
            raised.map_err(|error| {
                WriteError::OverLimit(format!("the pool's format cannot be raised: {error}"))
            })?;
        }
        let is_new = evictor.kind() != kind;
        evictor.log_factor.store(eviction.log_factor, Relaxed);
        evictor.decay_minutes.store(eviction.decay_minutes, Relaxed);
        evictor.kind.store(kind as u8, Relaxed);
        evictor.is_evicting.store(eviction.policy.is_some(), Relaxed);
        if is_new {
            evictor.before.store(evictor.first(self.settings.clock.coarse_ms()), Relaxed);
        }
        let limit = if eviction.limit_bytes == 0 { u64::MAX } else { eviction.limit_bytes };
        evictor.limit.store(limit, Relaxed);
        evictor.headroom.store(0, Relaxed);
        *state = State { eviction: eviction.clone(), ..State::default() };
        Ok(())
    }

    fn key_use(&self, key: &[u8]) -> Result<Option<KeyUse>, ReadError> {
        let guard = self.pool().try_pin()?;
        let Some(record) = self.find(&guard, key)? else { return Ok(None) };
        let (now_ms, kind) = (self.settings.clock.coarse_ms(), self.evictor.kind());
        let used = record.used(&guard).unwrap_or(self.evictor.before.load(Relaxed));
        let idle = time(now_ms).wrapping_sub(used) & USE_MASK;
        Ok(Some(KeyUse {
            idle_ms: (kind == Kind::Time).then_some(u64::from(idle) << TIME_SHIFT),
            frequency: (kind == Kind::Frequency)
                .then(|| self.evictor.frequency(used, minutes(now_ms), false)),
        }))
    }

    fn set_key_use(&self, key: &[u8], of: &KeyUse) -> Result<(), ReadError> {
        let guard = self.pool().try_pin()?;
        let now_ms = self.settings.clock.coarse_ms();
        let used = match (self.evictor.kind(), of.idle_ms, of.frequency) {
            (Kind::Time, Some(idle_ms), _) => time(now_ms.saturating_sub(idle_ms)),
            (Kind::Frequency, _, Some(frequency)) => minutes(now_ms) | u32::from(frequency),
            _ => return Ok(()),
        };
        match self.find(&guard, key)? {
            Some(record) if record.used(&guard).is_none() => self.give_use(&guard, &record, used),
            Some(record) => record.set_used(&guard, used),
            None => {}
        }
        Ok(())
    }

    fn unrecorded(&self, read: &mut dyn FnMut()) {
        let _set = Set::new(&UNRECORDED);
        read();
    }

    fn unlimited(&self, write: &mut dyn FnMut()) {
        let _set = Set::new(&UNLIMITED);
        write();
    }

    fn used_bytes(&self) -> u64 {
        self.used_now()
    }

    fn evicted(&self) -> u64 {
        self.evictor.evicted.load(Relaxed)
    }
}

impl<'g> Record<'g> {
    /// When or how often it was used; `None` if it does not record that.
    pub(super) fn used<M: MappedMedium>(&self, guard: &Guard<'_, M>) -> Option<u32> {
        match self.shape.use_in {
            UseIn::Nothing => None,
            UseIn::Shape => Some(Shape::used(self.head()[0])),
            UseIn::Word => {
                let word = self.use_word(guard)?;
                Some(word.load(guard.pool().medium(), Relaxed) as u32 & USE_MASK)
            }
        }
    }

    fn set_used<M: MappedMedium>(&self, guard: &Guard<'_, M>, used: u32) {
        let medium = guard.pool().medium();
        match self.shape.use_in {
            UseIn::Nothing => {}
            // ORDER: Relaxed, both: the rest of the word is the same, and nothing depends on a use.
            UseIn::Shape => {
                if let Some(word) = self.first_word(guard) {
                    word.store(medium, self.shape.encode_with(used), Relaxed);
                }
            }
            UseIn::Word => {
                if let Some(word) = self.use_word(guard) {
                    word.store(medium, u64::from(used), Relaxed);
                }
            }
        }
    }
}
