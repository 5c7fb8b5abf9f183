//! A random place (see `ordered/sample`).

use super::super::keys::{OrderedKind, key_of_entry};
use super::super::sample::{next, sample};
use super::entry::Entry;
use super::node::Node;
use super::permutation::Permutation;
use super::tree::Tree;
use crate::Place;
use terrace_medium::MappedMedium;
use terrace_pool::Guard;

impl<M: MappedMedium, K: OrderedKind> Tree<M, K> {
    /// See [`PointIndex::random_place`](crate::PointIndex::random_place).
    pub(super) fn sample(&self, guard: &Guard<'_, M>, draw: u64) -> Place {
        let key_of = |entry| key_of_entry::<M, K>(guard, entry).map(|key| Box::from(&*key));
        sample(draw, |state| self.random_entry(state), key_of)
    }

    /// An entry at the end of a random way down, and the logarithm of its weight.
    fn random_entry(&self, state: &mut u64) -> Option<(f64, (u64, u64))> {
        let medium = self.pool.medium();
        let (mut node, mut weight) = (self.top().ok()?, 0.0);
        let mut shape = node.shape(medium);
        let mut level = shape.level();
        loop {
            let (len, (slice, word)) = self.random_slot(node, state)?;
            weight += (len as f64).ln();
            let entry = Entry(word);
            if level > 0 {
                node = self.node_of(node, (slice, entry), level - 1).ok()?;
                level -= 1;
            } else if !Self::INLINE && entry.is_layer() {
                node = self.layer_of(node, (slice, entry), shape.depth()).ok()?;
                shape = node.shape(medium);
                level = shape.level();
            } else {
                let word = if Self::INLINE { word } else { entry.offset() };
                return Some((weight, (slice, word)));
            }
        }
    }

    /// The number of entries of a node, and one of them.
    fn random_slot(&self, node: Node<'_>, draw: &mut u64) -> Option<(usize, (u64, u64))> {
        let medium = self.pool.medium();
        let drawn = next(draw) as usize;
        loop {
            let (before, permutation): (_, Permutation) = (node.state(medium), node.permutation(medium));
            let position = drawn.checked_rem(permutation.len())?;
            let slot = permutation.slot(position);
            let found = (node.slice(medium, slot), node.word_at(medium, slot));
            // A frozen leaf may have records that are gone.
            if before.is_frozen() {
                return None;
            }
            if node.state(medium).counter() == before.counter() {
                return Some((permutation.len(), found));
            }
        }
    }
}
