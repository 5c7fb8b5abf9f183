//! The tree as an index: its operations.

use super::super::base::BASE_BYTES;
use super::super::keys::OrderedKind;
use super::find::Ended;
use super::node::{KINDS, Kind, RESHAPED};
use super::tree::Tree;
use crate::{
    ChangeError, Damage, Decision, Deferred, Direction, Fencing, IndexStats, Key, KeyKind, Place, PointIndex,
    RangeIndex,
};
use std::ops::{Bound, ControlFlow};
use terrace_medium::MappedMedium;
use terrace_pool::{Guard, Marker, Pool};

/// The adaptive radix tree. See the module's head for the algorithm.
///
/// ```
/// use terrace_index::{Direction, PointIndex, RangeIndex, Stored, U64, ordered::Art};
/// use std::ops::{Bound, ControlFlow};
/// use terrace_medium::Dram;
/// use terrace_pool::Pool;
///
/// let pool = Pool::<Dram>::anonymous(16 << 20)?;
/// let map = Art::<Dram, U64>::create(&pool, "map", 0)?;
/// let guard = pool.pin();
/// for key in [9, 3, 7] {
///     map.insert(&guard, &key, key * 100)?;
/// }
/// let mut seen = Vec::new();
/// map.range(&guard, Bound::Included(&4), Bound::Unbounded, Direction::Forward, 2, |key, word| {
///     seen.push((key, word));
///     ControlFlow::Continue(())
/// });
/// assert_eq!(seen, [(7, 700), (9, 900)]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// It owns the `Tree` below it, and the changes of keys and of the structure above that.
pub struct Art<M: MappedMedium, K> {
    pub(super) tree: Tree<M, K>,
}

impl<M: MappedMedium, K: OrderedKind> PointIndex for Art<M, K> {
    type Medium = M;
    type Kind = K;
    const NAME: &'static str = "art";
    /// The pair of an integer, and the link.
    const FENCES_PER_INSERT: u32 = if K::LEAF_BYTES > 0 { 2 } else { 1 };

    fn pool(&self) -> &Pool<M> {
        &self.tree.pool
    }

    #[inline(always)]
    fn get(&self, guard: &Guard<'_, M>, key: &K::Key) -> Option<u64> {
        match self.tree.search(guard, key) {
            Ended::Found(word) => Some(word),
            _ => None,
        }
    }

    #[inline]
    fn get_sound(&self, guard: &Guard<'_, M>, key: &K::Key) -> Result<Option<u64>, Damage> {
        self.tree.search_soundly(guard, key)
    }

    fn get_many<'k>(
        &self,
        guard: &Guard<'_, M>,
        keys: impl IntoIterator<Item = &'k K::Key>,
        each: impl FnMut(usize, Option<u64>),
    ) where
        K::Key: 'k,
    {
        self.tree.search_many(guard, keys, each);
    }

    fn change(
        &self,
        guard: &Guard<'_, M>,
        key: &K::Key,
        fencing: Fencing<'_>,
        decide: impl Fn(Option<u64>) -> Decision,
    ) -> Result<Option<u64>, ChangeError> {
        self.change_key(guard, key, fencing, decide)
    }

    fn persist_deferred(&self, guard: &Guard<'_, M>, deferred: Deferred) {
        if !deferred.0.is_empty() {
            self.tree.confirm(guard, &deferred.0);
        }
    }

    fn len(&self) -> u64 {
        self.tree.count().len()
    }

    fn scan(&self, guard: &Guard<'_, M>, from: &Place, at_least: usize, each: impl FnMut(u64)) -> Place {
        self.tree.scan_from(guard, from, at_least, each)
    }

    fn random_place(&self, guard: &Guard<'_, M>, draw: u64) -> Place {
        self.tree.sample(guard, draw)
    }

    fn trace(&self, guard: &Guard<'_, M>, marker: &mut Marker<'_>, each: impl FnMut(&mut Marker<'_>, u64)) {
        self.tree.trace_all(guard, marker, each);
    }

    fn maintain(&self, _: &Guard<'_, M>) -> bool {
        false
    }

    fn stats(&self, _: &Guard<'_, M>) -> IndexStats {
        // Figures are not checked: damage may have made them anything below this.
        let nodes = KINDS.map(|kind| self.tree.count().figure(kind as usize).min(1 << 40));
        let sum = |each: fn(Kind) -> u64| -> u64 {
            KINDS.iter().map(|&kind| nodes[kind as usize] * each(kind)).sum()
        };
        let [four, twelve, twenty, hashed, full] = nodes;
        let keys = self.len().min(1 << 40);
        IndexStats {
            keys,
            // The root's place, and each node's places for children and for the key that ends
            // there.
            slots: 1 + sum(|kind| kind.places() as u64 + 1),
            bytes: sum(|kind| kind.bytes() as u64) + keys * K::LEAF_BYTES as u64 + BASE_BYTES,
            // The two middle kinds are one here.
            nodes: [four, twelve + twenty, hashed, full],
            resizes: self.tree.count().figure(RESHAPED),
            ..IndexStats::default()
        }
    }

    fn damage(&self) -> Option<Damage> {
        self.tree.damage.get().copied()
    }
}

impl<M: MappedMedium, K: OrderedKind> RangeIndex for Art<M, K> {
    fn range(
        &self,
        guard: &Guard<'_, M>,
        from: Bound<&Key<Self>>,
        to: Bound<&Key<Self>>,
        direction: Direction,
        expected: usize,
        each: impl FnMut(<K as KeyKind>::Told, u64) -> ControlFlow<()>,
    ) {
        self.tree.range_from_to(guard, (from, to), direction, expected, each);
    }
}
