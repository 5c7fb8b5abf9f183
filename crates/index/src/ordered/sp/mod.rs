//! SPTree: an ordered index for pools that are slower than DRAM. Its bottom layer serves alone: in
//! a shared pool, after a crash, and where DRAM would not help. Layers in DRAM come above it.
//!
//! Chen: *Building High-Performance Key-Value Stores*, 4.4 (SPTree, made by the rules of Spot-on).
//!
//! # Picture
//! ```text
//!   DRAM          | a -> Mnode | m -> Mnode | t -> Mnode |      see `layers`
//!                     filter, buffer   ...
//!   -------------------------------------------------------- the pool
//!   log           | put k | remove f | ...                      see `log`
//!   top layer     | m -> node | t -> node |         a Masstree in the pool: low borders
//!                       |           |
//!   bottom     first -> node -----> node            each has the next one
//!              | a f |  | m q o |   | t |           keys in no order
//! ```
//! * A node (*Bnode*) has 64 slots, a *tag* of a byte of each slot's key, and a bitmap of the slots
//!   that are used. Integers lie beside their word; a byte string's slot is its record and 15 bits
//!   of its key's hash, of which the tag is a part.
//! * The range of a node begins with its *low* border and ends with the *high* one, which is the
//!   next node's low border.
//! * An insert writes the pair and its tag, then the bit: two fences, for any number of pairs. An
//!   update is one store of the word, a removal one of the bitmap.
//! * With layers in DRAM, a put goes to its node's buffer and to the log: one line and one fence.
//!   Fourteen of them are merged at once (`buffered`, `merge`); the next open replays the log
//!   (`replay`).
//! * The top layer has the low border of each node but the first. It is a hint: what it lacks is
//!   found over the left neighbour, and a writer that came that way adds it.
//!
//! # Invariants
//! 1. A reader takes no lock and never waits. It reads a node anew if a key came or went meanwhile
//!    (the state's counter).
//! 2. A pair and its tag are durable before its bit is stored; a node and its border before a link
//!    to it. A thread that finds a node's lock held or unfenced persists what it has read there.
//! 3. Lock, state, bitmap, next node and both borders lie in one line, so a crash keeps a prefix of
//!    the stores to them.
//! 4. A node that is neither *changing* nor *frozen* has exactly the keys of its range. In others
//!    keys behind the end count for nothing.
//! 5. A split stores, in this order: the mark *changing*, the next node, the high border (the
//!    border first if there was no next node), the bitmap, and clears the mark. The thread that
//!    gets the lock of a marked node knows that its holder has died, and goes on.
//! 6. A join gives the right one of two nodes to the left one, in the steps of `join`. A frozen
//!    node's keys are its own until the left node's range has grown over it.
//! 7. A mapping is removed durably before its node's memory is retired, and added under the node's
//!    lock, so none leads to memory that is used again.
//! 8. Locks are taken from the left to the right, that of an Mnode before that of its node, and
//!    both before those of the top layer.
//! 9. A node whose Mnode is locked does not change but by that thread, and its buffer neither.
//! 10. A buffered change is durable in the log before a reader sees it. Its place there is written
//!     again after its node has the change, durably. Before a node is split, joined or traced, it
//!     gets what is buffered.
//! 11. A node never has more keys and buffered ones than slots, so a merge takes no memory.
//!
//! # What differs from the paper
//! * The writer brings the top layer in the pool up to date, after the split: a mapping costs two
//!   fences for some thirty inserts, and no queue is lost in a crash.
//! * Borders of byte strings are strings of their own (`border`), not keys.
//! * A join marks the right node before the left one's end moves: writes that come over an old
//!   mapping are not lost with it.
//! * The order of a node's keys is not kept in the pool: no range writes there.
//! * The log has one place a number and no ends. A removal is logged and buffered as a put is.
//! * A merge makes all buffered changes visible by one store of the bitmap.
//!
//! # Bad input
//! Keys of up to 64 KiB. No function recurses. Links, states, bitmaps with tags, and slots of byte
//! strings have checks; a range and an absent key are certain only if all of them fit.

mod border;
mod buffered;
mod change;
mod content;
mod find;
mod head;
mod join;
mod layers;
mod lock;
mod log;
mod many;
mod merge;
mod node;
mod ops;
mod range;
mod replay;
mod sample;
mod split;
mod stored;
mod trace;
mod tree;
mod verify;
mod word;

pub(super) use border::{Borders, IntegerLows};
pub use ops::SpTree;
