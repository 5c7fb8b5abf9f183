//! A random place (see `ordered/sample`).

use super::super::keys::{OrderedKind, key_of_entry};
use super::super::sample::{next, sample};
use super::live::Live;
use super::ops::BwTree;
use super::page::ROOT_PAGE;
use crate::Place;
use terrace_medium::MappedMedium;
use terrace_pool::Guard;

impl<M: MappedMedium, K: OrderedKind> BwTree<M, K> {
    /// See [`PointIndex::random_place`](crate::PointIndex::random_place).
    pub(super) fn sample(&self, guard: &Guard<'_, M>, draw: u64) -> Place {
        let key_of = |live| key_of_entry::<M, K>(guard, live).map(|key| Box::from(&*key));
        sample(draw, |state| self.random_key(guard, state), key_of)
    }

    /// A key at the end of a random way down, and the logarithm of its weight.
    fn random_key(&self, guard: &Guard<'_, M>, state: &mut u64) -> Option<(f64, Live)> {
        let (mut pid, mut weight, mut level) = (ROOT_PAGE, 0.0, usize::MAX);
        loop {
            let spot = self.tree.page(guard, pid).ok()??;
            if spot.page.level >= level {
                return None;
            }
            level = spot.page.level;
            if spot.page.is_leaf() {
                let live = self.tree.live(guard, &spot).ok()?;
                let chosen = *live.get(next(state) as usize % live.len().max(1))?;
                return Some((weight + (live.len() as f64).ln(), chosen));
            }
            weight += (spot.page.len as f64).ln();
            pid = spot.page.child(next(state) as usize % spot.page.len.max(1));
        }
    }
}
