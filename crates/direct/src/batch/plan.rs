//! The plan of a commit: one step for each key.

use terrace_engine::KEY_MAX;
use terrace_engine::{Expected, Write, WriteKind};
use terrace_engine::{Version, WriteError};
use xxhash_rust::xxh3::xxh3_64_with_seed;

/// One key of a batch.
pub(crate) struct BatchStep<'a> {
    pub(crate) key: &'a [u8],
    /// `None` keeps the key as it is.
    pub(crate) what: Option<WriteKind<'a>>,
    /// The position of an expectation and the version that it wants. Boxed, so that a step fits in
    /// a line: a batch without expectations has none.
    pub(crate) expected: Option<Box<(usize, Version)>>,
}

impl<'a> BatchStep<'a> {
    /// Whether the key must have been absent all along since it was read.
    pub(crate) fn expects_absence(&self) -> bool {
        self.expectation().is_some_and(|(_, version)| version.absence.is_some())
    }

    pub(crate) fn expectation(&self) -> Option<(usize, Version)> {
        self.expected.as_deref().copied()
    }

    /// Keeps other writers from changing a key.
    pub(crate) fn keep(key: &'a [u8]) -> Self {
        Self { key, what: None, expected: None }
    }
}

/// Why a batch was aborted.
pub(crate) enum AbortReason {
    Changed(usize),
    /// A value that a new record takes over has been moved since; the batch must be prepared again.
    Moved,
    Failed(WriteError),
}

impl<E: Into<WriteError>> From<E> for AbortReason {
    fn from(error: E) -> Self {
        Self::Failed(error.into())
    }
}

/// The steps of a commit, one for each key, and a hash table that finds the step of a key. The
/// table uses open addressing and is at most half full.
struct Steps<'a> {
    steps: Vec<BatchStep<'a>>,
    /// `| 63:40 upper bits of the key's hash | 39:0 place of its step, from 1 |`; 0 is vacant.
    slots: Vec<u64>,
    seed: u64,
}

/// Bits of a slot that hold a step's place.
const PLACE: u64 = (1 << 40) - 1;

impl<'a> Steps<'a> {
    fn with_room_for(keys: usize, seed: u64) -> Self {
        let slots = if keys < 2 { 1 } else { (2 * keys).next_power_of_two() };
        Self { steps: Vec::with_capacity(keys), slots: vec![0; slots], seed }
    }

    /// The step of `key`; adds one if it has none.
    fn of(&mut self, key: &'a [u8]) -> &mut BatchStep<'a> {
        let (hash, mask) = (xxh3_64_with_seed(key, self.seed), self.slots.len() - 1);
        let mut at = hash as usize & mask;
        loop {
            let slot = self.slots[at];
            if slot == 0 {
                break;
            }
            let place = (slot & PLACE) as usize - 1;
            if (slot ^ hash) & !PLACE == 0 && self.steps[place].key == key {
                return &mut self.steps[place];
            }
            at = (at + 1) & mask;
        }
        self.steps.push(BatchStep::keep(key));
        let place = self.steps.len();
        self.slots[at] = hash & !PLACE | place as u64;
        &mut self.steps[place - 1]
    }
}

/// The steps of a commit, one for each key; or the position of an expectation that contradicts
/// another one or cannot hold. An expectation that an overlong key is absent always holds and needs
/// no step. `seed` keeps clients from choosing keys that collide.
pub(crate) fn plan<'a>(
    writes: &[Write<'a>],
    expected: &[Expected<'a>],
    seed: u64,
) -> Result<Vec<BatchStep<'a>>, usize> {
    let mut steps = Steps::with_room_for(writes.len() + expected.len(), seed);
    for write in writes {
        // The last write to a key counts.
        steps.of(write.key).what = Some(write.what);
    }
    for (nth, &(key, version)) in expected.iter().enumerate() {
        if key.len() > KEY_MAX {
            match version.token {
                Some(_) => return Err(nth),
                None => continue,
            }
        }
        let step = steps.of(key);
        let both = match step.expectation() {
            None => (nth, version),
            Some((earlier, other)) => (earlier, both(other, version).ok_or(earlier)?),
        };
        step.expected = Some(Box::new(both));
    }
    Ok(steps.steps)
}

/// The steps that remove `keys`, one for each key that is not overlong.
pub(crate) fn plan_removals<'a>(keys: &[&'a [u8]], seed: u64) -> Vec<BatchStep<'a>> {
    let mut steps = Steps::with_room_for(keys.len(), seed);
    for key in keys.iter().filter(|key| key.len() <= KEY_MAX) {
        steps.of(key).what = Some(WriteKind::Remove);
    }
    steps.steps
}

/// The expectation that is both `a` and `b`; `None` if they contradict each other.
fn both(a: Version, b: Version) -> Option<Version> {
    let agree = a.token == b.token && (a.absence.is_none() || b.absence.is_none() || a.absence == b.absence);
    agree.then_some(Version { absence: a.absence.or(b.absence), ..a })
}

#[cfg(test)]
#[path = "tests/plan.rs"]
mod tests;
