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
        sample(draw, |state| self.random_leaf(guard, state), key_of)
    }

    /// A leaf at the end of a random way down, and the logarithm of its weight.
    fn random_leaf(&self, guard: &Guard<'_, M>, state: &mut u64) -> Option<(f64, u64)> {
        let (mut word, mut least, mut weight) = (self.root_link(), 0, 0.0);
        loop {
            let link = self.sound_link(word).ok().filter(|link| !link.is_empty())?;
            if link.kind() == LEAF {
                return Some((weight, link.offset()));
            }
            let node = self.node_behind(guard, word, link, least).ok()?;
            let words = (0..node.len()).map(|entry| node.link(self.pool.region(), entry));
            let there: Vec<_> =
                words.filter(|word| self.sound_link(word).is_ok_and(|link| !link.is_empty())).collect();
            word = there.get(next(state) as usize % there.len().max(1))?;
            weight += (there.len() as f64).ln();
            least = node.first() + 1;
        }
    }
}
