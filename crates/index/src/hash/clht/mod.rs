//! Cache-line hash table (CLHT); made durable by its medium, P-CLHT.
//!
//! David, Guerraoui, Trigonakis: *Asynchronized Concurrency*, ASPLOS 2015 (the table); Lee et al.:
//! *RECIPE*, SOSP 2019 (its conversion: Condition #1, every change becomes visible by one atomic
//! store, so a write-back and a fence after that store suffice).
//!
//! # Picture
//! ```text
//!   root (2 lines) --current--> table: 2^n buckets of one line, in the order of the keys' hashes,
//!                               then a header line
//!                  --next-----> the table that a resize is filling, or null
//!
//!   bucket of u64 keys    | lock | key0 | key1 | key2 | word0 | word1 | word2 | link |
//!   bucket of byte keys   | lock | slot0 | slot1 | slot2 | slot3 | slot4 | slot5 | link |
//!                         slot: [63:49] 15 bits of the key's hash  [48:41] check
//!                               [40:0] the record's offset / 8; 0 = empty
//!   link: [63:42] version  [41] group moved  [40:38] which pairs are valid
//!         [37:0] next bucket's offset / 64
//! ```
//!
//! # What differs from the papers
//! * **Any key, 0 included.** The published table marks an empty slot by key 0. Here three bits of
//!   the link say which pairs are valid, and one store of the link publishes or removes a pair. The
//!   link's version increases at each publication. So a reader that loads link, key, word and the
//!   same link again has an atomic snapshot, whatever was removed and reused meanwhile.
//! * **One write-back and one fence a change.** Pair and link share a line, and a line survives a
//!   crash as a prefix of its stores. So one write-back after the last store covers all of them, in
//!   this order: word, key, link.
//! * **Byte strings.** The word is the offset of a record that contains the key, so a slot is a
//!   single word and a bucket has six. 15 bits of hash beside the offset decide nearly every
//!   comparison without touching the record; they also decide which half a split sends the slot to.
//! * **All writers resize, step by step** (`resize.rs`). The papers lock the whole table; here a
//!   group of eight buckets is moved at a time.
//! * **The hash's top bits choose the bucket**, so a table of any size is in hash order. A scan's
//!   position is a hash and survives resizes, a split writes its two halves side by side, and
//!   shrinking merges neighbours.
//!
//! # Invariants
//! 1. A key lies in the chain of one bucket of one table only: of `current`, unless that bucket's
//!    group has moved; then of `next`.
//! 2. Only the holder of a chain's lock (the head's lock word) stores to the chain's words.
//! 3. While a lock is free and not marked unfenced, everything stored under it is durable. On a
//!    volatile cache, a reader that meets a held or unfenced lock persists what it read before it
//!    returns, so no answer is ever lost.
//! 4. A group is moved once its first bucket's `moved` bit is set. That bit is durable before any
//!    thread writes to the moved keys. Until then the next table's buckets of that group are
//!    garbage that no thread reads, so moving can start over at any point.
//! 5. Blocks that a reader may still see (old tables, old overflow buckets) are retired, never
//!    freed.
//!
//! Threads: all operations from any number of threads. Crash: at any store. Recovery: constant
//! time; a resize continues where it was.

mod bucket;
mod ops;
mod pairs;
pub mod remote;
mod resize;
mod scan;
mod shape;
mod table;
mod tags;
mod verify;
mod write;

pub use ops::Clht;
pub use shape::BucketShape;
