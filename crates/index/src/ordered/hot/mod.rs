//! Height-optimized trie (HOT); made durable by its medium, P-HOT.
//!
//! Binna, Zangerle, Pichl, Specht, Leis: *HOT: A Height Optimized Trie Index for Main-Memory
//! Database Systems*, SIGMOD 2018 (the tree, readers without locks, writers that copy nodes); Lee
//! et al.: *RECIPE*, SOSP 2019, 6.1 (its conversion: each change is one store, Condition #1).
//!
//! # Picture
//! ```text
//!        the forks of a node            positions   1  2  4
//!               bit 1                   entries     0  0  0  --link--> another node
//!             0/     \1                             0  1  0  --link--> leaf
//!         bit 2       bit 4                         1  0  0  --link--> leaf
//!        0/   \1     0/   \1                         1  0  1  --link--> another node
//! ```
//! * A binary trie asks at each *fork* for one bit of the key, and only for bits in which its keys
//!   differ. A *node* holds the forks of a piece of it, up to 31 of them, with up to 32 *entries*.
//!   So nodes are as full wherever keys differ, and the tree is low whatever the keys.
//! * A node is a list of *positions*, the bits that its forks ask for, and for each entry the bits
//!   of its path, 0 where the path does not ask. A search gathers the key's bits at the positions,
//!   and takes the last entry that has no bit besides (see `node`, `trie`).
//! * Each byte of a key has nine bits, the first of which says that it is there (see `bits`).
//! * A leaf is a record (byte strings) or a pair of key and word (integers). A search compares the
//!   whole key there.
//! * A node's *height* is one more than that of its highest child. The link to it says it. It is a
//!   hint: too low where a node came in between, too high where nodes went.
//!
//! # Changes
//! A new key is compared with a leaf: the first bit in which they differ is the position of a new
//! fork, and the nodes' first positions say which node gets it.
//! * A leaf in a node with nodes below becomes a node of two leaves: *push down*.
//! * Otherwise the node is replaced by one with the new fork. A full one is split, and its highest
//!   fork goes into the node above, which is replaced, too; or into a node in between, if that
//!   makes the tree no higher.
//! * A removal takes the link away and leaves the entry. When half of a node's entries have no
//!   link, it is replaced by a smaller one; when one link is left, that takes the node's place.
//!
//! # What differs from the papers
//! * The concurrent tree of the paper has no removal. Here an entry without a link is reused, or
//!   goes with the next change of its node. It says no key. So a key that a search leads there is
//!   compared with the nearest leaf: if they differ first at the fork that parts the two entries,
//!   the entry is the key's place.
//! * A writer locks the leaf's node, too, that it has compared a key with: without that leaf, other
//!   keys could come there, with which the comparison would have ended otherwise.
//! * An insert replaces twelve nodes at most. A writer holds no more locks than a thread can name.
//!
//! # Invariants
//! 1. A reader follows links only, and takes no lock. A node that was replaced keeps its content,
//!    so a reader in it sees the tree as it was when the node was replaced.
//! 2. A writer changes a node's links under the node's lock. It replaces nodes under their locks
//!    and that of the holder of the highest one's link. All locks are taken from the leaves up.
//! 3. A node is durable before its link is stored. Each change is one store of one link (or of one
//!    pair's word): Condition #1. So there is nothing to mend after a crash or a death.
//! 4. Of any two keys in the tree, the first bit in which they differ is that of the fork where
//!    their paths part. Positions ascend along each path, within nodes and from node to node.
//! 5. Nodes are marked *obsolete* before the link is swapped, all under their locks. A mark carries
//!    the pool's generation. A writer that gets the lock of a marked node starts again at the root.
//!    If it comes to the marked node again, the thread that marked it has died between mark and
//!    swap, and the writer clears the mark (see `tree`, `ordered/obsolete`).
//! 6. Readers and writers persist a dirty link, and a removal, before they rely on it (see
//!    `ordered/link`). A pair's word is not durable while the link to the pair is dirty.
//! 7. A node has two links at least, but for the moment between a removal and the end of its node,
//!    which a death or a crash makes longer. A writer that meets such a node ends it.
//!
//! # Bad input
//! Keys of up to 64 KiB, each of which begins the next, make paths of thousands of nodes: no
//! function recurses. Links are checked before they are followed; a node's content has a check,
//! which writers compare, and readers that find no key. Positions ascend along a path, so no damage
//! makes a loop. The key of a damaged record may be any. So none is compared with it, but with the
//! nearest sound one (see `sound`), and it ends no walk.
//!
//! # Files
//! What is stored: `bits`, `trie`, `node`, `root`. The tree below its operations: `tree` (locks),
//! `path`, `sound`, `find`, `many`, `range`, `sample`, `trace`, `verify`. Above it: `ops`,
//! `change`, `insert`, `replace`, `shrink`, `stored`.

mod bits;
mod change;
mod find;
mod insert;
mod many;
mod node;
mod ops;
mod path;
mod range;
mod replace;
mod root;
mod sample;
mod shrink;
mod sound;
mod stored;
mod trace;
mod tree;
mod trie;
mod verify;

pub use ops::Hot;
