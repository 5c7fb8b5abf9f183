//! Layers: how one begins, and how it ends.

use super::super::keys::OrderedKind;
use super::change::Tried;
use super::entry::{Entry, LONGER, Piece, SLICE};
use super::head::Shape;
use super::locate::Spot;
use super::node::{Content, Node};
use super::ops::Masstree;
use super::way::Layer;
use crate::Damage;
use terrace_medium::MappedMedium;
use terrace_pool::{Guard, Locked};

/// What came of the removal of a layer.
pub(super) enum Dropped<'g> {
    /// It has keys or layers, or is another thread's to remove, or has gone.
    No,
    /// It is gone; with the leaf above it, if that has no entry left.
    Gone(Option<Node<'g>>),
    /// A new layer has come between it and the leaf that its handle knows to be above it.
    Moved,
}

/// Slices that two keys share, and behind which both go on.
fn shared_slices(one: &[u8], other: &[u8]) -> usize {
    let bytes = one.iter().zip(other).take_while(|(one, other)| one == other).count();
    let shorter = one.len().min(other.len());
    (bytes / SLICE).min(shorter.saturating_sub(1) / SLICE)
}

impl<M: MappedMedium, K: OrderedKind> Masstree<M, K> {
    /// A new layer for a key and what is at its place now, a record or a layer: its root is a leaf
    /// with both. Durable, and not linked yet. `None`: the tree changes. Called under the lock of
    /// `holder`, the leaf that has the place.
    pub(super) fn part(
        &self,
        guard: &Guard<'_, M>,
        key: &K::Key,
        (spot, holder): (&Spot<'_>, Node<'_>),
        (there, word): (Entry, u64),
    ) -> Tried<u64> {
        let bytes = K::bytes(key);
        let Some((depth, own, others)) = self.fork(guard, &bytes, (spot, holder), there)? else {
            return Ok(None);
        };
        let moved = if there.is_layer() {
            debug_assert_eq!(others.tag, LONGER, "a layer's keys go on");
            Entry::layer(others.slice, there.offset())
        } else {
            Entry::record(others, there.offset())
        };
        let mut entries = [(own, Entry::record(own, word)), (others, moved)];
        entries.sort_unstable_by_key(|(piece, _)| *piece);
        let counted = holder.shape(self.tree.pool.medium()).counted();
        let content = Content {
            shape: Shape::new(0, depth, counted),
            next: Entry::NONE,
            high: 0,
            low: 0,
            last_entry: 0,
            entries: &entries.map(|(piece, entry)| (piece.slice, entry.0)),
        };
        let leaf = self.build(guard, &content)?;
        // PERSIST: the layer before the link to it. A crash in between leaves a block that the
        // collector reclaims.
        self.tree.pool.region().fence();
        Ok(Some(leaf))
    }

    /// The depth at which a key differs from what is at its place, and both pieces there. `None`:
    /// the way to a key there ends at a layer without keys, which the next try removes.
    fn fork(
        &self,
        guard: &Guard<'_, M>,
        bytes: &[u8],
        (spot, holder): (&Spot<'_>, Node<'_>),
        there: Entry,
    ) -> Result<Option<(usize, Piece, Piece)>, Damage> {
        let tree = &self.tree;
        let mut below = usize::MAX;
        let other = if there.is_layer() {
            let layer = tree.layer_below((holder, spot.layer.depth), spot.piece, there)?;
            below = layer.depth;
            let Some(other) = tree.key_near(guard, layer.root, bytes, &mut Vec::new())? else {
                return Ok(None);
            };
            other
        } else {
            let what = "a record that a new key must be compared with is unsound";
            K::key_of(guard, there.offset()).ok_or(Damage { offset: there.offset(), what })?
        };
        let depth = shared_slices(bytes, &other);
        let is_between = depth > spot.layer.depth && depth < below;
        match Piece::of(bytes, depth).zip(Piece::of(&other, depth)) {
            Some((own, others)) if own != others && is_between => Ok(Some((depth, own, others))),
            _ => Err(Damage { offset: there.offset(), what: "the keys of records do not fit their places" }),
        }
    }

