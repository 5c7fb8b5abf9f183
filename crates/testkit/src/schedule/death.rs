//! A crash of one thread, like that of a process killed between two of its stores, while others
//! continue.

use crate::crash::RandomSource;
use std::collections::BTreeMap;
use std::fmt;
use std::panic::Location;
use std::sync::Arc;

/// A crash point: the thread crashes before one of its changes (stores, write-backs, fences) in one
/// of its calls. The position is relative to the call, so it stays valid if other calls are left
/// out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ThreadCrash {
    /// The thread.
    pub thread: usize,
    /// The number of its call, from 0 on. After its last operation each thread has one more call,
    /// in which it recovers the dead.
    pub call: usize,
    /// The number of the change in that call, from 1 on, before which it crashes.
    pub change: u64,
}

impl fmt::Display for ThreadCrash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "thread {} crashes before change {} of its call {}", self.thread, self.change, self.call)
    }
}

/// A crash point right after a request for durability or an ordered store, and the place of that in
/// the source.
pub type CrashSite = (ThreadCrash, &'static Location<'static>);

/// Approximate number of changes in a recovery, if unknown.
const RECOVERY: u64 = 64;

impl ThreadCrash {
    /// Random crashes for a run, of one thread at least and never of all. `changes` are the numbers
    /// of changes of each thread and call without crashes.
    pub(super) fn random(dice: &mut RandomSource, changes: &[Vec<u64>]) -> Vec<Self> {
        let mut mortal: Vec<usize> = (0..changes.len()).collect();
        let mut crashes = Vec::new();
        let count = match dice.roll(8) {
            0..5 => 1,
            5..7 => 2,
            _ => 3,
        };
        for nth in 0..count.min(changes.len() - 1) {
            let thread = mortal.swap_remove(dice.roll(mortal.len() as u64) as usize);
            crashes.push(Self::of(dice, thread, &changes[thread], nth > 0));
        }
        crashes
    }

    /// A crash of the first thread, mostly right after a request for durability: others see its
    /// stores, and a power failure may still lose them. Each place is equally likely, or rare ones
    /// (the steps of a resize) would hardly be hit.
    pub(super) fn of_first_thread(dice: &mut RandomSource, changes: &[u64], sites: &[CrashSite]) -> Self {
        let mut by_place: BTreeMap<_, Vec<Self>> = BTreeMap::new();
        for (death, place) in sites.iter().filter(|(it, _)| it.thread == 0 && it.call + 1 < changes.len()) {
            by_place.entry(*place).or_default().push(*death);
        }
        let places: Vec<Vec<Self>> = by_place.into_values().collect();
        if places.is_empty() || dice.roll(8) == 0 {
            return Self::of(dice, 0, changes, false);
        }
        let at = dice.pick(&places);
        *dice.pick(at)
    }

    /// A crash right after a store with Release, each place in the source equally likely.
    pub(super) fn after_ordered_store(dice: &mut RandomSource, ordered: &[CrashSite]) -> Option<Self> {
        let mut by_place: BTreeMap<_, Vec<Self>> = BTreeMap::new();
        ordered.iter().for_each(|(death, place)| by_place.entry(*place).or_default().push(*death));
        let places: Vec<Vec<Self>> = by_place.into_values().collect();
        if places.is_empty() {
            return None;
        }
        let at = dice.pick(&places);
        let death = *dice.pick(at);
        Some(Self { change: death.change + dice.roll(2), ..death })
    }

    /// A crash of one thread. A second crash is mostly during the recovery from the first.
    fn of(dice: &mut RandomSource, thread: usize, changes: &[u64], is_later: bool) -> Self {
        let last = changes.len().saturating_sub(1);
        if is_later && dice.roll(3) != 0 {
            return Self { thread, call: last, change: 1 + dice.roll(RECOVERY) };
        }
        // Each call is equally likely, since rare ones are long. The range extends a little beyond
        // the known length, since other crashes cause more work.
        let call = dice.roll(last.max(1) as u64) as usize;
        let count = changes.get(call).copied().unwrap_or(0);
        let beyond = if is_later { RECOVERY } else { 1 };
        Self { thread, call, change: 1 + dice.roll(count + beyond) }
    }
}

/// Which threads crash in a run, and the callback that announces a crash.
#[derive(Clone, Default)]
pub(super) struct CrashPlan {
    pub(super) crashes: Vec<ThreadCrash>,
    died: Option<Arc<dyn Fn(usize) + Send + Sync>>,
}

impl CrashPlan {
    pub(super) fn new(crashes: Vec<ThreadCrash>, died: impl Fn(usize) + Send + Sync + 'static) -> Self {
        Self { crashes, died: Some(Arc::new(died)) }
    }

    /// Whether crashes are announced, i.e. whether threads are participants.
    pub(super) fn is_observed(&self) -> bool {
        self.died.is_some()
    }

    pub(super) fn observe(&self, thread: usize) {
        if let Some(died) = &self.died {
            died(thread);
        }
    }
}
