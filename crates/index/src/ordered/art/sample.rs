//! A random place (see `ordered/sample`).

use super::super::keys::OrderedKind;
use super::super::link::LEAF;
use super::super::sample::{next, sample};
use super::tree::Tree;
use crate::Place;
use terrace_medium::MappedMedium;
use terrace_pool::Guard;

impl<M: MappedMedium, K: OrderedKind> Tree<M, K> {
    /// See [`PointIndex::random_place`](crate::PointIndex::random_place).
    pub(super) fn sample(&self, guard: &Guard<'_, M>, draw: u64) -> Place {
        let key_of = |leaf| K::key_of(guard, leaf).map(|key| Box::from(&*key));
        sample(draw, |state| self.random_leaf(state), key_of)
    }

    /// A leaf at the end of a random way down, and the logarithm of its weight.
    fn random_leaf(&self, state: &mut u64) -> Option<(f64, u64)> {
        let medium = self.pool.medium();
        let (mut slot, mut base, mut weight) = ((self.root_link(), self.follow(self.root_link())), 0, 0.0);
        loop {
            let (word, link) = slot;
            if link.kind() == LEAF {
                return link.is_sound().then(|| (weight, link.offset()));
            }
            if link.is_empty() {
                return None;
            }
            let (node, level) = self.node_below(word, link, base).ok()?;
            let entries: Vec<_> = node.entries(medium).filter(|(_, link)| !link.is_empty()).collect();
            let chosen = next(state) as usize % entries.len().max(1);
            slot = *entries.get(chosen)?;
            slot.1 = self.followed(slot.0, slot.1);
            weight += (entries.len() as f64).ln();
            base = level + 1;
        }
    }
}