    /// Removes a layer if it has no entries.
    pub(super) fn drop_layer<'g>(
        &'g self,
        guard: &'g Guard<'_, M>,
        layer: &Layer<'g>,
    ) -> Result<Dropped<'g>, Damage> {
        let (tree, medium) = (&self.tree, self.tree.pool.medium());
        let Some((leaf, piece, at)) = layer.above else { return Ok(Dropped::No) };
        let depth = layer.depth;
        let first = self.first_leaf(layer.root)?;
        let Some(leaves) = self.lock_empty(guard, first, depth)? else { return Ok(Dropped::No) };
        let Some(held) = self.lock_node(guard, leaf, (0, at), piece.slice)? else { return Ok(Dropped::No) };
        let permutation = held.node.permutation(medium);
        let Ok(position) = tree.position(held.node, permutation, piece) else { return Ok(Dropped::No) };
        let entry = held.node.entry(medium, permutation.slot(position));
        if !entry.is_layer() {
            return Ok(Dropped::No);
        }
        // The root may be another one by now, but of the same layer: another one that has come
        // since has another first leaf.
        let root = tree.layer_of(held.node, (piece.slice, entry), at)?;
        if root.shape(medium).depth() < depth {
            return Ok(Dropped::Moved);
        }
        if self.first_leaf(root)? != first {
            return Ok(Dropped::No);
        }
        self.freeze_all(&leaves);
        self.take(held.node, position);
        // PERSIST: the layer is unlinked before its memory is used again.
        tree.pool.region().fence();
        let is_empty = permutation.len() == 1;
        let above = held.node;
        held.lock.release();
        drop(leaves);
        self.retire_layer(guard, root)?;
        Ok(Dropped::Gone(is_empty.then_some(above)))
    }

    /// Freezes the empty leaves of a layer, two at most. Called under their locks.
    fn freeze_all(&self, leaves: &[(Node<'_>, Locked<'_, M>)]) {
        if let [(first, _), (second, _)] = leaves {
            self.join_locked(*first, *second, 0);
        }
        leaves.last().inspect(|(last, _)| self.freeze(*last));
    }

    /// The first leaf of a layer, frozen or not.
    fn first_leaf<'g>(&'g self, root: Node<'g>) -> Result<Node<'g>, Damage> {
        let (tree, medium) = (&self.tree, self.tree.pool.medium());
        let (mut node, mut level) = (root, root.shape(medium).level());
        while level > 0 {
            let child = tree.first_child(node, level)?;
            let child = child.ok_or_else(|| tree.damaged_node(node, "an interior node has no entry"))?;
            (node, level) = (child, level - 1);
        }
        match node.low(medium) {
            0 => Ok(node),
            // A caller that was told that the layer changes would come again for ever.
            _ => Err(tree.damaged_node(node, "the first leaf of a layer does not begin where that does")),
        }
    }

    /// Locks the leaves of a layer that are not frozen; `None` if there is a key. Of more than two,
    /// which deaths have left, those between the first and the last one are frozen.
    #[expect(clippy::type_complexity, reason = "nodes with their locks, if the layer is empty")]
    fn lock_empty<'g>(
        &'g self,
        guard: &'g Guard<'_, M>,
        first: Node<'g>,
        depth: usize,
    ) -> Result<Option<Vec<(Node<'g>, Locked<'g, M>)>>, Damage> {
        let medium = self.tree.pool.medium();
        let (mut leaves, mut leaf) = (Vec::new(), first);
        loop {
            let locked = self.lock(guard, leaf, (0, depth))?;
            let next = leaf.next(medium);
            if !leaf.state(medium).is_frozen() {
                if leaf.permutation(medium).len() > 0 {
                    return Ok(None);
                }
                if leaves.len() == 2
                    && let Some((middle, _locked)) = leaves.pop()
                {
                    self.join_locked(middle, leaf, 0);
                }
                leaves.push((leaf, locked));
            }
            if next.is_none() {
                return Ok(Some(leaves));
            }
            leaf = self.tree.right_of_locked(leaf, 0)?;
        }
    }

    /// Freezes a node, durably. Called under its lock.
    pub(super) fn freeze(&self, node: Node<'_>) {
        let medium = self.tree.pool.medium();
        node.set_state(medium, node.state(medium).frozen());
        // PERSIST: the node before the links go over it. A crash in between leaves an empty node
        // that leads on.
        self.tree.pool.region().persist(node.head());
    }

    /// Retires all nodes of a layer that was unlinked.
    fn retire_layer(&self, guard: &Guard<'_, M>, root: Node<'_>) -> Result<(), Damage> {
        let (tree, medium) = (&self.tree, self.tree.pool.medium());
        let (mut level, depth) = (root.shape(medium).level(), root.shape(medium).depth());
        let mut firsts = vec![root];
        while level > 0 {
            let first = firsts[firsts.len() - 1];
            let locked = self.lock(guard, first, (level, depth))?;
            let Some(child) = tree.first_child(first, level)? else { break };
            firsts.push(child);
            locked.release();
            level -= 1;
        }
        // From the leaves up: a reader that is led down meets nodes that lead it on.
        for (level, first) in (level..).zip(firsts.into_iter().rev()) {
            self.retire_level(guard, first, (level, depth))?;
        }
        Ok(())
    }

    /// Retires the nodes of a level of a layer that was unlinked. Interior nodes are frozen, so a
    /// thread that comes to add an entry finds that there is no layer, and each gives its range to
    /// the next one, as in a join, for readers that are in it still. Those that are frozen already
    /// and linked still lead such a reader on to that one.
    fn retire_level(&self, guard: &Guard<'_, M>, first: Node<'_>, at: (usize, usize)) -> Result<(), Damage> {
        let (tree, medium) = (&self.tree, self.tree.pool.medium());
        let (mut node, mut locked) = (first, self.lock(guard, first, at)?);
        loop {
            let (mut last, mut next) = (node, None);
            while next.is_none() && !last.next(medium).is_none() {
                last = tree.right_of_locked(last, at.0)?;
                let lock = self.lock(guard, last, at)?;
                match last.state(medium).is_frozen() {
                    true => self.retire(guard, last),
                    false => next = Some((last, lock)),
                }
            }
            if at.0 > 0 && !node.state(medium).is_frozen() {
                let heir = next.as_ref().map(|(next, _)| *next);
                let joining = Entry::node(0, at.0, node.offset(tree.pool.region()));
                heir.inspect(|heir| heir.set_joining(medium, joining));
                self.freeze(node);
                heir.inspect(|heir| heir.set_low(medium, node.low(medium)));
                heir.inspect(|heir| heir.set_joining(medium, Entry::NONE));
            }
            locked.release();
            self.retire(guard, node);
            match next {
                Some(next) => (node, locked) = next,
                None => return Ok(()),
            }
        }
    }
}
