//! A random place: near a random node, whose keys are as many as another's, about.

use super::super::keys::{KeyBytes, OrderedKind};
use super::super::sample::next;
use super::tree::Tree;
use crate::{Place, PointIndex};
use std::borrow::Borrow;
use terrace_medium::MappedMedium;
use terrace_pool::Guard;

impl<M: MappedMedium, K: OrderedKind> Tree<M, K> {
    /// See [`PointIndex::random_place`].
    pub(super) fn sample(&self, guard: &Guard<'_, M>, draw: u64) -> Place {
        self.random_key(guard, draw).map_or(Place::Start, |key| Place::After(Box::from(&*key)))
    }

    /// One of the keys of a node that follows a random place of the top layer, which has no mapping
    /// of the first node.
    fn random_key<'g>(&self, guard: &'g Guard<'_, M>, draw: u64) -> Option<KeyBytes<'g>> {
        let mut state = draw;
        let bytes = match self.top.random_place(guard, next(&mut state)) {
            Place::After(bytes) if !next(&mut state).is_multiple_of(self.top.len() + 1) => K::owned(&bytes),
            _ => None,
        };
        let node = match bytes {
            Some(key) => self.floor(guard, key.borrow()),
            None => self.first(),
        };
        let node = node.ok()?;
        let content = self.read(guard, node).ok()??;
        let extent = self.extent(guard, node, content.end).ok()?;
        let items = self.items(guard, (node, &extent), &content).ok()?;
        let nth = next(&mut state) as usize % items.len().max(1);
        items.into_iter().nth(nth)?.key
    }
}
