//! Creating and opening a tree.

use super::super::base::Base;
use super::super::keys::OrderedKind;
use super::ops::Art;
use super::tree::Tree;
use crate::{PointIndex, StoreError, Stored};
use terrace_medium::{MappedMedium, Offset};
use terrace_pool::{Finding, Guard, Pool};

impl<M: MappedMedium, K: OrderedKind> Art<M, K> {
    /// An empty tree without a name, for one that keeps its place.
    pub(in super::super) fn unnamed(pool: &Pool<M>) -> Result<Self, StoreError> {
        let root = Base::<M, K>::create_unnamed(pool, 0, [0; 4])?;
        Ok(Self { tree: Tree { base: Base::open(pool, Offset::new(root))? } })
    }
}

impl<M: MappedMedium, K: OrderedKind> Stored for Art<M, K> {
    type Medium = M;

    /// The tree grows as keys come; `capacity` reserves nothing.
    fn create(pool: &Pool<M>, name: &str, _capacity: u64) -> Result<Self, StoreError> {
        let base = Base::create(pool, (name, Self::NAME), [0; 4])?;
        Ok(Self { tree: Tree { base } })
    }

    fn recover(pool: &Pool<M>, name: &str) -> Result<Option<Self>, StoreError> {
        let Some(root) = pool.root(name, Self::NAME)? else { return Ok(None) };
        let index = Self { tree: Tree { base: Base::open(pool, Offset::new(root))? } };
        if !pool.is_read_only() && !pool.is_initialized() {
            index.tree.begin_cycle();
            index.tree.count().recover();
        }
        Ok(Some(index))
    }

    fn verify(&self, guard: &Guard<'_, M>) -> Vec<Finding> {
        self.tree.findings(guard)
    }
}
