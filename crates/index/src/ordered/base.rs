//! What every tree has: the pool, the root block, the counters, and the damage that it has met.
//!
//! ```text
//!   line 0 | lock | shape | link to the tree | stripes | kind of keys | check | 0 | 0 |
//!   line 1 | count mode | base | number of the last recount | cycle | the tree's own ... |
//! ```
//! `shape` and the link mean what the tree says. The cycle is that of the generations whose marks
//! the nodes may have (see `obsolete`).

use super::keys::OrderedKind;
use super::obsolete::mark_of;
use crate::count::{Count, STRIPES, Stripes};
use crate::{Damage, StoreError};
use std::marker::PhantomData;
use std::sync::OnceLock;
use std::sync::atomic::Ordering::Acquire;
use terrace_medium::{Line, MappedMedium, Offset, Word};
use terrace_pool::{Finding, Fixed, Marker, Pool};

/// The root block of a tree.
pub(super) type Root = [Line; 2];

/// The words of the root's first line.
pub(super) const ROOT_LOCK: usize = 0;
pub(super) const ROOT_SHAPE: usize = 1;
pub(super) const ROOT_LINK: usize = 2;
const ROOT_STRIPES: usize = 3;
const ROOT_KIND: usize = 4;
const ROOT_CHECK: usize = 5;
/// In the second line.
pub(super) const ROOT_CYCLE: usize = 3;
/// The first word of the second line that a tree uses as it likes.
pub(super) const ROOT_OWN: usize = 4;

/// Bytes of the root block and the counters.
pub(super) const BASE_BYTES: u64 = size_of::<Root>() as u64 + STRIPES * 64;

/// The value of [`ROOT_CHECK`]. It differs for any other place of the stripes.
fn root_check(kind: u64, stripes: u64) -> u64 {
    const ODD: u64 = 0x9e37_79b9_7f4a_7c15;
    (kind ^ ODD).rotate_left(29) ^ stripes.wrapping_mul(ODD)
}

/// Findings after which a check stops: more of the same say nothing new.
pub(super) const FINDINGS_MAX: usize = 1000;

/// A finding in a tree.
pub(super) fn finding(offset: u64, expected: impl Into<String>, found: impl Into<String>) -> Finding {
    Finding::new(offset, "ordered tree", expected, found)
}

/// The handles that every operation of a tree needs.
pub(super) struct Base<M: MappedMedium, K> {
    pub(super) pool: Pool<M>,
    pub(super) root: Fixed<M, Root>,
    stripes: Fixed<M, Stripes>,
    /// The mark of obsolete nodes in this generation of the pool, not 0.
    pub(super) mark: u16,
    pub(super) damage: OnceLock<Damage>,
    kind: PhantomData<fn() -> K>,
}

impl<M: MappedMedium, K: OrderedKind> Base<M, K> {
    /// Makes the root block of an empty tree and names it in the pool's root directory. `own` are
    /// the last four words of the block.
    pub(super) fn create(
        pool: &Pool<M>,
        names: (&str, &'static str),
        own: [u64; 4],
    ) -> Result<Self, StoreError> {
        Self::create_over(pool, names, 0, own)
    }

    /// As `create`, over what this thread has written back and `link` leads to: it is durable
    /// before the tree has a name.
    pub(super) fn create_over(
        pool: &Pool<M>,
        (name, kind): (&str, &'static str),
        link: u64,
        own: [u64; 4],
    ) -> Result<Self, StoreError> {
        let root = Self::create_unnamed(pool, link, own)?;
        pool.set_root(name, kind, root)?;
        Self::open(pool, Offset::new(root))
    }

    /// As `create_over`, of a tree that has no name of its own: part of another structure. Returns
    /// the place of its root block, which is durable.
    pub(super) fn create_unnamed(pool: &Pool<M>, link: u64, own: [u64; 4]) -> Result<u64, StoreError> {
        let guard = pool.pin();
        let stripes = guard.alloc(STRIPES as usize * 64)?;
        stripes.stream_lines(0, &[[0; 8]; STRIPES as usize]);
        let root = guard.alloc(size_of::<Root>())?;
        let (mut first, mut second) = ([0; 8], [0; 8]);
        first[ROOT_LINK] = link;
        first[ROOT_STRIPES] = stripes.offset();
        first[ROOT_KIND] = K::TAG;
        first[ROOT_CHECK] = root_check(K::TAG, stripes.offset());
        second[4..].copy_from_slice(&own);
        root.stream_lines(0, &[first, second]);
        // PERSIST: counters and root block before anything names them. A crash before that leaves
        // blocks that the collector reclaims.
        let fence = guard.fence();
        let _ = stripes.fenced(&fence).into_offset();
        Ok(root.fenced(&fence).into_offset())
    }

    /// Opens the tree with this root block.
    pub(super) fn open(pool: &Pool<M>, root: Offset<Root>) -> Result<Self, StoreError> {
        let damaged = |offset, what| StoreError::Damaged(Damage { offset, what });
        let fixed = pool.fix(root).ok_or(damaged(root.raw(), "the root lies outside the pool"))?;
        let word = |index: usize| fixed[0].0[index].load(pool.medium(), Acquire);
        if word(ROOT_KIND) != K::TAG {
            return Err(damaged(root.raw(), "the root is not of a tree for this kind of keys"));
        }
        if word(ROOT_CHECK) != root_check(K::TAG, word(ROOT_STRIPES)) {
            return Err(damaged(root.raw(), "the root of the tree does not fit its check"));
        }
        let stripes = pool.fix(Offset::new(word(ROOT_STRIPES)));
        let stripes = stripes.ok_or(damaged(root.raw(), "the counters lie outside the pool"))?;
        let (pool, mark) = (pool.clone(), mark_of(pool.generation()));
        Ok(Self { pool, root: fixed, stripes, mark, damage: OnceLock::new(), kind: PhantomData })
    }

    pub(super) fn count(&self) -> Count<'_, M> {
        Count { medium: self.pool.medium(), line: &self.root[1], stripes: &self.stripes }
    }

    #[inline(always)]
    pub(super) fn root_link(&self) -> &Word {
        &self.root[0].0[ROOT_LINK]
    }

    /// The offset of the counters.
    pub(super) fn stripes_at(&self) -> u64 {
        self.stripes.offset().raw()
    }

    /// Marks the root block and the counters for the collector.
    pub(super) fn mark_own(&self, marker: &mut Marker<'_>) {
        marker.mark(self.root.offset().raw(), size_of::<Root>());
        marker.mark(self.stripes_at(), STRIPES as usize * 64);
    }

    /// Ends a check that found so many keys: adds the damage that was met, and a wrong count if
    /// there is nothing else.
    pub(super) fn conclude(&self, mut findings: Vec<Finding>, keys: u64) -> Vec<Finding> {
        if let Some(damage) = self.damage.get() {
            findings.push(finding(damage.offset, "an undamaged index", damage.what));
        }
        let counted = self.count().len();
        if findings.is_empty() && counted != keys {
            let expected = format!("a count of {keys} keys");
            findings.push(finding(self.stripes_at(), expected, format!("{counted}")));
        }
        findings
    }

    #[cold]
    pub(super) fn record_damage(&self, offset: u64, what: &'static str) -> Damage {
        let damage = Damage { offset, what };
        let _ = self.damage.set(damage);
        damage
    }
}
