//! Creating and opening a tree.

use super::super::keys::OrderedKind;
use super::obsolete::mark_of;
use super::ops::Art;
use super::root::*;
use super::tree::Tree;
use crate::count::STRIPES;
use crate::{Damage, PointIndex, StoreError, Stored};
use std::marker::PhantomData;
use std::sync::OnceLock;
use std::sync::atomic::Ordering::Acquire;
use terrace_medium::{MappedMedium, Offset};
use terrace_pool::{Finding, Guard, Pool};

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
        let damage = OnceLock::new();
        Ok(Self { tree: Tree { pool, root: fixed, stripes, mark, damage, kind: PhantomData } })
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
            index.tree.begin_cycle();
            index.tree.count().recover();
        }
        Ok(Some(index))
    }

    fn verify(&self, guard: &Guard<'_, M>) -> Vec<Finding> {
        self.tree.findings(guard)
    }
}
