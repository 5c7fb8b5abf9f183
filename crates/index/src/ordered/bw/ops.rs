//! The tree as an index: its operations.

use super::super::base::BASE_BYTES;
use super::super::keys::OrderedKind;
use super::build::{BYTES, INNER, LEAVES, RESHAPED};
use super::spare::Spare;
use super::table::{Directory, SEGMENTS};
use super::tree::Tree;
use crate::{
    ChangeError, Damage, Decision, Deferred, Direction, Fencing, IndexStats, Key, KeyKind, Place, PointIndex,
    RangeIndex,
};
use std::ops::{Bound, ControlFlow};
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Acquire;
use terrace_medium::{MappedMedium, Word};
use terrace_pool::{Guard, Marker, Pool};

/// The Bw-tree. See the module's head for the algorithm.
///
/// ```
/// use terrace_index::{Direction, PointIndex, RangeIndex, Stored, U64, ordered::BwTree};
/// use std::ops::{Bound, ControlFlow};
/// use terrace_medium::Dram;
/// use terrace_pool::Pool;
///
/// let pool = Pool::<Dram>::anonymous(16 << 20)?;
/// let map = BwTree::<Dram, U64>::create(&pool, "map", 0)?;
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
pub struct BwTree<M: MappedMedium, K> {
    pub(super) tree: Tree<M, K>,
    /// Where [`PointIndex::maintain`] goes on: the number of a page, and whether any page was
    /// merged on the way from the first one.
    pub(super) sweep: AtomicU64,
}

impl<M: MappedMedium, K: OrderedKind> PointIndex for BwTree<M, K> {
    type Medium = M;
    type Kind = K;
    const NAME: &'static str = "bwtree";
    /// The slot, and the entry that counts it.
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

    fn persist_deferred(&self, _: &Guard<'_, M>, deferred: Deferred) {
        if !deferred.0.is_empty() {
            self.tree.confirm_entries(&deferred.0);
        }
    }

    fn len(&self) -> u64 {
        self.tree.count().len()
    }

    fn scan(&self, guard: &Guard<'_, M>, from: &Place, at_least: usize, each: impl FnMut(u64)) -> Place {
        self.scan_from(guard, from, at_least, each)
    }

    fn random_place(&self, guard: &Guard<'_, M>, draw: u64) -> Place {
        self.sample(guard, draw)
    }

    fn trace(&self, guard: &Guard<'_, M>, marker: &mut Marker<'_>, each: impl FnMut(&mut Marker<'_>, u64)) {
        self.trace_all(guard, marker, each);
    }

    fn maintain(&self, guard: &Guard<'_, M>) -> bool {
        self.sweep_some(guard)
    }

    fn stats(&self, _: &Guard<'_, M>) -> IndexStats {
        let tree = &self.tree;
        // Figures are not checked: damage may have made them anything below this.
        let figure = |figure| tree.count().figure(figure).min(1 << 40);
        let segments = (0..SEGMENTS).take_while(|&nth| tree.segment_at(nth).is_some());
        let segments: u64 = segments.map(|nth| tree.segment_bytes(nth) as u64).sum();
        let spare = |word: &Word| Spare(word.load(tree.pool.medium(), Acquire)).block();
        let spares: usize = tree.spare_words().filter_map(spare).map(|block| block.bytes).sum();
        let own = BASE_BYTES + size_of::<Directory>() as u64 + segments;
        let nodes = [figure(LEAVES), figure(INNER), 0, 0];
        IndexStats {
            keys: self.len().min(1 << 40),
            slots: (nodes[0] + nodes[1]) * tree.shape.most as u64,
            bytes: figure(BYTES) + own + spares as u64,
            nodes,
            resizes: figure(RESHAPED),
            ..IndexStats::default()
        }
    }

    fn damage(&self) -> Option<Damage> {
        self.tree.damage.get().copied()
    }
}

impl<M: MappedMedium, K: OrderedKind> RangeIndex for BwTree<M, K> {
    fn range(
        &self,
        guard: &Guard<'_, M>,
        from: Bound<&Key<Self>>,
        to: Bound<&Key<Self>>,
        direction: Direction,
        expected: usize,
        each: impl FnMut(<K as KeyKind>::Told, u64) -> ControlFlow<()>,
    ) {
        self.range_from_to(guard, (from, to), direction, expected, each);
    }
}
