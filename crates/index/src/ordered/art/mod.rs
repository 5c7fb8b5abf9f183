//! Adaptive radix tree (ART); made durable by its medium, P-ART.
//!
//! Leis, Kemper, Neumann: *The Adaptive Radix Tree*, ICDE 2013 (the tree); Leis, Scheibner, Kemper,
//! Neumann: *The ART of Practical Synchronization*, DaMoN 2016 (readers without locks, writers with
//! a lock a node); Lee et al.: *RECIPE*, SOSP 2019, 6.4 (its conversion: changes of one link meet
//! Condition #1, changes of the structure Condition #3).
//!
//! # Picture
//! ```text
//!   root --link--> node, level 0: branches by byte 0 of the key
//!                    |-'a'--> leaf: the only key that begins with 'a'
//!                    |-'b'--> node, level 3: all keys below share bytes 1 and 2, its prefix
//!                    |          |-here--> leaf: the key that ends at byte 3
//!                    |          |-'x'--> ...
//! ```
//! * A node branches by the byte at its *level*, which never changes. It has the kinds 4, 12, 20,
//!   64 and 256, the number of its places for children, and one link more, `here`, for the key
//!   that ends at its level.
//! * A link is one word with the byte, the kind of the child, and how far the child's level lies
//!   below (see `link`). So a reader needs no header: it reads one line of a node of kind 4 or 256,
//!   and of kind 64 as a rule, which keeps its links by their bytes' hash (see `hashed`).
//!   A child's link is the only place that says that the child exists: no count, no key array.
//! * A node's *prefix* word holds the first five bytes between its parent's level and its own. It
//!   is a hint for writers. Readers skip the prefix and compare the whole key at the leaf.
//! * A leaf is a record (byte strings) or a pair of key and word (integers).
//! * Each node has at least two entries, children and `here` together.
//!
//! # Invariants
//! 1. A reader follows links only, and takes no lock. A node that was replaced keeps its content,
//!    so a reader in it sees the tree as it was when the node was replaced.
//! 2. A writer changes a node's links under the node's lock, and replaces the node under its lock
//!    and the lock of its parent, taken from the root downwards.
//! 3. A node is durable before its link is stored. Each change of the set of keys is one store of
//!    one link (or of one pair's word): Condition #1.
//! 4. A change of the structure is at most two steps. The first stores a link. The second stores
//!    the prefix of the node whose parent is another now. A crash between them leaves a prefix
//!    whose length differs from the distance to the parent, which the link says. A writer that
//!    meets it and gets the node's lock knows that no thread is between the two steps. It computes
//!    the prefix from a key below, and persists it: Condition #3.
//! 5. A node is marked *obsolete* before its link is swapped for the next node's, both under its
//!    lock. The mark carries the pool's generation. A writer that gets the lock of a marked node
//!    starts again at the root. If it comes to the marked node again, the thread that marked it has
//!    died between mark and swap, and the writer clears the mark (`obsolete`).
//! 6. All locks of a path are taken from the root downwards, three at most.
//! 7. Readers and writers persist a dirty link before they rely on it (see `link`). A pair's word
//!    is not durable while the link to the pair is dirty.
//! 8. In a node of kind 64, no place before a link, on the way on which a search looks for it, was
//!    never used. A place that was used never looks as if it were new, in no crash state.
//!
//! # Bad input
//! Keys of up to 64 KiB, so a path may have 65,536 nodes: no function recurses. Links are checked
//! before they are followed, and headers before a node is written to. Levels rise along a path, so
//! no damage makes a loop.
//!
//! # Files
//! What is stored: `node`, `hashed`, `root`. The tree below its operations: `tree` (links),
//! `obsolete` (locks), `prefix`, `find`, `many`, `locate`, `range`, `sample`, `trace`, `verify`.
//! Above it: `ops`, `change`, `build`, `split`, `reshape`, `stored`.

mod build;
mod change;
mod find;
mod floor;
mod hashed;
mod locate;
mod many;
mod node;
mod obsolete;
mod ops;
mod prefix;
mod range;
mod reshape;
mod root;
mod sample;
mod split;
mod stored;
mod trace;
mod tree;
mod verify;

pub use ops::Art;
