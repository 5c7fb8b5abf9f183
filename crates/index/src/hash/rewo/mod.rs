//! Rewo-Hash: cuckoo hashing in large data tables, read and written one media block at a time.
//!
//! Zexuan Li, Kaixin Huang: *A Read-Efficient and Write-Optimized Hash Table for Intel Optane DC
//! Persistent Memory* (section 3, Algorithms 2 to 6; an earlier version at DATE 2021). This module
//! is its Persistent Table; `cache/` is the Cached Table in DRAM above it (3.3, 3.5, 3.8), which is
//! optional ([`Rewo::with_cache`]).
//!
//! # Picture
//! ```text
//!   root --> stripes: | lock | pending | keys | 0 |, two a line; volatile
//!        --> view: | check | moving | T0 | view after | ... |
//!                  | 16 cells: the data table of each | count |
//!
//!   data table: 2^n buckets of 256 bytes; a key is in its first bucket (its home) or its second,
//!               one of the 255 behind that
//!
//!   bucket of u64 keys    | meta | tags: 14 bytes, 2 spare | overflow: 64 bits | 14 x pair |
//!       meta: | sequence | lock | valid, a bit a slot |
//!   bucket of byte keys   | meta | tags: 27 bytes | overflow: 40 bits | 27 x slot |
//!       meta: | check | sequence | lock | valid |
//!       slot: [63] second bucket  [62:49] top of the hash  [48:41] check
//!             [40:0] the record's offset / 8
//!
//!   hash of a key         | cell: 4 bits | 10 bits | home | ... | tag: the last 8 bits |
//! ```
//! A reader searches a key's two buckets; while the key's cell moves to another table, two more. A
//! writer locks them all.
//!
//! # What differs from the paper, and why
//! * **An update is one store in place**, because a word is 8 bytes: one write-back and one fence.
//!   The paper writes another slot of the bucket, evicts if there is none, and fences twice
//!   (Algorithm 4). An insert takes two fences, one if the slot shares the meta word's line.
//! * **A key moves one way only**: from its first bucket to its second, from there to a new table.
//!   The paper's evictions go both ways. So its search of one bucket after the other can miss a key
//!   that moves from the second to the first meanwhile. Its search during a resize, in the new
//!   table first, misses a key that moves between its two looks. Readers that look in the order of
//!   the moves miss nothing and repeat no check, except for the view. This costs at most a
//!   hundredth of the load factor: 0.97 with two evictions.
//! * **The second bucket is near the first**, at a distance that the tag determines. So a byte
//!   string's slot determines both without its record, and a scan in the order of homes finds the
//!   keys in second buckets.
//! * **Overflow bits.** The words that the layout leaves free have a bit for each of 64 (byte keys:
//!   40) classes of tags. A bit is set in a key's first bucket when the key goes to the second,
//!   durable before the key is. So most searches end in the first bucket, those for absent keys,
//!   too. Only the next move to a new table clears a bit.
//! * **Fingerprints and meta word** are not one word, but share a line, whose stores a crash keeps
//!   in their order. So there is room for 14 slots (27) and 8 bits a tag, compared by one vector
//!   instruction.
//! * **The lock map** is the number of the one slot that is being evicted, or says that all are
//!   moving to another table. It shows where a crash may have left a key twice (3.4, 3.7), and
//!   nothing else. The pool's locks, in stripes, exclude writers; survivors can release those of a
//!   dead holder. The paper's slots lock the one key of an update; two inserts of one key into its
//!   two buckets would both succeed.
//! * **Sequence instead of HTM**: no processor sold today has it. The meta word's sequence shows a
//!   reader of a pair that the bucket changed in between. A slot of a byte string is one word and
//!   needs none.
//! * **Slots are stored through the cache** and written back: a search has just read their line,
//!   and the words beside them are live.
//! * **Recovery** (Algorithm 6) walks all buckets. Here opening reads the root. A locked slot is
//!   resolved by the next thread that locks its bucket, and the rest by the background collection.
//!   That also counts keys, in several threads if the tables are large (`recover.rs`).
//! * **Resizing** (3.6): a new table is as large as the one that it takes half of the cells from,
//!   so all have one size. When 16 exist, T0 takes all keys; it is twice as large as all together.
//!   The paper's changes of the directory are several words; here a resize begins and ends with one
//!   store, of the view's offset (`resize.rs`). A new table is allocated and cleared before it is
//!   due, a piece with each write (`spare.rs`), so no thread waits for its beginning.
//! * **Keys that collide** more often than by chance (a table that is not half full cannot take
//!   one) get [`PoolFull`](terrace_pool::PoolFull), and no larger table. Hashes are keyed with a
//!   secret of the pool.
//!
//! # Invariants
//! 1. A key is in one bucket of its path: first and second bucket of its cell's table, then of the
//!    table that the cell moves to. It may be in two, alike, if the slot in the earlier one is
//!    locked.
//! 2. Only the holder of a bucket's lock stores to it. A writer has locked a key's whole path, in
//!    the view that the root names, before it searches.
//! 3. A valid bit is durable only after its slot and its tag; a copy, before its original slot is
//!    invalid; a lock bit, before the copy.
//! 4. Under a lock that is held or unfenced, only the stripe's pending bucket may not be durable;
//!    under any other lock, everything is. A reader that meets such a lock persists what it read
//!    before it returns, so no answer is ever lost.
//! 5. The view that a writer builds upon is durable. A resize that has ended is durable before its
//!    old tables are retired. No thread writes to them any more.
//! 6. In the tables that keys leave, buckets before `count` hold no key that leaves.
//!
//! Threads: all operations from any number of threads; readers never wait. Crash: at any store.
//! Recovery: the root and two views are read.
//!
//! # Files
//! What is stored: `bucket`, `shape`, `pairs`, `bytes`, `place`, `view`. The parts of a table, from
//! below: `base` and `stripes`; `tables` with `evict`, `together`, `scan`, `recover`, `verify`;
//! `resize` and `spare`; `ops`, `write`, `stored`. `cache` stands beside the tables.

mod base;
mod bucket;
mod bytes;
mod cache;
mod evict;
mod ops;
mod pairs;
mod place;
mod recover;
mod resize;
mod scan;
mod shape;
mod spare;
mod stored;
mod stripes;
mod tables;
mod together;
mod verify;
mod view;
mod write;

pub use cache::{CacheBounds, CacheStats};
pub use ops::Rewo;
pub use shape::BucketShape;
