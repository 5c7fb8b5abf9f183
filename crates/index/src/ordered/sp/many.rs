//! Reads of many keys, side by side.

use super::super::keys::OrderedKind;
use super::super::together::search_together;
use super::find::{Probe, Seen, Way};
use super::layers::At;
use super::node::Node;
use super::tree::Tree;
use terrace_medium::MappedMedium;
use terrace_pool::Guard;

/// A search in progress.
struct Search<'g, 'k, Key: ?Sized> {
    probe: Probe<'k, Key>,
    at: Place<'g>,
}

enum Place<'g> {
    /// To be searched; an Mnode led to it, or the top layer in the pool.
    Node(Node<'g>, Option<At>),
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
        let lower = self.pin_layers();
        let start = |key: &'k K::Key| {
            let probe = self.probe(key);
            let at = match self.way_to(guard, lower.as_ref(), &probe) {
                Ok(Way::From(node, at)) => {
                    self.prefetch_front(node);
                    Place::Node(node, at)
                }
                Ok(Way::Known(found)) => Place::End(found),
                Err(_) => Place::End(None),
            };
            Search { probe, at }
        };
        search_together(
            keys,
            start,
            |search| self.advance(guard, search),
            |nth, search| each(nth, if let Place::End(found) = search.at { found } else { None }),
        );
    }

    /// Takes one step of a search. Returns whether it goes on.
    fn advance<'g>(&'g self, guard: &Guard<'_, M>, search: &mut Search<'g, '_, K::Key>) -> bool {
        let Place::Node(node, at) = search.at else { return false };
        let seen = self.look_up(guard, (node, at.map_or(0, |at| at.superseded)), &search.probe);
        let is_old = |at: At| self.layers.as_ref().is_some_and(|layers| !layers.is_unchanged(&at));
        search.at = match seen {
            // What the layers said has changed.
            Ok(Seen::Elsewhere(_) | Seen::Nothing) if at.is_some_and(is_old) => {
                Place::End(self.search(guard, search.probe.key))
            }
            Ok(Seen::Elsewhere(next)) => {
                self.prefetch_front(next);
                Place::Node(next, None)
            }
            Ok(Seen::Found(slot, word)) => {
                self.persist_read(node, [slot]);
                Place::End(Some(word))
            }
            Ok(Seen::Nothing) => {
                self.persist_read(node, []);
                Place::End(None)
            }
            Err(_) => Place::End(None),
        };
        matches!(search.at, Place::Node(..))
    }
}
