//! How links are followed and stored: *link and persist* (see `link`).

use super::base::Base;
use super::keys::OrderedKind;
use super::link::{LEAF, Link};
use crate::Damage;
use crate::change::Fencing;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use terrace_medium::{MappedMedium, Medium, Word};
use terrace_pool::Guard;

/// Loads a link.
///
/// ORDER: Acquire: pairs with the Release of the store that published it. What it leads to is
/// visible.
#[inline(always)]
pub(super) fn load<M: Medium>(medium: &M, word: &Word) -> Link {
    Link(word.load(medium, Acquire))
}

/// Stores a link.
///
/// ORDER: Release: a reader that sees the link sees what it leads to.
#[inline(always)]
pub(super) fn store<M: Medium>(medium: &M, word: &Word, link: Link) {
    word.store(medium.point("tree.link"), link.0, Release);
}

impl<M: MappedMedium, K: OrderedKind> Base<M, K> {
    #[cold]
    pub(super) fn damaged_link(&self, word: &Word) -> Damage {
        self.record_damage(self.pool.region().offset_of(word).raw(), "a link does not fit its check")
    }

    /// The link in `word`, durable: a thread returns nothing and builds upon nothing that a crash
    /// can take back.
    #[inline(always)]
    pub(super) fn follow(&self, word: &Word) -> Link {
        let link = load(self.pool.medium(), word);
        self.followed(word, link)
    }

    /// A link that was read in a word, durable and clean. Damage may have made it dirty on a medium
    /// where none ever is.
    #[inline(always)]
    pub(super) fn followed(&self, word: &Word, link: Link) -> Link {
        if M::VOLATILE_CACHE && link.is_dirty() { self.persist_link(word, link) } else { link.clean() }
    }

    #[cold]
    fn persist_link(&self, word: &Word, link: Link) -> Link {
        self.persist_found(word, link);
        if !link.is_held() && !self.pool.refuses_stores() {
            // ORDER: AcqRel: a thread that finds the link clean finds it durable. After a failure
            // the link has changed, or another thread has cleared the bit.
            let _ = word.compare_exchange(
                self.pool.medium().point("tree.clean"),
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

    /// As [`Base::follow`], under the lock of the link's holder.
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

    /// Clears the dirty bits of links that [`Base::publish`] left to a later fence.
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

    /// Persists a pair that was read behind `link`, unless its word was durable: the link has not
    /// become dirty. (A node that is replaced makes its links dirty first, see `reshape`.)
    #[inline(always)]
    pub(super) fn persist_pair(&self, word: &Word, link: Link) {
        if M::VOLATILE_CACHE && K::LEAF_BYTES > 0 && load(self.pool.medium(), word) != link {
            let region = self.pool.region();
            region.write_back_bytes(link.offset(), K::LEAF_BYTES);
            // PERSIST: a word that an update has stored and not fenced, before it is returned.
            region.fence();
        }
    }
}
