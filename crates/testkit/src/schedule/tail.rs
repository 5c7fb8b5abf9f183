//! What a thread has stored last: a store that is not kept before a later one need not have been made when that was, and whoever dies in between has not made it.
//!
//! A processor that stops has made all stores whose instructions it has done. But the compiler may move a store behind one to another word that releases nothing; then the thread may die between the two. (Not an exchange, for
//! what it finds mostly decides what comes behind it.)

use super::seen::Ordered;
use super::worlds::Worlds;
use std::panic::Location;

/// A store that may come late.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Late {
    /// The word's number, and its place in the medium.
    pub(super) number: usize,
    pub(super) word: u64,
    /// The number of the value.
    pub(super) value: u32,
    /// Where it is in the source.
    pub(super) site: &'static Location<'static>,
}

/// The last stores of a thread.
#[derive(Default)]
pub(super) struct Tail {
    stores: Vec<Late>,
    /// How many of them have been made for sure.
    kept: Worlds<usize>,
}

impl Tail {
    /// One more, that is no exchange.
    pub(super) fn add(&mut self, late: Late) {
        self.stores.push(late);
    }

    /// All stores until now come before what follows; not in the run, if that is the order that `is_missing`.
    pub(super) fn keep(&mut self, is_missing: bool) {
        if self.stores.is_empty() {
            return;
        }
        let kept = is_missing.then(|| *self.kept.is());
        self.kept = Worlds::both(self.stores.len());
        if let Some(kept) = kept {
            *self.kept.is_mut() = kept;
        }
        self.forget();
    }

    /// A store with this order keeps all stores before it, where it releases.
    pub(super) fn stored(&mut self, ordered: &Worlds<Ordered>) {
        if ordered.would_be.releases {
            self.keep(!ordered.is().releases);
        }
    }

    /// Once all stores have been made in both worlds, none has to be remembered.
    fn forget(&mut self) {
        self.kept.settle();
        if !self.kept.differs() && self.kept.would_be == self.stores.len() {
            *self = Self::default();
        }
    }

    /// The stores that need not have been made in the run, and would have been with all orders; the last one first.
    pub(super) fn late(&self) -> impl Iterator<Item = &Late> {
        self.stores[*self.kept.is()..self.kept.would_be].iter().rev()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn late(number: usize) -> Late {
        Late { number, word: number as u64, value: 1, site: Location::caller() }
    }

    fn late_in(tail: &Tail) -> Vec<usize> {
        tail.late().map(|late| late.number).collect()
    }

    #[test]
    fn stores_are_late_where_the_order_that_keeps_them_is_missing() {
        let releases = Worlds::both(Ordered { releases: true, ..Ordered::default() });
        let mut but_in_run = releases.clone();
        but_in_run.is_mut().releases = false;
        let mut tail = Tail::default();
        (0..2).for_each(|number| tail.add(late(number)));
        tail.stored(&Worlds::default());
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
