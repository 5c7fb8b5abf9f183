//! The root: which tiers exist, and which of them a key's two sides use.

use super::bucket::{BUCKET, Bucket};
use std::sync::atomic::Ordering::{Acquire, Release};
use terrace_medium::{Line, Medium, Offset, Word};

/// The smallest top level, as a binary logarithm: two buckets, above one.
pub(super) const LOG2_MIN: u32 = 1;
/// The largest: 4 TiB.
pub(super) const LOG2_MAX: u32 = 35;

/// The root block: three lines.
///
/// ```text
///   line 0 | lock | state | tier 0 | tier 1 | tier 2 | tier 3 | cursor | balance |
///   line 1 | kind | seed | stripes | check of these words | 0 ... |
///   line 2 | count mode | base | frontier | resizes | stuck | 0 ... |            (see count.rs)
/// ```
/// A tier of 2^n buckets is named by the word with the number n modulo 4. At most three are in use
/// at a time, with consecutive n, so the next one, larger or smaller, always has a free word.
///
/// Lock, cursor and balance, and line 2, are volatile. Stuck is the number of keys when a shrink
/// failed, or 0.
pub(super) type Root = [Line; 3];

pub(super) const ROOT_LOCK: usize = 0;
pub(super) const STATE: usize = 1;
pub(super) const TIERS: usize = 2;
pub(super) const CURSOR: usize = 6;
pub(super) const BALANCE: usize = 7;
pub(super) const ROOT_KIND: usize = 0;
pub(super) const ROOT_SEED: usize = 1;
pub(super) const ROOT_STRIPES: usize = 2;
pub(super) const ROOT_CHECK: usize = 3;
pub(super) const RESIZES: usize = 3;
pub(super) const STUCK: usize = 4;

/// The value of [`ROOT_CHECK`]. It differs if any one word differs.
pub(super) fn root_check(words: &[u64]) -> u64 {
    const ODD: u64 = 0x9e37_79b9_7f4a_7c15;
    words.iter().fold(ODD, |check, word| (check ^ word).wrapping_mul(ODD).rotate_left(29))
}

const CHECK_AT: u32 = 48;
const BITS: u64 = (1 << CHECK_AT) - 1;

/// The check of the 48 bits below it. It covers them in pieces of two bytes, so one changed byte is
/// always detected.
fn check(bits: u64) -> u64 {
    const NOT_ZERO: u64 = 0x7ab2;
    ((bits ^ bits >> 16 ^ bits >> 32 ^ NOT_ZERO) & 0xffff) << CHECK_AT
}

/// The phase of a table's resize.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Phase {
    /// Two levels.
    Two,
    /// Two levels, while a smaller bottom level is cleared for use.
    Clearing,
    /// Units move from the two upper tiers to the two lower ones.
    Shrink,
    /// Units move back, because a shrink failed.
    Unshrink,
    /// Units move from the two lower tiers to the two upper ones, of which the highest is new.
    Expand,
}

const PHASES: [Phase; 5] = [Phase::Two, Phase::Clearing, Phase::Shrink, Phase::Unshrink, Phase::Expand];

/// The word that says which tiers are in use: `| 63:48 check | 47:16 version | 15:8 phase | 7:0
/// log2 of the highest tier's buckets |`.
///
/// The version increases with each change, so an unchanged word means that nothing has changed in
/// between.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct State(pub(super) u64);

impl State {
    pub(super) fn new(top: u32, phase: Phase, version: u32) -> Self {
        let bits = u64::from(version) << 16 | (phase as u64) << 8 | u64::from(top);
        Self(bits | check(bits))
    }
    #[inline(always)]
    pub(super) fn top(self) -> u32 {
        (self.0 & 0xff) as u32
    }
    fn phase_number(self) -> u64 {
        self.0 >> 8 & 0xff
    }
    /// The phase of a sound word.
    pub(super) fn phase(self) -> Phase {
        PHASES[self.phase_number() as usize % PHASES.len()]
    }
    pub(super) fn version(self) -> u32 {
        (self.0 >> 16) as u32
    }
    /// Whether no resize is in progress.
    #[inline(always)]
    pub(super) fn is_resting(self) -> bool {
        self.phase_number() == Phase::Two as u64
    }
    /// Whether units are moving, so that a key's sides may use different tiers.
    #[inline(always)]
    pub(super) fn is_moving(self) -> bool {
        self.phase_number() >= Phase::Shrink as u64
    }
    /// The state after this one.
    pub(super) fn next(self, top: u32, phase: Phase) -> Self {
        Self::new(top, phase, self.version().wrapping_add(1))
    }
    /// The logarithms of all tiers, the highest first.
    pub(super) fn tiers(self) -> impl Iterator<Item = u32> {
        let count = if self.is_resting() { 2 } else { 3 };
        (0..count).map(move |below| self.top().wrapping_sub(below))
    }
    pub(super) fn is_sound(self) -> bool {
        let smallest = if self.is_resting() { LOG2_MIN } else { LOG2_MIN + 1 };
        self.0 & !BITS == check(self.0 & BITS)
            && (self.phase_number() as usize) < PHASES.len()
            && (smallest..=LOG2_MAX).contains(&self.top())
    }
}

