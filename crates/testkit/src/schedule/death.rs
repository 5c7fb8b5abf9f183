//! Where a thread dies: as a process does that is killed between two of its stores, while others go on.

use crate::crash::Dice;
use std::collections::BTreeMap;
use std::fmt;
use std::panic::Location;
use std::sync::Arc;

/// A thread dies before one of the changes (stores, write-backs, fences) that it makes in one of its calls. Told by the call and not by all that the thread has done, a
/// death stays where it is when other calls are left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Death {
    /// The thread.
    pub thread: usize,
    /// Which of its calls, from 0 on. Behind its last act, each thread has one more, in which it looks after the dead.
    pub call: usize,
    /// Before which change of that call, from 1 on.
    pub change: u64,
}

impl fmt::Display for Death {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "thread {} dies before change {} of its call {}", self.thread, self.change, self.call)
    }
}

/// Where a thread could die that has just asked for durability, and the place in the source that asks.
pub type Asked = (Death, &'static Location<'static>);

/// Changes that a recovery may take, about, when it is not known.
const RECOVERY: u64 = 64;

impl Death {
    /// Deaths for a run whose threads made so many `changes` in each of their calls when none died: of one thread at least, and never of all.
    pub(super) fn draw(dice: &mut Dice, changes: &[Vec<u64>]) -> Vec<Self> {
        let mut mortal: Vec<usize> = (0..changes.len()).collect();
        let mut deaths = Vec::new();
        let count = match dice.roll(8) {
            0..5 => 1,
            5..7 => 2,
            _ => 3,
        };
        for nth in 0..count.min(changes.len() - 1) {
            let thread = mortal.swap_remove(dice.roll(mortal.len() as u64) as usize);
            deaths.push(Self::of(dice, thread, &changes[thread], nth > 0));
        }
        deaths
    }

    /// The death of the first thread, mostly where it has just asked for durability: what it has stored by then, others see, and a loss of power may still take. Places that ask are alike, for
    /// those that are seldom come by (the steps of a resize) would hardly be met otherwise.
    pub(super) fn of_first(dice: &mut Dice, changes: &[u64], asked: &[Asked]) -> Self {
        let mut by_place: BTreeMap<_, Vec<Self>> = BTreeMap::new();
        for (death, place) in asked.iter().filter(|(it, _)| it.thread == 0 && it.call + 1 < changes.len()) {
            by_place.entry(*place).or_default().push(*death);
        }
        let places: Vec<Vec<Self>> = by_place.into_values().collect();
        if places.is_empty() || dice.roll(8) == 0 {
            return Self::of(dice, 0, changes, false);
        }
        let at = dice.pick(&places);
        *dice.pick(at)
    }

    /// The death of a thread right behind a store with Release, at each place of the source with the same chance.
    pub(super) fn behind_order(dice: &mut Dice, ordered: &[Asked]) -> Option<Self> {
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

    /// The death of one thread; of one that is not the first to die mostly while it looks after those.
    fn of(dice: &mut Dice, thread: usize, changes: &[u64], is_later: bool) -> Self {
        let last = changes.len().saturating_sub(1);
        if is_later && dice.roll(3) != 0 {
            return Self { thread, call: last, change: 1 + dice.roll(RECOVERY) };
        }
        // Calls alike, for the rare ones are long; and a little beyond what it was, for others' deaths make more work.
        let call = dice.roll(last.max(1) as u64) as usize;
        let count = changes.get(call).copied().unwrap_or(0);
        let beyond = if is_later { RECOVERY } else { 1 };
        Self { thread, call, change: 1 + dice.roll(count + beyond) }
    }
}

/// Which threads die in a run, and who is told of it.
#[derive(Clone, Default)]
pub(super) struct Mortality {
    pub(super) deaths: Vec<Death>,
    died: Option<Arc<dyn Fn(usize) + Send + Sync>>,
}

impl Mortality {
    pub(super) fn new(deaths: Vec<Death>, died: impl Fn(usize) + Send + Sync + 'static) -> Self {
        Self { deaths, died: Some(Arc::new(died)) }
    }

    /// Whether somebody is told, so whether threads are participants.
    pub(super) fn is_told(&self) -> bool {
        self.died.is_some()
    }

    pub(super) fn tell(&self, thread: usize) {
        if let Some(died) = &self.died {
            died(thread);
        }
    }
}
