//! Reads of many keys, side by side.

use super::super::keys::OrderedKind;
use super::super::together::search_together;
use super::find::{Probe, Seen, Way};
use super::node::Node;
use super::tree::Tree;
use terrace_medium::MappedMedium;
use terrace_pool::Guard;

/// A search in progress.
struct Search<'g, 'k, Key: ?Sized> {
    probe: Probe<'k, Key>,
    at: At<'g>,
}

enum At<'g> {
    Node(Node<'g>),
    End(Option<u64>),
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
        let start = |key: &'k K::Key| {
            let probe = self.probe(key);
            let Ok(Way::From(node, _)) = self.way_to(guard, &probe) else {
                return Search { probe, at: At::End(None) };
            };
            self.prefetch_front(node);
            Search { probe, at: At::Node(node) }
        };
        search_together(
            keys,
            start,
            |search| self.advance(guard, search),
            |nth, search| each(nth, if let At::End(found) = search.at { found } else { None }),
        );
    }

    /// Takes one step of a search. Returns whether it goes on.
    fn advance<'g>(&'g self, guard: &Guard<'_, M>, search: &mut Search<'g, '_, K::Key>) -> bool {
        let At::Node(node) = search.at else { return false };
        search.at = match self.look_up(guard, node, &search.probe) {
            Ok(Seen::Elsewhere(next)) => {
                self.prefetch_front(next);
                At::Node(next)
            }
            Ok(Seen::Found(slot, word)) => {
                self.persist_read(node, [slot]);
                At::End(Some(word))
            }
            Ok(Seen::Nothing) => {
                self.persist_read(node, []);
                At::End(None)
            }
            Err(_) => At::End(None),
        };
        matches!(search.at, At::Node(_))
    }
}
