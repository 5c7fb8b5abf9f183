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
