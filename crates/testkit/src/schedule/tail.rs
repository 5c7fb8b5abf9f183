//! A thread's latest stores that no later store orders. If the thread crashes, they may never have
//! become visible.
//!
//! A processor that stops has made all stores whose instructions it has executed. But the compiler
//! may move a store after a non-releasing store to another word, and the thread may crash between
//! the two. (Read-modify-writes are not moved: their results mostly decide what follows.)

use super::seen::Ordered;
use super::worlds::Variants;

/// A store that may be delayed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct LateStore {
    /// The word's number in the model, and its index in the medium.
    pub(super) number: usize,
    pub(super) word: u64,
    /// The number of the value.
    pub(super) value: u32,
}

/// The latest stores of a thread.
#[derive(Default)]
pub(super) struct PendingStores {
    stores: Vec<LateStore>,
    /// How many of them are certain to have been made.
    kept: Variants<usize>,
}

impl PendingStores {
    /// Adds a store that is not a read-modify-write.
    pub(super) fn add(&mut self, late: LateStore) {
        self.stores.push(late);
    }

    /// Orders all stores so far before what follows; but not in the run, if this is the weakened
    /// ordering.
    pub(super) fn keep(&mut self, is_missing: bool) {
        if self.stores.is_empty() {
            return;
        }
        let kept = is_missing.then(|| *self.kept.in_run());
        self.kept = Variants::both(self.stores.len());
        if let Some(kept) = kept {
            *self.kept.in_run_mut() = kept;
        }
        self.forget();
    }

    /// Applies a store with this ordering: if it releases, it keeps all earlier stores before it.
    pub(super) fn stored(&mut self, ordered: &Variants<Ordered>) {
        if ordered.with_all.releases {
            self.keep(!ordered.in_run().releases);
        }
    }

    /// Drops the stores once both variants have made all of them.
    fn forget(&mut self) {
        self.kept.normalise();
        if !self.kept.differs() && self.kept.with_all == self.stores.len() {
            *self = Self::default();
        }
    }

    /// The stores that may be missing in the run but not with all orderings, the last one first.
    pub(super) fn late(&self) -> impl Iterator<Item = &LateStore> {
        self.stores[*self.kept.in_run()..self.kept.with_all].iter().rev()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn late(number: usize) -> LateStore {
        LateStore { number, word: number as u64, value: 1 }
    }

    fn late_in(tail: &PendingStores) -> Vec<usize> {
        tail.late().map(|late| late.number).collect()
    }

    #[test]
    fn stores_are_late_without_the_release() {
        let releases = Variants::both(Ordered { releases: true, ..Ordered::default() });
        let mut but_in_run = releases.clone();
        but_in_run.in_run_mut().releases = false;
        let mut tail = PendingStores::default();
        (0..2).for_each(|number| tail.add(late(number)));
        tail.stored(&Variants::default());
        assert_eq!(late_in(&tail), [0; 0], "nothing keeps them");
        tail.stored(&but_in_run);
        tail.add(late(2));
        assert_eq!(late_in(&tail), [1, 0]);
        tail.stored(&releases);
        assert_eq!(late_in(&tail), [0; 0], "another store keeps them");
        tail.add(late(3));
        tail.keep(true);
        assert_eq!(late_in(&tail), [3]);
        tail.keep(false);
        assert_eq!(late_in(&tail), [0; 0]);
    }
}
