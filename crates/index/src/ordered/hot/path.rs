//! The way of a writer: the nodes on the way to a key, and what a new key is compared with.

use super::super::keys::OrderedKind;
use super::super::link::{LEAF, Link};
use super::super::links::load;
use super::bits::first_difference;
use super::node::Node;
use super::tree::Tree;
use super::trie::nearest;
use crate::Damage;
use terrace_medium::{MappedMedium, Word};
use terrace_pool::Guard;

/// Nodes of a usual path.
const USUAL: usize = 16;

/// A node on a path.
#[derive(Clone, Copy)]
pub(super) struct Step<'g> {
    /// The place of the link to the node, and that link.
    pub(super) word: &'g Word,
    pub(super) link: Link,
    pub(super) node: Node<'g>,
    /// The node's entry where the path goes on.
    pub(super) entry: usize,
}

/// The nodes on the way to a key, and where it ends.
pub(super) struct Path<'g> {
    pub(super) steps: Vec<Step<'g>>,
    /// The place of the last link, and that link: a leaf's, or none.
    pub(super) word: &'g Word,
    pub(super) link: Link,
}

impl<'g> Path<'g> {
    pub(super) fn last(&self) -> Option<&Step<'g>> {
        self.steps.last()
    }

    /// The leaf at its end.
    pub(super) fn end(&self) -> Witness<'g> {
        Witness { node: self.last().map(|step| step.node), word: self.word, link: self.link }
    }

    /// The depth of the node that gets a fork at `position`: the last one whose first position is
    /// above it, or the first node.
    pub(super) fn depth_of(&self, position: u32) -> usize {
        self.steps.iter().rposition(|step| step.node.first() < position).unwrap_or(0)
    }
}

/// A leaf that a new key is compared with, while the lock of its holder keeps it there.
#[derive(Clone, Copy)]
pub(super) struct Witness<'g> {
    /// `None`: the root.
    pub(super) node: Option<Node<'g>>,
    pub(super) word: &'g Word,
    pub(super) link: Link,
}

/// What is found beside an entry without a link.
pub(super) struct Beside<'g> {
    /// The way to it. If no leaf was found, the last node has no link at all, as a thread has left
    /// it or is about to remove it; or a link has gone meanwhile.
    pub(super) path: Path<'g>,
    /// A leaf, and the position of the fork that parts it from the entry.
    pub(super) leaf: Option<(Witness<'g>, u32)>,
}

