//! SPTree: an ordered index for pools that are slower than DRAM. This is its bottom layer, with its
//! own service; the layers in DRAM come above it.
//!
//! Chen: *Building High-Performance Key-Value Stores*, 4.4 (SPTree, made by the rules of Spot-on).
//!
//! # Picture
//! ```text
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
//! 8. Locks are taken from the left to the right, before those of the top layer.
//!
//! # What differs from the paper
//! * The writer brings the top layer in the pool up to date, after the split: a mapping costs two
//!   fences for some thirty inserts, and no queue is lost in a crash.
//! * Borders of byte strings are strings of their own (`border`), not keys.
//! * A merge marks the right node before the left one's end moves: writes that come over an old
//!   mapping are not lost with it.
//!
//! # Bad input
//! Keys of up to 64 KiB. No function recurses. Links, states, bitmaps with tags, and slots of byte
//! strings have checks; a range and an absent key are certain only if all of them fit.

mod border;
mod change;
mod content;
mod find;
mod head;
mod join;
mod layers;
mod lock;
mod many;
mod node;
mod ops;
mod range;
mod sample;
mod split;
mod stored;
mod trace;
mod tree;
mod verify;
mod word;

pub(super) use border::Borders;
pub use ops::SpTree;
