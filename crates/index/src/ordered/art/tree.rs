//! The tree below its operations: its parts, and how links are followed and stored.

use super::super::keys::OrderedKind;
use super::super::link::{LEAF, Link};
use super::node::{Kind, Node, load, store};
use super::root::{Holder, ROOT_LINK, Root};
use crate::Damage;
use crate::change::Fencing;
use crate::count::{Count, Stripes};
use std::marker::PhantomData;
use std::sync::OnceLock;
use std::sync::atomic::Ordering::{AcqRel, Relaxed};
use terrace_medium::{MappedMedium, Word};
use terrace_pool::{Fixed, Guard, Pool};

/// The nodes, their locks and the links between them: what readers need, and what a writer needs
/// to find the place of a change. It owns the handle of the pool, the root and the counters. It
/// knows no change of a key; `Art` above it does.
pub(super) struct Tree<M: MappedMedium, K> {
    pub(super) pool: Pool<M>,
    pub(super) root: Fixed<M, Root>,
    pub(super) stripes: Fixed<M, Stripes>,
    /// The mark of obsolete nodes in this generation of the pool, not 0.
    pub(super) mark: u16,
    pub(super) damage: OnceLock<Damage>,
    pub(super) kind: PhantomData<fn() -> K>,
}

impl<M: MappedMedium, K: OrderedKind> Tree<M, K> {
    pub(super) fn count(&self) -> Count<'_, M> {
        Count { medium: self.pool.medium(), line: &self.root[1], stripes: &self.stripes }
    }

    #[inline(always)]
    pub(super) fn root_link(&self) -> &Word {
        &self.root[0].0[ROOT_LINK]
    }

    pub(super) fn root_holder(&self) -> Holder<'_> {
        Holder::root(&self.root)
    }

    #[cold]
    pub(super) fn record_damage(&self, offset: u64, what: &'static str) -> Damage {
        let damage = Damage { offset, what };
        let _ = self.damage.set(damage);
        damage
    }

    #[cold]
    pub(super) fn damaged_link(&self, word: &Word) -> Damage {
        self.record_damage(self.pool.region().offset_of(word).raw(), "a link does not fit its check")
    }

    /// The node of a link in a holder with this base, and its level.
    #[inline(always)]
    pub(super) fn node_below(
        &self,
        word: &Word,
        link: Link,
        base: usize,
    ) -> Result<(Node<'_>, usize), Damage> {
        match self.node_unchecked(link, base) {
            Some(node) if link.is_sound() => Ok(node),
            _ => Err(self.damaged_link(word)),
        }
    }

    /// As [`Tree::node_below`], but does not compare the link with its check. For a search, whose
    /// answer the key at the leaf confirms: where it finds none, it goes the way again and checks.
    #[inline(always)]
    pub(super) fn node_unchecked(&self, link: Link, base: usize) -> Option<(Node<'_>, usize)> {
        let node = Node::at(self.pool.region(), Kind::of(link.kind())?, link.offset())?;
        match link.skip() {
            Some(skip) => Some((node, base + skip)),
            None => self.level_in_header(node, base).ok(),
        }
    }

    #[inline(never)]
    fn level_in_header<'g>(&self, node: Node<'g>, base: usize) -> Result<(Node<'g>, usize), Damage> {
        let shape = node.shape(self.pool.medium());
        if shape.is_of(node.kind()) && shape.level() >= base {
            return Ok((node, shape.level()));
        }
        Err(self.record_damage(node.offset(self.pool.region()), "the head of a node does not fit its check"))
    }

    /// Checks a node before it is written to: the pool's own metadata never must be, as a node.
    #[inline(always)]
    pub(super) fn check_node(&self, node: Node<'_>, level: usize) -> Result<(), Damage> {
        let offset = node.offset(self.pool.region());
        let shape = node.shape(self.pool.medium());
        if offset >= self.pool.layout().zones && shape.is_of(node.kind()) && shape.level() == level {
            return Ok(());
        }
        Err(self.record_damage(offset, "the head of a node does not fit its check or its link"))
    }

    /// As [`Tree::node_below`], for writers.
    pub(super) fn node_to_write(
        &self,
        word: &Word,
        link: Link,
        base: usize,
    ) -> Result<(Node<'_>, usize), Damage> {
        let (node, level) = self.node_below(word, link, base)?;
        self.check_node(node, level)?;
        Ok((node, level))
    }

    /// The link in `word`, durable: a thread returns nothing and builds upon nothing that a crash
    /// can take back (invariant 7).
    #[inline(always)]
    pub(super) fn follow(&self, word: &Word) -> Link {
        let link = load(self.pool.medium(), word);
        self.followed(word, link)
    }

    #[inline(always)]
    pub(super) fn followed(&self, word: &Word, link: Link) -> Link {
        if M::VOLATILE_CACHE && link.is_dirty() { self.persist_link(word, link) } else { link }
    }

    #[cold]
    fn persist_link(&self, word: &Word, link: Link) -> Link {
        self.persist_found(word, link);
        if !link.is_held() && !self.pool.refuses_stores() {
            // ORDER: AcqRel: a thread that finds the link clean finds it durable. After a failure
            // the link has changed, or another thread has cleared the bit.
            let _ = word.compare_exchange(
                self.pool.medium().point("art.clean"),
                link.0,
                link.clean().0,
                AcqRel,
                Relaxed,
            );
        }
        link.clean()
    }

    fn persist_found(&self, word: &Word, link: Link) {
        let region = self.pool.region();
        if K::LEAF_BYTES > 0 && link.kind() == LEAF && region.holds(link.offset(), K::LEAF_BYTES) {
            region.write_back_bytes(link.offset(), K::LEAF_BYTES);
        }
        region.write_back(word);
        // PERSIST: what another thread stored and has not fenced, before this one relies on it.
        region.fence();
    }

    /// As [`Tree::follow`], under the lock of the link's holder.
    #[inline(always)]
    pub(super) fn follow_locked(&self, word: &Word) -> Link {
        let medium = self.pool.medium();
        let link = load(medium, word);
        if M::VOLATILE_CACHE && link.is_dirty() {
            self.persist_found(word, link);
            store(medium, word, link.clean());
        }
        link.clean()
    }

    /// Stores a link, or removes the one that `link` is the rest of, and makes that durable, now or
    /// later. Called under the lock of its holder.
    #[inline(always)]
    pub(super) fn publish(&self, word: &Word, link: Link, fencing: &mut Fencing<'_>) {
        let (region, medium) = (self.pool.region(), self.pool.medium());
        if !M::VOLATILE_CACHE {
            return store(medium, word, link.clean());
        }
        let dirty = link.dirty();
        store(medium, word, dirty);
        // PERSIST: the one write-back and fence of a change. What the link leads to is durable
        // already. A crash without the link leaves the tree as it was.
        region.write_back(word);
        match fencing {
            Fencing::Deferred(deferred) => deferred.0.extend([region.offset_of(word).raw(), dirty.0]),
            Fencing::Now => {
                region.fence();
                store(medium, word, dirty.clean());
            }
        }
    }

    /// Clears the dirty bits of links that [`Tree::publish`] left to a later fence.
    pub(super) fn confirm(&self, guard: &Guard<'_, M>, links: &[u64]) {
        let (region, medium) = (guard.pool().region(), guard.pool().medium());
        // PERSIST: all deferred changes at once.
        region.fence();
        for pair in links.chunks_exact(2) {
            let word: &Word = region.at(terrace_medium::Offset::new(pair[0]));
            // ORDER: AcqRel: as in `persist_link`.
            let _ = word.compare_exchange(medium, pair[1], Link(pair[1]).clean().0, AcqRel, Relaxed);
        }
    }
}
