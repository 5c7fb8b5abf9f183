//! New nodes, filled before any thread can see them.

use super::super::keys::OrderedKind;
use super::super::link::Link;
use super::hashed;
use super::node::*;
use super::ops::Art;
use terrace_medium::{LINE, MappedMedium};
use terrace_pool::{Fresh, Guard, PoolFull};

/// The content of a new node.
pub(super) struct Content<'c> {
    pub(super) level: usize,
    pub(super) prefix: Prefix,
    pub(super) counted: u16,
    /// The key that ends at the node's level.
    pub(super) here: Link,
    pub(super) children: &'c [Link],
}

impl<M: MappedMedium, K: OrderedKind> Art<M, K> {
    /// A new node of a kind, durable at the next fence.
    pub(super) fn build<'g>(
        &self,
        guard: &'g Guard<'_, M>,
        kind: Kind,
        content: &Content<'_>,
    ) -> Result<Fresh<'g, M>, PoolFull> {
        assert!(content.children.len() <= kind.most(), "{} children of {kind:?}", content.children.len());
        let fresh = guard.alloc(kind.bytes())?;
        match kind {
            Kind::Four => fresh.stream_lines(0, &image::<1>(kind, content, self.tree.mark)),
            Kind::Twelve => fresh.stream_lines(0, &image::<2>(kind, content, self.tree.mark)),
            Kind::Twenty => fresh.stream_lines(0, &image::<3>(kind, content, self.tree.mark)),
            Kind::Hashed => fresh.stream_lines(0, &image::<9>(kind, content, self.tree.mark)),
            Kind::Full => fresh.stream_lines(0, &image::<33>(kind, content, self.tree.mark)),
        }
        self.count_node(guard, kind, 1);
        Ok(fresh)
    }

    /// Counts a node that was built or retired, for statistics.
    pub(super) fn count_node(&self, guard: &Guard<'_, M>, kind: Kind, by: i64) {
        self.tree.count().add_figure(guard.slot_index(), kind as usize, by);
    }

    /// Retires a node that was unlinked.
    pub(super) fn retire_node(&self, guard: &Guard<'_, M>, node: Node<'_>) {
        self.count_node(guard, node.kind(), -1);
        guard.retire(node.offset(self.tree.pool.region()), node.kind().bytes());
    }
}

fn image<const N: usize>(kind: Kind, content: &Content<'_>, mark: u16) -> [[u64; LINE / 8]; N] {
    let mut lines = [[0; LINE / 8]; N];
    let words = lines.as_flattened_mut();
    words[SHAPE] = Shape::new(kind, content.level, content.counted).0;
    words[PREFIX] = content.prefix.0;
    words[HERE] = content.here.0;
    for (nth, &child) in content.children.iter().enumerate() {
        match kind {
            Kind::Four | Kind::Twelve | Kind::Twenty => words[SMALL_LINKS + nth] = child.0,
            Kind::Hashed => hashed::put(words, child),
            Kind::Full => words[LARGE_LINKS + usize::from(child.byte())] = child.0,
        }
    }
    if kind.has_count() {
        let count = content.children.len() + usize::from(!content.here.is_empty());
        words[COUNT] = u64::from(mark) << MARK_AT | count as u64;
    }
    lines
}
