//! Creating and opening a tree.

use super::super::base::{Base, ROOT_OWN};
use super::super::keys::OrderedKind;
use super::ops::Hot;
use super::root::Growth;
use super::tree::Tree;
use crate::{Damage, PointIndex, StoreError, Stored};
use std::sync::atomic::Ordering::Acquire;
use terrace_medium::{MappedMedium, Offset};
use terrace_pool::{Finding, Guard, Pool};

impl<M: MappedMedium, K: OrderedKind> Hot<M, K> {
    /// Creates an empty tree whose nodes have at most `entries` entries, 2 to 32. One insert
    /// replaces at most `levels` nodes of a path, 1 to 12. For tests: small nodes change often.
    ///
    /// # Panics
    /// If one of them is not in its range.
    #[doc(hidden)]
    pub fn with_growth(
        pool: &Pool<M>,
        name: &str,
        entries: usize,
        levels: usize,
    ) -> Result<Self, StoreError> {
        let growth = Growth { entries, levels };
        assert_eq!(Growth::of_word(growth.to_word()), Some(growth), "entries and levels of a tree");
        let base = Base::create(pool, (name, Self::NAME), [growth.to_word(), 0, 0, 0])?;
        Ok(Self { tree: Tree { base, growth } })
    }
}

impl<M: MappedMedium, K: OrderedKind> Stored for Hot<M, K> {
    type Medium = M;

    /// The tree grows as keys come; `capacity` reserves nothing.
    fn create(pool: &Pool<M>, name: &str, _capacity: u64) -> Result<Self, StoreError> {
        Self::with_growth(pool, name, Growth::USUAL.entries, Growth::USUAL.levels)
    }

    fn recover(pool: &Pool<M>, name: &str) -> Result<Option<Self>, StoreError> {
        let Some(root) = pool.root(name, Self::NAME)? else { return Ok(None) };
        let base = Base::open(pool, Offset::new(root))?;
        let word = base.root[1].0[ROOT_OWN].load(pool.medium(), Acquire);
        let what = "the root of the tree does not say how large nodes are";
        let growth = Growth::of_word(word).ok_or(StoreError::Damaged(Damage { offset: root, what }))?;
        let index = Self { tree: Tree { base, growth } };
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
