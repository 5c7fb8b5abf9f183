//! Creating and opening a tree.

use super::super::base::{Base, ROOT_OWN};
use super::super::keys::OrderedKind;
use super::entry::Entry;
use super::head::Shape;
use super::node::Content;
use super::ops::Masstree;
use super::permutation::WIDTH;
use super::tree::Tree;
use crate::{Damage, PointIndex, StoreError, Stored};
use std::sync::atomic::Ordering::{Acquire, Release};
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
        assert!((WIDTH_MIN..=WIDTH).contains(&width), "nodes of {width} entries");
        let guard = pool.pin();
        let base = Base::create(pool, (name, Self::NAME), [width as u64, 0, 0, 0])?;
        let index = Self { tree: Tree { base, width } };
        index.plant(&guard)?;
        Ok(index)
    }

    /// Gives a tree without a root its first leaf.
    fn plant(&self, guard: &Guard<'_, M>) -> Result<(), StoreError> {
        let (tree, medium, region) = (&self.tree, self.tree.pool.medium(), self.tree.pool.region());
        let (shape, next) = (Shape::new(0, 0, 0), Entry::NONE);
        let leaf =
            self.build(guard, &Content { shape, next, high: 0, low: 0, last_entry: 0, entries: &[] })?;
        // PERSIST: the leaf before the link to it. A crash in between leaves a tree without a root,
        // to which the next open gives one.
        region.fence();
        // ORDER: Release: a reader that sees the root sees the leaf.
        tree.root_link().store(medium, Entry::node(0, 0, leaf).0, Release);
        // PERSIST: the root before any key.
        region.persist(tree.root_link());
        Ok(())
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
        let index = Self::open(pool, root)?;
        if !pool.is_read_only() && !pool.is_initialized() {
            index.tree.count().recover();
            if index.tree.root_link().load(pool.medium(), Acquire) == 0 {
                index.plant(&pool.pin())?;
            }
        }
        Ok(Some(index))
    }

    fn verify(&self, guard: &Guard<'_, M>) -> Vec<Finding> {
        self.tree.findings(guard)
    }
}
