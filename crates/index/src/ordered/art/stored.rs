//! The tree as an index: created, opened, and its operations.

use super::super::keys::OrderedKind;
use super::find::Ended;
use super::node::KINDS;
use super::obsolete::mark_of;
use super::reshape::RESHAPED;
use super::root::*;
use super::tree::Art;
use crate::count::STRIPES;
use crate::{
    ChangeError, Damage, Decision, Deferred, Direction, Fencing, IndexStats, Key, KeyKind, Place, PointIndex,
    RangeIndex, StoreError, Stored,
};
use std::marker::PhantomData;
use std::ops::{Bound, ControlFlow};
use std::sync::OnceLock;
use std::sync::atomic::Ordering::Acquire;
use terrace_medium::{MappedMedium, Offset};
use terrace_pool::{Finding, Guard, Marker, Pool};

impl<M: MappedMedium, K: OrderedKind> Art<M, K> {
    fn open(pool: &Pool<M>, root: Offset<Root>) -> Result<Self, StoreError> {
        let damaged = |offset, what| StoreError::Damaged(Damage { offset, what });
        let fixed = pool.fix(root).ok_or(damaged(root.raw(), "the root lies outside the pool"))?;
        let word = |index: usize| fixed[0].0[index].load(pool.medium(), Acquire);
        if word(ROOT_KIND) != K::TAG {
            return Err(damaged(root.raw(), "the root is not of a radix tree for this kind of keys"));
        }
        if word(ROOT_CHECK) != root_check(K::TAG, word(ROOT_STRIPES)) {
            return Err(damaged(root.raw(), "the root of the radix tree does not fit its check"));
        }
        let stripes = pool.fix(Offset::new(word(ROOT_STRIPES)));
        let stripes = stripes.ok_or(damaged(root.raw(), "the counters lie outside the pool"))?;
        let (pool, mark) = (pool.clone(), mark_of(pool.generation()));
        Ok(Self { pool, root: fixed, stripes, mark, damage: OnceLock::new(), kind: PhantomData })
    }
}

impl<M: MappedMedium, K: OrderedKind> Stored for Art<M, K> {
    type Medium = M;

    /// The tree grows as keys come; `capacity` reserves nothing.
    fn create(pool: &Pool<M>, name: &str, _capacity: u64) -> Result<Self, StoreError> {
        let guard = pool.pin();
        let stripes = guard.alloc(STRIPES as usize * 64)?;
        stripes.stream_lines(0, &[[0; 8]; STRIPES as usize]);
        let root = guard.alloc(size_of::<Root>())?;
        let mut line = [0; 8];
        line[ROOT_STRIPES] = stripes.offset();
        line[ROOT_KIND] = K::TAG;
        line[ROOT_CHECK] = root_check(K::TAG, stripes.offset());
        root.stream_lines(0, &[line, [0; 8]]);
        // PERSIST: counters and root block before the root directory names them. A crash before
        // that leaves blocks that the collector reclaims.
        let fence = guard.fence();
        let _ = stripes.fenced(&fence).into_offset();
        let root = root.fenced(&fence).into_offset();
        pool.set_root(name, Self::NAME, root)?;
        drop(guard);
        Self::open(pool, Offset::new(root))
    }

    fn recover(pool: &Pool<M>, name: &str) -> Result<Option<Self>, StoreError> {
        let Some(root) = pool.root(name, Self::NAME)? else { return Ok(None) };
        let index = Self::open(pool, Offset::new(root))?;
        if !pool.is_read_only() && !pool.is_initialized() {
            index.begin_cycle();
            index.count().recover();
        }
        Ok(Some(index))
    }

    fn verify(&self, guard: &Guard<'_, M>) -> Vec<Finding> {
        self.findings(guard)
    }
}

impl<M: MappedMedium, K: OrderedKind> PointIndex for Art<M, K> {
    type Medium = M;
    type Kind = K;
    const NAME: &'static str = "art";
    /// The pair of an integer, and the link.
    const FENCES_PER_INSERT: u32 = if K::LEAF_BYTES > 0 { 2 } else { 1 };

    fn pool(&self) -> &Pool<M> {
        &self.pool
    }

    #[inline(always)]
    fn get(&self, guard: &Guard<'_, M>, key: &K::Key) -> Option<u64> {
        match self.search(guard, key) {
            Ended::Found(word) => Some(word),
            _ => None,
        }
    }

    #[inline]
    fn get_sound(&self, guard: &Guard<'_, M>, key: &K::Key) -> Result<Option<u64>, Damage> {
        self.search_soundly(guard, key)
    }

    fn get_many<'k>(
        &self,
        guard: &Guard<'_, M>,
        keys: impl IntoIterator<Item = &'k K::Key>,
        each: impl FnMut(usize, Option<u64>),
    ) where
        K::Key: 'k,
    {
        self.search_many(guard, keys, each);
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
            self.confirm(guard, &deferred.0);
        }
    }

    fn len(&self) -> u64 {
        self.count().len()
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

    fn maintain(&self, _: &Guard<'_, M>) -> bool {
        false
    }

    fn stats(&self, _: &Guard<'_, M>) -> IndexStats {
        // Figures are not checked: damage may have made them anything below this.
        let nodes = KINDS.map(|kind| self.count().figure(kind as usize).min(1 << 40));
        let sum = |each: fn(super::node::Kind) -> u64| -> u64 {
            KINDS.iter().map(|&kind| nodes[kind as usize] * each(kind)).sum()
        };
        let keys = self.len().min(1 << 40);
        IndexStats {
            keys,
            // The root's place, and each node's places for children and for the key that ends
            // there.
            slots: 1 + sum(|kind| kind.places() as u64 + 1),
            bytes: sum(|kind| kind.bytes() as u64)
                + keys * K::LEAF_BYTES as u64
                + size_of::<Root>() as u64
                + STRIPES * 64,
            nodes,
            resizes: self.count().figure(RESHAPED),
            ..IndexStats::default()
        }
    }

    fn damage(&self) -> Option<Damage> {
        self.damage.get().copied()
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
        self.range_from_to(guard, (from, to), direction, expected, each);
    }
}