impl<M: MappedMedium, K: OrderedKind> Tree<M, K> {
    /// The way to a key.
    pub(super) fn locate<'g>(&'g self, guard: &'g Guard<'_, M>, key: &[u8]) -> Result<Path<'g>, Damage> {
        let (region, word, mut least) = (self.pool.region(), self.root_link(), 0);
        let mut path = Path { steps: Vec::with_capacity(USUAL), word, link: self.sound_link(word)? };
        while path.link.is_node() {
            self.prefetch_node(path.link);
            let (word, link) = (path.word, path.link);
            let node = self.node_behind(guard, word, link, least)?;
            least = node.first() + 1;
            let entry = node.find(key);
            path.steps.push(Step { word, link, node, entry });
            path.word = node.link(region, entry);
            path.link = self.sound_link(path.word)?;
        }
        Ok(path)
    }

    /// The link in a word, durable and clean, or none; an error if it is neither. Damage may have
    /// made it dirty on a medium where none ever is.
    pub(super) fn sound_link(&self, word: &Word) -> Result<Link, Damage> {
        let link = load(self.pool.medium(), word);
        if link.is_whole() { Ok(self.followed(word, link)) } else { Err(self.damaged_link(word)) }
    }

    /// Checks all nodes of a path: a key is absent only if they led to its place.
    pub(super) fn check_path(&self, path: &Path<'_>) -> Result<(), Damage> {
        path.steps.iter().try_for_each(|step| self.check_node(step.node))
    }

    /// The first position in which a leaf's key differs from `key`; `None` if it is the key's leaf.
    pub(super) fn difference(
        &self,
        guard: &Guard<'_, M>,
        key: &[u8],
        leaf: Link,
    ) -> Result<Option<u32>, Damage> {
        let unsound = || unsound_beside(leaf);
        if !guard.pool().region().holds(leaf.offset(), 8) {
            return Err(unsound());
        }
        let there = K::key_of(guard, leaf.offset()).ok_or_else(unsound)?;
        let difference = first_difference(key, &there);
        if difference.is_some() && !K::is_sound(guard, leaf.offset()) {
            return Err(unsound());
        }
        Ok(difference)
    }

    /// The leaf nearest to the end of a path that has no link there, among the last node's other
    /// entries. All entries that are passed over have no link, durably: the new key relies on it.
    pub(super) fn beside<'g>(
        &'g self,
        guard: &'g Guard<'_, M>,
        path: &Path<'g>,
    ) -> Result<Beside<'g>, Damage> {
        let mut path = Path { steps: path.steps.clone(), ..*path };
        let Some(last) = path.steps.last_mut() else { return Ok(Beside { path, leaf: None }) };
        let Some((position, entry)) = self.nearest_link(last.node, last.entry)? else {
            return Ok(Beside { path, leaf: None });
        };
        last.entry = entry;
        while let Some(step) = path.steps.last().copied() {
            let word = step.node.link(self.pool.region(), step.entry);
            let link = self.sound_link(word)?;
            if link.kind() == LEAF {
                let witness = Witness { node: Some(step.node), word, link };
                return Ok(Beside { path, leaf: Some((witness, position)) });
            }
            if link.is_empty() {
                break;
            }
            let node = self.whole_node_behind(guard, word, link, step.node.first() + 1)?;
            let entry = self.first_link(node)?.unwrap_or(0);
            path.steps.push(Step { word, link, node, entry });
        }
        Ok(Beside { path, leaf: None })
    }

    /// The nearest entry with a link, behind the position of the fork that parts it from this one.
    pub(super) fn nearest_link(&self, node: Node<'_>, entry: usize) -> Result<Option<(u32, usize)>, Damage> {
        let (region, mut damage) = (self.pool.region(), None);
        let is_there = |entry: usize| match self.sound_link(node.link(region, entry)) {
            Ok(link) => !link.is_empty(),
            Err(found) => {
                damage = Some(found);
                true
            }
        };
        let found = nearest(&node.bits(), entry, is_there);
        let found = found.map(|(fork, side)| (node.position_of(fork), side.start));
        damage.map_or(Ok(found), Err)
    }

    /// The leaf nearest to an entry without a link, in the same node or below it; `None` if there
    /// is none. It reads each link once: so it passes over no key that is there throughout.
    pub(super) fn nearest_leaf(
        &self,
        guard: &Guard<'_, M>,
        node: Node<'_>,
        entry: usize,
    ) -> Result<Option<Link>, Damage> {
        let mut first = Ok(None);
        nearest(&node.bits(), entry, |nth| {
            let is_next = matches!(first, Ok(None));
            if is_next {
                first = self.first_leaf(guard, node, nth);
            }
            is_next && !matches!(first, Ok(None))
        });
        first
    }

    /// The first leaf behind an entry of a node.
    fn first_leaf(&self, guard: &Guard<'_, M>, node: Node<'_>, entry: usize) -> Result<Option<Link>, Damage> {
        let mut stack = vec![(node, entry..entry + 1)];
        while let Some((node, entries)) = stack.last_mut() {
            let Some(entry) = entries.next() else {
                stack.pop();
                continue;
            };
            let (word, least) = (node.link(self.pool.region(), entry), node.first() + 1);
            let link = self.sound_link(word)?;
            if link.kind() == LEAF {
                return Ok(Some(link));
            }
            if link.is_node() {
                let below = self.whole_node_behind(guard, word, link, least)?;
                stack.push((below, 0..below.len()));
            }
        }
        Ok(None)
    }

    /// The first entry of a node with a link.
    fn first_link(&self, node: Node<'_>) -> Result<Option<usize>, Damage> {
        for entry in 0..node.len() {
            if !self.sound_link(node.link(self.pool.region(), entry))?.is_empty() {
                return Ok(Some(entry));
            }
        }
        Ok(None)
    }
}

/// The damage of a leaf that a key must be compared with.
pub(super) fn unsound_beside(leaf: Link) -> Damage {
    Damage { offset: leaf.offset(), what: "a record beside the key's place is unsound" }
}
