//! The nearest sound leaf: what a key is compared with where a record is damaged.
//!
//! A damaged record says nothing of its key. Its place does: all leaves behind a fork have the same
//! bits above it. So a key that differs from a sound leaf above the fork that parts the two leaves
//! differs from the damaged one's key at the same bit. Where it differs from the damaged one's key
//! only below that fork, nothing can be said.

use super::super::keys::OrderedKind;
use super::super::link::{LEAF, Link};
use super::node::Node;
use super::path::{Path, Step, Witness, unsound_beside};
use super::tree::Tree;
use super::trie::nearest;
use crate::Damage;
use std::ops::Range;
use terrace_medium::MappedMedium;
use terrace_pool::Guard;

/// The sound leaf nearest to the end of a path.
pub(super) struct Sound<'g> {
    /// The way to it.
    pub(super) path: Path<'g>,
    pub(super) witness: Witness<'g>,
    /// The position of the fork that parts it from the end of the path, and the depth of its node.
    pub(super) fork: u32,
    pub(super) depth: usize,
}

/// A node with the entries that a search has yet to look at.
type Pending<'g> = (Step<'g>, Range<usize>);

impl<M: MappedMedium, K: OrderedKind> Tree<M, K> {
    /// The sound leaf nearest to the end of a path whose nodes were checked, besides that end. All
    /// leaves on the path's side of the fork between them are unsound.
    pub(super) fn sound_beside<'g>(&'g self, guard: &'g Guard<'_, M>, path: &Path<'g>) -> Option<Sound<'g>> {
        for (depth, step) in path.steps.iter().enumerate().rev() {
            let mut found = None;
            let fork = nearest(&step.node.bits(), step.entry, |entry| {
                found = found.take().or_else(|| self.sound_leaf_behind(guard, *step, entry));
                found.is_some()
            });
            if let (Some((fork, _)), Some((witness, below))) = (fork, found) {
                let steps = path.steps[..depth].iter().copied().chain(below).collect();
                let fork = step.node.position_of(fork);
                let path = Path { steps, word: witness.word, link: witness.link };
                return Some(Sound { path, witness, fork, depth });
            }
        }
        None
    }

    /// The first sound leaf behind an entry of a step's node, and the way from there.
    fn sound_leaf_behind<'g>(
        &'g self,
        guard: &'g Guard<'_, M>,
        from: Step<'g>,
        entry: usize,
    ) -> Option<(Witness<'g>, Vec<Step<'g>>)> {
        let mut stack: Vec<Pending<'g>> = vec![(from, entry..entry + 1)];
        while let Some((step, entries)) = stack.last_mut() {
            let Some(entry) = entries.next() else {
                stack.pop();
                continue;
            };
            step.entry = entry;
            let (node, word) = (step.node, step.node.link(self.pool.region(), entry));
            // What is damaged is passed over.
            let Ok(link) = self.sound_link(word) else { continue };
            if link.kind() == LEAF && self.is_sound_leaf(guard, link) {
                let witness = Witness { node: Some(node), word, link };
                return Some((witness, stack.into_iter().map(|(step, _)| step).collect()));
            }
            if link.is_node()
                && let Ok(node) = self.whole_node_behind(guard, word, link, node.first() + 1)
            {
                stack.push((Step { word, link, node, entry: 0 }, 0..node.len()));
            }
        }
        None
    }

    /// Whether what a leaf says of its key is true.
    pub(super) fn is_sound_leaf(&self, guard: &Guard<'_, M>, leaf: Link) -> bool {
        self.pool.region().holds(leaf.offset(), 8) && K::is_sound(guard, leaf.offset())
    }

    /// The position in which `key` differs from the true key of the unsound leaf at the end of its
    /// path, and a sound leaf that differs there, too. An error if the two may be the same.
    pub(super) fn difference_past<'g>(
        &'g self,
        guard: &'g Guard<'_, M>,
        key: &[u8],
        path: &Path<'g>,
    ) -> Result<(Witness<'g>, u32), Damage> {
        self.check_path(path)?;
        let unsound = || unsound_beside(path.link);
        let Sound { witness, fork, .. } = self.sound_beside(guard, path).ok_or_else(unsound)?;
        let position = self.difference(guard, key, witness.link)?;
        position.filter(|position| *position < fork).map(|position| (witness, position)).ok_or_else(unsound)
    }

    /// Whether a key that is not there is known not to be that of the unsound leaf on its way.
    pub(super) fn is_apart(&self, guard: &Guard<'_, M>, key: &[u8], leaf: Link) -> bool {
        let is_there = |path: &Path<'_>| path.link == leaf;
        let path = self.locate(guard, key).ok().filter(is_there);
        path.is_some_and(|path| self.difference_past(guard, key, &path).is_ok())
    }
}

impl Node<'_> {
    /// The position whose bit has this number, of the bits of entries.
    pub(super) fn position_of(self, bit: u32) -> u32 {
        let positions = self.positions();
        let nth = (positions.len() - 1).checked_sub(bit.ilog2() as usize);
        nth.and_then(|nth| positions.get(nth)).copied().unwrap_or(0)
    }
}
