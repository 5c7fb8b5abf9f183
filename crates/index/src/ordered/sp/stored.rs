//! Creating and opening a tree.

use super::super::base::{Base, ROOT_OWN};
use super::super::keys::OrderedKind;
use super::super::masstree::Masstree;
use super::log::Log;
use super::node::{Content, WIDTH, node_bytes};
use super::ops::{NODES, SpTree};
use super::tree::Tree;
use super::word::Entry;
use crate::{Damage, PointIndex, StoreError, Stored};
use std::sync::atomic::Ordering::Acquire;
use terrace_medium::{MappedMedium, Offset};
use terrace_pool::{Finding, Guard, Pool};

/// Slots of a node at least: two nodes that are joined must have room in one.
const WIDTH_MIN: usize = 4;

impl<M: MappedMedium, K: OrderedKind> SpTree<M, K> {
    /// As [`Stored::create`], with nodes of at most `width` keys, 4 to 64: for structures of many
    /// nodes with few keys.
    ///
    /// # Panics
    /// If `width` is not in these bounds.
    pub fn with_width(pool: &Pool<M>, name: &str, width: usize) -> Result<Self, StoreError> {
        assert!((WIDTH_MIN..=WIDTH).contains(&width), "nodes of {width} keys");
        let guard = pool.pin();
        let top = Masstree::unnamed(pool)?;
        let content = Content { next: Entry::NONE, high: 0, low: 0, counted: 0, merged: 0, entries: &[] };
        let fresh = guard.alloc(node_bytes::<K>())?;
        fresh.stream_lines(0, &content.image::<K>());
        // PERSIST: `create_over` fences before it names the tree. A crash before that leaves blocks
        // that the collector reclaims.
        let first = fresh.fenced_later().into_offset();
        let own = [width as u64, top.root(), 0, 0];
        let base = Base::create_over(pool, (name, Self::NAME), Entry::link(first).0, own);
        let base = base.inspect_err(|_| guard.free(first, node_bytes::<K>()))?;
        let index = Self { tree: Tree { base, top, width, log: None, log_damage: None, layers: None } };
        index.tree.count().add_figure(guard.slot_index(), NODES, 1);
        Ok(index)
    }

    fn open(pool: &Pool<M>, root: u64) -> Result<Self, StoreError> {
        let base: Base<M, K> = Base::open(pool, Offset::new(root))?;
        let own = |nth: usize| base.root[1].0[ROOT_OWN + nth].load(pool.medium(), Acquire);
        let (width, top) = (own(0) as usize, own(1));
        if !(WIDTH_MIN..=WIDTH).contains(&width) {
            let what = "the root of the tree says a width that no node has";
            return Err(StoreError::Damaged(Damage { offset: root, what }));
        }
        let top = Masstree::recover_at(pool, top)?;
        let log = match Entry(own(2)) {
            Entry::NONE => Ok(None),
            link => Log::open(pool, link).map(Some),
        };
        let log_damage = log.as_ref().err().map(|damage| base.record_damage(damage.offset, damage.what));
        let log = log.unwrap_or_default();
        Ok(Self { tree: Tree { base, top, width, log, log_damage, layers: None } })
    }
}

impl<M: MappedMedium, K: OrderedKind> Stored for SpTree<M, K> {
    type Medium = M;

    /// The tree grows as keys come; `capacity` reserves nothing.
    fn create(pool: &Pool<M>, name: &str, _capacity: u64) -> Result<Self, StoreError> {
        Self::with_width(pool, name, WIDTH)
    }

    fn recover(pool: &Pool<M>, name: &str) -> Result<Option<Self>, StoreError> {
        let Some(root) = pool.root(name, Self::NAME)? else { return Ok(None) };
        let mut index = Self::open(pool, root)?;
        index.replay(&pool.pin());
        if !pool.is_read_only() && !pool.is_initialized() {
            index.tree.count().recover();
        }
        Ok(Some(index))
    }

    fn verify(&self, guard: &Guard<'_, M>) -> Vec<Finding> {
        self.tree.findings(guard)
    }
}
