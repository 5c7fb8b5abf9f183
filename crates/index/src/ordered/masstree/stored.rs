//! Creating and opening a tree.

use super::super::base::{Base, ROOT_OWN};
use super::super::keys::OrderedKind;
use super::entry::Entry;
use super::head::Shape;
use super::node::{Content, NODE_BYTES};
use super::ops::Masstree;
use super::permutation::WIDTH;
use super::tree::Tree;
use crate::{Damage, PointIndex, StoreError, Stored};
use std::sync::atomic::Ordering::Acquire;
use terrace_medium::{MappedMedium, Offset};
use terrace_pool::{Finding, Guard, Pool};

/// Entries of a node at least, when it is split: a half of it must have two.
const WIDTH_MIN: usize = 3;

impl<M: MappedMedium, K: OrderedKind> Masstree<M, K> {
    /// As [`Stored::create`], with nodes of at most `width` entries, 3 to 15: for structures of
    /// many nodes with few keys.
    ///
    /// # Panics
    /// If `width` is not in these bounds.
    pub fn with_width(pool: &Pool<M>, name: &str, width: usize) -> Result<Self, StoreError> {
        Self::make(pool, width, Some(name))
    }

    /// A tree that has no name: part of another structure, which keeps the place of its root block
    /// ([`Masstree::root`]).
    pub(in super::super) fn unnamed(pool: &Pool<M>) -> Result<Self, StoreError> {
        Self::make(pool, WIDTH, None)
    }

    /// The place of its root block.
    pub(in super::super) fn root(&self) -> u64 {
        self.tree.root.offset().raw()
    }

    fn make(pool: &Pool<M>, width: usize, name: Option<&str>) -> Result<Self, StoreError> {
        assert!((WIDTH_MIN..=WIDTH).contains(&width), "nodes of {width} entries");
        let guard = pool.pin();
        // The first leaf comes before the tree has a name: none is ever without a leaf.
        let (shape, next) = (Shape::new(0, 0, 0), Entry::NONE);
        let content = Content { shape, next, high: 0, low: 0, last_entry: 0, entries: &[] };
        let fresh = guard.alloc(NODE_BYTES)?;
        fresh.stream_lines(0, &content.image());
        // PERSIST: `create_unnamed` fences before the tree has a name. A crash before that leaves a
        // block that the collector reclaims.
        let leaf = fresh.fenced_later().into_offset();
        let link = Entry::node(0, 0, leaf).0;
        let root = Base::<M, K>::create_unnamed(pool, link, [width as u64, 0, 0, 0]).and_then(|root| {
            name.map_or(Ok(()), |name| pool.set_root(name, Self::NAME, root))?;
            Ok(root)
        });
        let index = Self::open(pool, root.inspect_err(|_| guard.free(leaf, NODE_BYTES))?)?;
        index.count_node(&guard, 0, 1);
        Ok(index)
    }

    /// The tree with this root block, after a start of its pool.
    pub(in super::super) fn recover_at(pool: &Pool<M>, root: u64) -> Result<Self, StoreError> {
        let index = Self::open(pool, root)?;
        if !pool.is_read_only() && !pool.is_initialized() {
            index.tree.count().recover();
        }
        Ok(index)
    }

    fn open(pool: &Pool<M>, root: u64) -> Result<Self, StoreError> {
        let base: Base<M, K> = Base::open(pool, Offset::new(root))?;
        let width = base.root[1].0[ROOT_OWN].load(pool.medium(), Acquire) as usize;
        if !(WIDTH_MIN..=WIDTH).contains(&width) {
            let what = "the root of the tree says a width that no node has";
            return Err(StoreError::Damaged(Damage { offset: root, what }));
        }
        Ok(Self { tree: Tree { base, width } })
    }
}

impl<M: MappedMedium, K: OrderedKind> Stored for Masstree<M, K> {
    type Medium = M;

    /// The tree grows as keys come; `capacity` reserves nothing.
    fn create(pool: &Pool<M>, name: &str, _capacity: u64) -> Result<Self, StoreError> {
        Self::with_width(pool, name, WIDTH)
    }

    fn recover(pool: &Pool<M>, name: &str) -> Result<Option<Self>, StoreError> {
        let Some(root) = pool.root(name, Self::NAME)? else { return Ok(None) };
        Self::recover_at(pool, root).map(Some)
    }

    fn verify(&self, guard: &Guard<'_, M>) -> Vec<Finding> {
        self.tree.findings(guard)
    }
}
