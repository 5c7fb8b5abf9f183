//! Masstree: a trie of B-link trees; made durable by its medium, P-Masstree.
//!
//! Mao, Kohler, Morris: *Cache Craftiness for Fast Multicore Key-Value Storage*, EuroSys 2012 (the
//! tree); Lee et al.: *RECIPE*, SOSP 2019, 3.4.5 of Lee's thesis (its conversion: changes of one
//! node meet Condition #1, changes of the structure Condition #3).
//!
//! # Picture
//! ```text
//!   layer 0, by bytes 0 to 7 of the key
//!     root --> interior | 0 | m |            entries: the lowest slice of a child, and the child
//!                         |    \
//!                      leaf --> leaf         each node has the next one of its level
//!                      | a | f |  | m | t |
//!                            |
//!                            layer 1, by bytes 8 to 15 of the keys whose first 8 bytes are `f`
//! ```
//! * A *slice* is eight bytes of a key, as a big-endian number. A *layer* is a B-link tree of the
//!   slices at one depth. Its keys share all bytes before that. Integers have one layer.
//! * A node has 15 slots of a slice and a word. Its *permutation*, one word, says which of them are
//!   used and in which order, so one store adds or removes an entry. Interior nodes have the form
//!   of leaves, as RECIPE demands.
//! * A leaf entry is a record whose key ends in the slice, a record whose key goes on, or a layer.
//!   The first two keys that share a slice and go on make a layer, at the depth of the slice in
//!   which they differ. (Masstree makes a layer for each slice between, which costs a node for
//!   eight bytes that two keys share.)
//! * A record has its whole key, so there are no suffixes in leaves. Integers have their word
//!   there.
//!
//! # Invariants
//! 1. A reader takes no lock, and never starts again: it reads a node anew if a slot of it was
//!    reused meanwhile (the state's counter), and goes to the next node if the key is not below the
//!    *high* slice, or if the node is *frozen*.
//! 2. Only high slices bind. Entries of interior nodes are hints: a wrong one costs steps to the
//!    right. A node's *low* slice is at most that of any key that is led to it.
//! 3. Lock, state, permutation, next node and both slices lie in one line, so a crash keeps a
//!    prefix of the stores to them.
//! 4. An entry is durable before the permutation that has it, and a node before a link to it. The
//!    thread that finds a node's lock held or unfenced persists what it has read there before it
//!    answers, or goes on from there to write.
//! 5. A split stores, in this order: the mark *splitting*, the next node and the high slice (the
//!    high slice first if there was no next node, for then it did not bind), the permutation
//!    without the moved half, and clears the mark. A writer that gets the lock of a marked node
//!    knows that its holder has died. It completes the split, or undoes it (`mend`): Condition #3.
//! 6. The parent's entry comes after that, by a step of its own. A writer that had to go to the
//!    right makes it.
//! 7. A node that has few entries left gives them and its range to the next one, if that has room:
//!    that one notes where they come from (*joining*), gets copies, the node is frozen for good,
//!    and the other's low slice comes down. Until the node is frozen the copies, below the low
//!    slice, are nobody's, and a writer that finds the mark of a dead thread removes them. Parents'
//!    entries, then the link from the left go over the frozen node, then it is retired. The first
//!    node of a level stays.
//! 8. A layer without keys has two empty leaves at most. They are frozen, then the layer's entry is
//!    removed: by the thread that took the last key, wherever the layer lies by then; or, if that
//!    has died, by a writer that looks for a key to compare its own with, and finds none behind it.
//! 9. Locks are taken from the left to the right, from the leaves up, and from a layer to the one
//!    above: four at most.
//!
//! # Bad input
//! Keys of up to 64 KiB. No function recurses. Links are checked before they are followed, shapes
//! before a node is written to. A node that begins behind the key that is led to it is damaged;
//! along a level the high slices rise, so no damage makes a loop.
//!
//! # Files
//! What is stored: `entry`, `permutation`, `head`, `node`. Reads: `tree`, `find`, `many`, `range`,
//! `frame`, `way` (layers), `sample`. Writes: `locate` (locks), `change`, `insert`, `split`,
//! `post`, `layer`, `remove`, `sweep`. The rest: `ops`, `stored`, `trace`, `verify`.

mod change;
mod entry;
mod find;
mod floor;
mod frame;
mod head;
mod insert;
mod layer;
mod locate;
mod many;
mod node;
mod ops;
mod permutation;
mod post;
mod range;
mod remove;
mod sample;
mod split;
mod stored;
mod sweep;
mod trace;
mod tree;
mod verify;
mod way;

pub use ops::Masstree;

#[cfg(test)]
#[path = "tests/cut_off.rs"]
mod tests;

#[cfg(test)]
#[path = "tests/held_up.rs"]
mod held_up;
