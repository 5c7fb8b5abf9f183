//! The tree as an index: its operations.

use super::super::base::BASE_BYTES;
use super::super::keys::OrderedKind;
use super::node::{WIDTH, node_bytes};
use super::tree::Tree;
use crate::{
    ChangeError, Damage, Decision, Direction, Fencing, IndexStats, Key, KeyKind, LayerOptions, LayerStats,
    Place, PointIndex, RangeIndex,
};
use std::ops::{Bound, ControlFlow};
use terrace_medium::MappedMedium;
use terrace_pool::{Guard, Marker, Pool};

/// The figures that are counted: nodes, splits, joins.
pub(super) const NODES: usize = 0;
pub(super) const SPLITS: usize = 1;
pub(super) const JOINS: usize = 2;

/// SPTree. See the module's head for the algorithm.
///
/// ```
/// use terrace_index::{Direction, PointIndex, RangeIndex, Stored, U64, ordered::SpTree};
/// use std::ops::{Bound, ControlFlow};
/// use terrace_medium::Dram;
/// use terrace_pool::Pool;
///
/// let pool: Pool<Dram> = Pool::anonymous(4 << 20)?;
/// let map: SpTree<Dram, U64> = SpTree::create(&pool, "map", 0)?;
/// let guard = pool.pin();
/// for key in [9u64, 2, 7] {
///     map.insert(&guard, &key, key * 100)?;
/// }
/// let mut seen = Vec::new();
/// map.range(&guard, Bound::Included(&4), Bound::Unbounded, Direction::Backward, 2, |key, word| {
///     seen.push((key, word));
///     ControlFlow::Continue(())
/// });
/// assert_eq!(seen, [(9, 900), (7, 700)]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// It owns the `Tree` below it, and the changes of keys and of the structure above that.
pub struct SpTree<M: MappedMedium, K: OrderedKind> {
    pub(super) tree: Tree<M, K>,
}

impl<M: MappedMedium, K: OrderedKind> PointIndex for SpTree<M, K> {
    type Medium = M;
    type Kind = K;
    const NAME: &'static str = "sptree";
    /// The pair, and its bit.
    const FENCES_PER_INSERT: u32 = 2;

    fn pool(&self) -> &Pool<M> {
        &self.tree.pool
    }

    #[inline(always)]
    fn get(&self, guard: &Guard<'_, M>, key: &K::Key) -> Option<u64> {
        self.tree.search(guard, key)
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
        self.trace_all(guard, marker, each);
    }

    fn maintain(&self, guard: &Guard<'_, M>) -> bool {
        self.free_buffers(guard);
        self.make_mnodes(guard)
    }

    fn stats(&self, guard: &Guard<'_, M>) -> IndexStats {
        // Figures are not checked: damage may have made them anything below this.
        let figure = |number| self.tree.count().figure(number).min(1 << 40);
        let (nodes, top) = (figure(NODES), self.tree.top.stats(guard));
        let above = top.nodes.iter().sum();
        IndexStats {
            keys: self.len().min(1 << 40),
            slots: 1 + nodes * WIDTH as u64,
            // Without the log, which does not grow with the keys.
            bytes: nodes * node_bytes::<K>() as u64 + top.bytes + BASE_BYTES,
            nodes: [nodes, above, 0, 0],
            resizes: figure(SPLITS) + figure(JOINS),
            ..IndexStats::default()
        }
    }

    fn set_layers(&mut self, options: LayerOptions) {
        self.make_layers(options);
    }

    fn layers(&self) -> Option<LayerStats> {
        self.layer_stats()
    }

    fn damage(&self) -> Option<Damage> {
        self.tree.damage_met()
    }
}

impl<M: MappedMedium, K: OrderedKind> RangeIndex for SpTree<M, K> {
    fn range(
        &self,
        guard: &Guard<'_, M>,
        from: Bound<&Key<Self>>,
        to: Bound<&Key<Self>>,
        direction: Direction,
        _expected: usize,
        each: impl FnMut(<K as KeyKind>::Told, u64) -> ControlFlow<()>,
    ) {
        self.tree.range_from_to(guard, (from, to), direction, each);
    }
}
