//! What a thread has stored last: a store that is not kept before a later one need not have been made when that was, and whoever dies in between has not made it.
//!
//! A processor that stops has made all stores whose instructions it has done. But the compiler may move a store behind one to another word that releases nothing; then the thread may die between the two. (Not an exchange, for
//! what it finds mostly decides what comes behind it.)

use super::seen::Ordered;
use super::worlds::{World, Worlds};
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

    /// All until now have been made before what comes next; but not in the world in which that is missing.
    pub(super) fn keep(&mut self, missing: Option<World>) {
        if self.stores.is_empty() {
            return;
        }
        let (all, kept) = (self.stores.len(), missing.map(|world| *self.kept.of(world)));
        self.kept = Worlds::all(all);
        if let (Some(world), Some(kept)) = (missing, kept) {
            *self.kept.of_mut(world) = kept;
        }
        self.forget();
    }

    /// What has just been stored kept those before it in the worlds in which it releases.
    pub(super) fn stored(&mut self, ordered: &Worlds<Ordered>) {
        let all = self.stores.len();
        if all == 0 || !ordered.would_be.releases {
            return;
        }
        let without: Vec<_> = ordered.differing().filter(|(_, it)| !it.releases).collect();
        let kept: Vec<_> = without.iter().map(|&(world, _)| (world, *self.kept.of(world))).collect();
        self.kept = Worlds::all(all);
        kept.into_iter().for_each(|(world, kept)| *self.kept.of_mut(world) = kept);
        self.forget();
    }

    /// If all have been made in all worlds, none needs to be known any more.
    fn forget(&mut self) {
        self.kept.settle();
        if self.kept.differing().next().is_none() && self.kept.would_be == self.stores.len() {
            *self = Self::default();
        }
    }

    /// The worlds in which some need not have been made that would have been.
    pub(super) fn worlds(&self) -> Vec<World> {
        self.kept.differing().map(|(world, _)| world).collect()
    }

    /// Those of `world`, the last first.
    pub(super) fn late(&self, world: World) -> impl Iterator<Item = &Late> {
        self.stores[*self.kept.of(world)..self.kept.would_be].iter().rev()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OTHER: World = 4;

    fn late(number: usize) -> Late {
        Late { number, word: number as u64, value: 1, site: Location::caller() }
    }

    fn late_in(tail: &Tail, world: World) -> Vec<usize> {
        tail.late(world).map(|late| late.number).collect()
    }

    #[test]
    fn stores_are_late_where_the_order_is_missing_that_keeps_them_before_a_later_one() {
        let releases = Worlds::all(Ordered { releases: true, ..Ordered::default() });
        let mut but_one = releases.clone();
        but_one.of_mut(3).releases = false;
        let mut tail = Tail::default();
        (0..2).for_each(|number| tail.add(late(number)));
        tail.stored(&Worlds::default());
        assert_eq!((late_in(&tail, 3), tail.worlds()), (vec![], vec![]), "in none, if none keeps them");
        tail.stored(&but_one);
        tail.add(late(2));
        assert_eq!((late_in(&tail, 3), late_in(&tail, OTHER), tail.worlds()), (vec![1, 0], vec![], vec![3]));
        tail.stored(&releases);
        assert_eq!((late_in(&tail, 3), tail.worlds()), (vec![], vec![]), "another one keeps them");
        tail.add(late(3));
        tail.keep(Some(3));
        assert_eq!((late_in(&tail, 3), late_in(&tail, OTHER)), (vec![3], vec![]));
        tail.keep(None);
        assert_eq!(late_in(&tail, 3), [0; 0]);
    }
}
