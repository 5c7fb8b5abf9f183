//! Uses of records: what a store that evicts by use records of each read.
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

use crate::record::flag::Set;
use crate::record::format::{Shape, USE_MASK, UseIn};
use crate::record::view::Record;
use std::cell::Cell;
use std::sync::atomic::{AtomicU8, AtomicU32, Ordering::Relaxed};
use terrace_engine::KeyUse;
use terrace_medium::MappedMedium;
use terrace_pool::Guard;

/// Frequency of a new key.
const FIRST_FREQUENCY: u8 = KeyUse::FIRST_FREQUENCY;
/// The unit of the time of a use: 2^8 ms.
const TIME_SHIFT: u32 = 8;

thread_local! {
    /// Whether reads of this thread are not recorded.
    static UNRECORDED: Cell<bool> = const { Cell::new(false) };
    /// State of the generator of this thread's random numbers.
    static DRAW: Cell<u64> = const { Cell::new(0) };
}

/// What a read records: nothing, times or frequencies.
#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Recorded {
    Nothing = 0,
    Time = 1,
    Frequency = 2,
}

/// What the reads of a store record, and how uses are compared. It owns these settings; eviction
/// (`upkeep::evict`), which sets them and chooses keys by them, stands above it.
pub(crate) struct Uses {
    recorded: AtomicU8,
    log_factor: AtomicU32,
    decay_minutes: AtomicU32,
    /// What a record without a use counts as.
    before: AtomicU32,
}

impl Default for Uses {
    fn default() -> Self {
        Self {
            recorded: AtomicU8::new(Recorded::Nothing as u8),
            log_factor: AtomicU32::new(0),
            decay_minutes: AtomicU32::new(0),
            before: AtomicU32::new(0),
        }
    }
}

impl Uses {
    // ORDER: Relaxed, here and below: settings and hints, which publish nothing.
    #[inline(always)]
    pub(crate) fn recorded(&self) -> Recorded {
        match self.recorded.load(Relaxed) {
            0 => Recorded::Nothing,
            1 => Recorded::Time,
            _ => Recorded::Frequency,
        }
    }

    /// Sets what reads record from now on.
    pub(crate) fn set(
        &self,
        recorded: Recorded,
        log_factor: u32,
        decay_minutes: u32,
        now_ms: impl FnOnce() -> u64,
    ) {
        let is_new = self.recorded() != recorded;
        self.log_factor.store(log_factor, Relaxed);
        self.decay_minutes.store(decay_minutes, Relaxed);
        self.recorded.store(recorded as u8, Relaxed);
        if is_new {
            self.before.store(self.first(now_ms()), Relaxed);
        }
    }

    /// What a record without a use counts as.
    pub(crate) fn before(&self) -> u32 {
        self.before.load(Relaxed)
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

    /// The frequency that a use stands for at this time.
    pub(crate) fn frequency_at(&self, used: u32, now_ms: u64) -> u8 {
        self.frequency(used, minutes(now_ms), false)
    }

    /// A use that follows `used`, or is the first.
    #[inline]
    pub(crate) fn after(&self, used: Option<u32>, now_ms: u64) -> u32 {
        match self.recorded() {
            Recorded::Frequency => {
                let now = minutes(now_ms);
                let used = used.unwrap_or(now | u32::from(FIRST_FREQUENCY));
                now | u32::from(self.frequency(used, now, true))
            }
            _ => time(now_ms),
        }
    }

    /// The use of a new record for a key without one.
    pub(crate) fn first(&self, now_ms: u64) -> u32 {
        match self.recorded() {
            Recorded::Frequency => minutes(now_ms) | u32::from(FIRST_FREQUENCY),
            _ => time(now_ms),
        }
    }

    /// What a use says of its key.
    pub(crate) fn describe(&self, used: u32, now_ms: u64) -> KeyUse {
        let recorded = self.recorded();
        KeyUse {
            idle_ms: (recorded == Recorded::Time).then(|| u64::from(age(used, now_ms)) << TIME_SHIFT),
            frequency: (recorded == Recorded::Frequency).then(|| self.frequency_at(used, now_ms)),
        }
    }

    /// The use that stands for `of`; `None` if reads record something else.
    pub(crate) fn encode(&self, of: &KeyUse, now_ms: u64) -> Option<u32> {
        match (self.recorded(), of.idle_ms, of.frequency) {
            (Recorded::Time, Some(idle_ms), _) => Some(time(now_ms.saturating_sub(idle_ms))),
            (Recorded::Frequency, _, Some(frequency)) => Some(minutes(now_ms) | u32::from(frequency)),
            _ => None,
        }
    }
}

/// Whether reads of this thread are not recorded.
pub(crate) fn are_unrecorded() -> bool {
    UNRECORDED.get()
}

/// Does `read`; reads of this thread record no use meanwhile.
pub(crate) fn unrecorded(read: &mut dyn FnMut()) {
    let _set = Set::new(&UNRECORDED);
    read();
}

/// The time since a use, in units of a use.
pub(crate) fn age(used: u32, now_ms: u64) -> u32 {
    time(now_ms).wrapping_sub(used) & USE_MASK
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

impl<'g> Record<'g> {
    /// When or how often it was used; `None` if it does not record that.
    pub(crate) fn used<M: MappedMedium>(&self, guard: &Guard<'_, M>) -> Option<u32> {
        match self.shape.use_in {
            UseIn::Nothing => None,
            UseIn::Shape => Some(Shape::used(self.head()[0])),
            UseIn::Word => {
                let word = self.use_word(guard)?;
                Some(word.load(guard.pool().medium(), Relaxed) as u32 & USE_MASK)
            }
        }
    }

    pub(crate) fn set_used<M: MappedMedium>(&self, guard: &Guard<'_, M>, used: u32) {
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
