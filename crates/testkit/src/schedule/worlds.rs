//! The same as it would be with all orders, and as it is with one that is missing, for as many of these as are looked at.
//!
//! Nearly always nothing differs, so only what does is kept.

use std::collections::{BTreeMap, BTreeSet};

/// The number of an order that is missing.
pub(super) type World = u16;

/// As it would be, and as it is in those worlds in which that differs.
#[derive(Clone, Default)]
pub(super) struct Worlds<T> {
    pub(super) would_be: T,
    others: BTreeMap<World, T>,
}

impl<T: Clone + PartialEq> Worlds<T> {
    /// The same in all.
    pub(super) fn all(would_be: T) -> Self {
        Self { would_be, others: BTreeMap::new() }
    }

    pub(super) fn of(&self, world: World) -> &T {
        self.others.get(&world).unwrap_or(&self.would_be)
    }

    /// The one in `world`, to be changed, which is to be settled afterwards.
    pub(super) fn of_mut(&mut self, world: World) -> &mut T {
        let would_be = &self.would_be;
        self.others.entry(world).or_insert_with(|| would_be.clone())
    }

    /// The same change in all worlds.
    pub(super) fn each(&mut self, mut change: impl FnMut(&mut T)) {
        self.others.values_mut().for_each(&mut change);
        change(&mut self.would_be);
    }

    /// Where it differs.
    pub(super) fn differing(&self) -> impl Iterator<Item = (World, &T)> {
        self.others.iter().map(|(&world, it)| (world, it))
    }

    /// Adds the worlds in which it differs.
    pub(super) fn add_to(&self, worlds: &mut BTreeSet<World>) {
        worlds.extend(self.others.keys());
    }

    /// Forgets the worlds in which it has come to be as it would be.
    pub(super) fn settle(&mut self) {
        let would_be = &self.would_be;
        self.others.retain(|_, it| it != would_be);
    }
}
