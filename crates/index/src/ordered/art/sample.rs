//! A random place, near which each key is about as likely.
//!
//! A random way down prefers keys with few siblings. So several ways are tried, each is given the
//! product of the numbers of children on it as its weight, and one is drawn by weight.

use super::super::keys::OrderedKind;
use super::super::link::LEAF;
use super::tree::Tree;
use crate::Place;
use terrace_medium::MappedMedium;
use terrace_pool::Guard;

/// Ways that are tried.
const WAYS: usize = 8;

/// The next of a row of numbers that one number determines (SplitMix64).
fn next(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mixed = (*state ^ *state >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ mixed >> 31
}

impl<M: MappedMedium, K: OrderedKind> Tree<M, K> {
    /// See [`PointIndex::random_place`](crate::PointIndex::random_place).
    pub(super) fn sample(&self, guard: &Guard<'_, M>, draw: u64) -> Place {
        let mut state = draw;
        let ways: Vec<(f64, u64)> = (0..WAYS).filter_map(|_| self.random_leaf(&mut state)).collect();
        // Relative to the largest, so that no sum overflows.
        let largest = ways.iter().map(|(weight, _)| *weight).fold(f64::NEG_INFINITY, f64::max);
        let weights: Vec<f64> = ways.iter().map(|(weight, _)| (weight - largest).exp()).collect();
        let mut left = next(&mut state) as f64 / u64::MAX as f64 * weights.iter().sum::<f64>();
        let drawn = weights.iter().position(|weight| {
            left -= weight;
            left <= 0.0
        });
        let leaf = drawn.or(ways.len().checked_sub(1)).map(|nth| ways[nth].1);
        match leaf.and_then(|leaf| K::key_of(guard, leaf)) {
            Some(key) => Place::After(Box::from(&*key)),
            None => Place::Start,
        }
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
