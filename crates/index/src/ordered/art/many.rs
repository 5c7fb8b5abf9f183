//! Reads of many keys, side by side.

use super::super::keys::OrderedKind;
use super::super::link::{EMPTY, LEAF, Link};
use super::super::links::load;
use super::super::together::search_together;
use super::find::Ended;
use super::node::{Kind, Node};
use super::tree::Tree;
use terrace_medium::{MappedMedium, Word};
use terrace_pool::Guard;

/// A search in progress.
struct Descent<'g, 'k, Key: ?Sized> {
    key: &'k Key,
    word: &'g Word,
    link: Link,
    base: usize,
    /// The answer once the search has ended.
    found: Option<Option<u64>>,
}

impl<M: MappedMedium, K: OrderedKind> Tree<M, K> {
    /// See [`PointIndex::get_many`](crate::PointIndex::get_many).
    pub(super) fn search_many<'k>(
        &self,
        guard: &Guard<'_, M>,
        keys: impl IntoIterator<Item = &'k K::Key>,
        mut each: impl FnMut(usize, Option<u64>),
    ) where
        K::Key: 'k,
    {
        let start = |key| {
            let (word, link) = (self.root_link(), load(self.pool.medium(), self.root_link()));
            Descent { key, word, link, base: 0, found: None }
        };
        search_together(
            keys,
            start,
            |descent| self.step(guard, descent),
            |nth, descent| each(nth, descent.found.flatten()),
        );
    }

    /// Follows the link of a search, whose line was prefetched, and prefetches the next. Returns
    /// whether the search goes on.
    #[inline(always)]
    fn step<'g>(&'g self, guard: &'g Guard<'_, M>, descent: &mut Descent<'g, '_, K::Key>) -> bool {
        if descent.found.is_some() {
            return false;
        }
        let (key, word) = (descent.key, descent.word);
        let link = self.followed(word, descent.link);
        let next = match link.kind() {
            EMPTY => None,
            LEAF => {
                descent.found = Some(match self.read_leaf(guard, word, link, key) {
                    Ended::Found(word) => Some(word),
                    _ => None,
                });
                return false;
            }
            _ => self.node_unchecked(link, descent.base).and_then(|(node, level)| {
                descent.base = level + 1;
                self.next_link(node, level, key)
            }),
        };
        match next {
            Some((word, link)) => {
                (descent.word, descent.link) = (word, link);
                self.prefetch_step(guard, descent);
                true
            }
            None => {
                descent.found = Some(None);
                false
            }
        }
    }

    /// Prefetches what the next step of a search reads.
    #[inline(always)]
    fn prefetch_step(&self, guard: &Guard<'_, M>, descent: &Descent<'_, '_, K::Key>) {
        let (link, region) = (descent.link, self.pool.region());
        if link.kind() == LEAF {
            return K::prefetch(guard, link.offset());
        }
        let Some(kind) = Kind::of(link.kind()) else { return };
        let level = descent.base + link.skip().unwrap_or(0);
        let byte = K::byte(descent.key, level).unwrap_or(0);
        region.prefetch(link.offset() + Node::line_of(kind, byte));
        if matches!(kind, Kind::Twelve | Kind::Twenty) {
            (1..kind.lines()).for_each(|line| region.prefetch(link.offset() + 64 * line as u64));
        }
    }
}
