//! Reads of many keys, side by side.

use super::super::keys::{KeyBytes, OrderedKind};
use super::super::link::{EMPTY, LEAF, Link};
use super::super::links::load;
use super::super::together::search_together;
use super::find::Ended;
use super::tree::Tree;
use terrace_medium::{MappedMedium, Word};
use terrace_pool::Guard;

/// A search in progress.
struct Descent<'g, 'k, Key: ?Sized> {
    key: &'k Key,
    bytes: KeyBytes<'k>,
    word: &'g Word,
    /// The link in the word, once it was loaded. Its line, and then what it leads to, is fetched
    /// while the other searches take their steps.
    link: Option<Link>,
    least: u32,
    /// The answer once the search has ended.
    found: Option<Option<u64>>,
}

impl<M: MappedMedium, K: OrderedKind> Tree<M, K> {
    /// See [`PointIndex::get_many`](crate::PointIndex::get_many).
    pub(super) fn search_many<'g, 'k>(
        &'g self,
        guard: &'g Guard<'_, M>,
        keys: impl IntoIterator<Item = &'k K::Key>,
        mut each: impl FnMut(usize, Option<u64>),
    ) where
        K::Key: 'k,
    {
        let start = |key| {
            let (bytes, word) = (K::bytes(key), self.root_link());
            Descent { key, bytes, word, link: None, least: 0, found: None }
        };
        let step = |descent: &mut Descent<'g, 'k, K::Key>| self.step(guard, descent);
        search_together(keys, start, step, |nth, descent| each(nth, descent.found.flatten()));
    }

    /// Loads the link of a search, or reads what it leads to. Returns whether the search goes on.
    #[inline(always)]
    fn step<'g>(&'g self, guard: &'g Guard<'_, M>, descent: &mut Descent<'g, '_, K::Key>) -> bool {
        if descent.found.is_some() {
            return false;
        }
        let Some(link) = descent.link.take() else {
            let link = self.followed(descent.word, load(self.pool.medium(), descent.word));
            match link.kind() {
                EMPTY => descent.found = Some(None),
                LEAF => K::prefetch(guard, link.offset()),
                _ => self.prefetch_front(link),
            }
            descent.link = Some(link);
            return descent.found.is_none();
        };
        if link.kind() == LEAF {
            descent.found = Some(match self.read_leaf(guard, descent.word, link, descent.key) {
                Ended::Found(word) => Some(word),
                _ => None,
            });
            return false;
        }
        let Ok(node) = self.node_behind(guard, descent.word, link, descent.least) else {
            descent.found = Some(None);
            return false;
        };
        descent.word = node.link(self.pool.region(), node.find(&descent.bytes));
        descent.least = node.first() + 1;
        self.pool.region().prefetch(self.pool.region().offset_of(descent.word).raw());
        true
    }

    /// Prefetches the lines of a node in front of its links.
    #[inline(always)]
    fn prefetch_front(&self, link: Link) {
        self.pool.region().prefetch(link.offset());
        self.pool.region().prefetch(link.offset() + 64);
    }
}
