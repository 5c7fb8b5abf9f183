//! Creating and opening a tree.

use super::super::base::Base;
use super::super::keys::OrderedKind;
use super::build::{BYTES, LEAVES, empty_root_lines};
use super::entry::{Entry, SLOTS_MAX};
use super::ops::BwTree;
use super::spare::Spare;
use super::table::{Directory, SPARES_MAX, named};
use super::tree::{MOST_MAX, Shape, Tree, own_words};
use crate::{PointIndex, StoreError, Stored};
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use terrace_medium::{LINE, MappedMedium, Offset};
use terrace_pool::{Finding, Guard, Pool};

/// The sizes of a tree's pages: small ones for tests, in which a few keys fill a page.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BwShape {
    /// Keys of a page above which it is split, 2 to 144.
    pub most: usize,
    /// Keys below which it is merged with a neighbour, less than half as many.
    pub least: usize,
    /// Changes of a page before it is written anew, 1 to 12.
    pub slots: usize,
    /// Numbers of pages before the mapping table grows, as a power of two.
    pub numbers_log2: u32,
    /// Pages that are set aside for a full pool, 16 at most.
    pub spares: usize,
    /// Whether there counts as being no memory, in every second epoch, for what works in a full
    /// pool too: so a test need not fill its pool.
    pub is_scarce: bool,
}

impl<M: MappedMedium, K: OrderedKind> BwTree<M, K> {
    /// As [`Stored::create`], with pages of these sizes.
    ///
    /// # Panics
    /// If the sizes are out of their bounds.
    pub fn with_shape(pool: &Pool<M>, name: &str, shape: BwShape) -> Result<Self, StoreError> {
        let BwShape { most, least, slots, numbers_log2, spares, is_scarce } = shape;
        assert!((2..=MOST_MAX).contains(&most) && 2 * least < most + 2, "pages of {least} to {most} keys");
        assert!((1..=SLOTS_MAX).contains(&slots) && spares <= SPARES_MAX, "{slots} slots, {spares} spares");
        assert!((3..=8).contains(&numbers_log2), "a mapping table of 2^{numbers_log2} numbers");
        Self::of_shape(pool, name, Shape { most, least, slots, first_log2: numbers_log2, spares, is_scarce })
    }

    fn of_shape(pool: &Pool<M>, name: &str, shape: Shape) -> Result<Self, StoreError> {
        let lines = empty_root_lines::<K>(shape.slots, pool.generation());
        let guard = pool.pin();
        let root = guard.alloc(lines.len() * LINE)?;
        root.stream_lines(0, &lines);
        let segment = guard.alloc(LINE.max(8 << shape.first_log2))?;
        let mut entries = vec![[0; LINE / 8]; segment.len() / LINE];
        entries[0][0] = Entry::of_page(root.offset(), 0).0;
        segment.stream_lines(0, &entries);
        let directory = guard.alloc(size_of::<Directory>())?;
        let mut words = [[0; LINE / 8]; size_of::<Directory>() / LINE];
        words[0][0] = named(segment.offset());
        directory.stream_lines(0, &words);
        // PERSIST: the tree, before the root block names it. A crash before that leaves blocks that
        // the collector reclaims.
        let fence = guard.fence();
        let own = own_words(shape, directory.offset());
        let base = Base::create(pool, (name, Self::NAME), own)?;
        let bytes = root.len();
        for block in [root, segment, directory] {
            let _ = block.fenced(&fence).into_offset();
        }
        base.count().add_figure(guard.slot_index(), LEAVES, 1);
        base.count().add_figure(guard.slot_index(), BYTES, bytes as i64);
        drop(guard);
        Ok(Self { tree: Tree::over(base)?, sweep: AtomicU64::new(0) })
    }
}

impl<M: MappedMedium, K: OrderedKind> Stored for BwTree<M, K> {
    type Medium = M;

    /// The tree grows as keys come; `capacity` reserves nothing.
    fn create(pool: &Pool<M>, name: &str, _capacity: u64) -> Result<Self, StoreError> {
        Self::of_shape(pool, name, Shape::USUAL)
    }

    fn recover(pool: &Pool<M>, name: &str) -> Result<Option<Self>, StoreError> {
        let Some(root) = pool.root(name, Self::NAME)? else { return Ok(None) };
        let index =
            Self { tree: Tree::over(Base::open(pool, Offset::new(root))?)?, sweep: AtomicU64::new(0) };
        if !pool.is_read_only() && !pool.is_initialized() {
            index.clear_used_spares();
            index.tree.count().recover();
        }
        Ok(Some(index))
    }

    fn verify(&self, guard: &Guard<'_, M>) -> Vec<Finding> {
        self.findings(guard)
    }
}

impl<M: MappedMedium, K: OrderedKind> BwTree<M, K> {
    /// Clears the marks of threads that a crash has ended. No other thread uses the tree.
    fn clear_used_spares(&self) {
        let medium = self.tree.pool.medium();
        for word in self.tree.spare_words().filter(|word| Spare(word.load(medium, Relaxed)).is_used()) {
            word.store(medium, 0, Relaxed);
        }
    }
}