/// A row of 2^n buckets: `| 63:48 check | 47:6 offset / 64 | 5:0 n |`. A table's levels are two
/// tiers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Tier(pub(super) u64);

impl Tier {
    pub(super) const NONE: Self = Self(0);

    pub(super) fn new(start: u64, log2: u32) -> Self {
        debug_assert!(start.is_multiple_of(64) && log2 <= LOG2_MAX);
        let bits = start | u64::from(log2);
        Self(bits | check(bits))
    }
    #[inline(always)]
    pub(super) fn start(self) -> u64 {
        self.0 & (BITS - 63)
    }
    #[inline(always)]
    pub(super) fn log2(self) -> u32 {
        (self.0 & 63) as u32
    }
    #[inline(always)]
    pub(super) fn buckets(self) -> u64 {
        1 << self.log2()
    }
    /// The bucket at a position of the hash space.
    #[inline(always)]
    pub(super) fn index(self, position: u64) -> u64 {
        // A shift by 64 minus the logarithm, which may be 64.
        position >> 1 >> (63 - self.log2())
    }
    /// The first position of a bucket; 0 for the one behind the last.
    #[inline(always)]
    pub(super) fn first_position(self, index: u64) -> u64 {
        index << 1 << (63 - self.log2())
    }
    #[inline(always)]
    pub(super) fn bucket(self, index: u64) -> Offset<Bucket> {
        Offset::new(self.start() + index * BUCKET as u64)
    }
    pub(super) fn bytes(self) -> usize {
        BUCKET << self.log2()
    }
    /// Whether the word is as it was made, and can be a tier of 2^`log2` buckets in a region of
    /// `len` bytes.
    pub(super) fn is_sound(self, log2: u32, len: usize) -> bool {
        self.0 & !BITS == check(self.0 & BITS)
            && self.log2() == log2
            && self.start() != 0
            && self.start().checked_add(self.bytes() as u64).is_some_and(|end| end <= len as u64)
    }
}

/// The tiers at one instant.
#[derive(Clone, Copy, Debug)]
pub(super) struct View {
    pub(super) state: State,
    pub(super) high: Tier,
    pub(super) mid: Tier,
    /// Only while units move, or while this tier is cleared.
    pub(super) low: Tier,
}

/// The place of a key on one of its two sides: a bucket of an upper tier and one of a lower tier.
/// The lower one has the lock of both.
#[derive(Clone, Copy, Debug)]
pub(super) struct Side {
    pub(super) position: u64,
    pub(super) upper: Tier,
    pub(super) lower: Tier,
}

impl Side {
    #[inline(always)]
    pub(super) fn upper_at(&self) -> Offset<Bucket> {
        self.upper.bucket(self.upper.index(self.position))
    }
    #[inline(always)]
    pub(super) fn lower_at(&self) -> Offset<Bucket> {
        self.lower.bucket(self.lower.index(self.position))
    }
    /// The unit: the lower bucket, and the two above it.
    pub(super) fn unit(&self) -> [Offset<Bucket>; 3] {
        let index = self.lower.index(self.position);
        [self.upper.bucket(2 * index), self.upper.bucket(2 * index + 1), self.lower.bucket(index)]
    }
    pub(super) fn first_position(&self) -> u64 {
        self.lower.first_position(self.lower.index(self.position))
    }
    /// The position behind the unit; 0 behind the last unit.
    pub(super) fn end(&self) -> u64 {
        self.lower.first_position(self.lower.index(self.position) + 1)
    }
}

#[inline(always)]
pub(super) fn state<M: Medium>(medium: &M, root: &Root) -> State {
    // ORDER: Acquire: pairs with `store_state`; the tiers that it names are visible. Later loads
    // stay behind this one.
    State(root[0].0[STATE].load(medium, Acquire))
}

pub(super) fn store_state<M: Medium>(medium: &M, root: &Root, state: State) {
    // ORDER: Release: a thread that sees the state sees the tiers.
    root[0].0[STATE].store(medium.point("level.state"), state.0, Release);
}

/// The word that names the tier of 2^`log2` buckets.
#[inline(always)]
pub(super) fn tier_word(root: &Root, log2: u32) -> &Word {
    &root[0].0[TIERS + (log2 & 3) as usize]
}

#[cfg(test)]
#[path = "tests/root.rs"]
mod tests;
