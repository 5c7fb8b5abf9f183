//! Rewo-Hash: cuckoo hashing in large data tables, read and written a media block at a time.
//!
//! Zexuan Li, Kaixin Huang: *A Read-Efficient and Write-Optimized Hash Table for Intel Optane DC Persistent Memory* (section 3, Algorithms 2 to 6; an earlier version at DATE 2021). This module is its Persistent
//! Table; `cache/` is the Cached Table in DRAM above it (3.3, 3.5, 3.8), which a user may ask for ([`Rewo::with_cache`]).
//!
//! # Picture
//! ```text
//!   root --> stripes: | lock | pending | keys | 0 |, two a line; volatile
//!        --> view: | check | moving | T0 | view after | ...  | 16 cells: the data table of each | count |
//!                                      |                          |
//!                                      v                          v
//!   data table: 2^n buckets of 256 bytes; a key is in its first bucket (its home) or its second, one of the 255 behind that
//!
//!   bucket of u64 keys    | meta | tags: 14 bytes, 2 spare | passed: 64 bits | 14 x (key, word) |      meta: | sequence | lock | valid, a bit a slot |
//!   bucket of byte keys   | meta | tags: 27 bytes | passed: 40 bits | 27 x slot |              meta: | check | sequence | lock | valid |
//!                           slot: [63] second bucket  [62:49] top of the hash  [48:41] check  [40:0] the record's offset / 8
//!
//!   hash of a key         | cell: 4 bits | 10 bits | home | ... | tag: the last 8 bits |
//! ```
//! A reader looks into a key's two buckets; while the key's cell moves to another table, into two more. A writer locks them all.
//!
//! # What differs from the paper, and why
//! * **An update is one store in place**, since a word is 8 bytes: one write-back and one fence, where the paper writes another slot of the bucket, evicts if there is none, and fences twice (Algorithm 4).
//!   Two fences make an insert, one if the slot shares the meta word's line.
//! * **A key moves one way only**: from its first bucket to its second, from there to a new table. The paper's evictions go both ways, and its search of one bucket after the other can miss a key that is
//!   moved from the second to the first meanwhile; its search during a resize, in the new table first, misses one that moves between its two looks. Readers that look in the order of the moves miss nothing and
//!   check nothing again, but for the view. It costs load factor no more than a hundredth: 0.97 with two evictions.
//! * **The second bucket is near the first**, at a distance that the tag tells. So a byte string's slot tells both of them without its record, and a scan in the order of homes finds what lies in second buckets.
//! * **A bucket knows who has passed it.** The words that the layout leaves free have a bit for each of 64 (byte keys: 40) classes of tags, set in a key's first bucket when it goes to the second, durable
//!   before the key is. So most searches end in the first bucket, those for absent keys too. A bit is cleared by the next move to a new table only.
//! * **Fingerprints and meta word** are not one word, but share a line, whose stores a crash keeps in their order. So there is room for 14 slots (27) and 8 bits a tag, compared by one vector instruction.
//! * **The lock map** is the number of the one slot that is being evicted (or says that all are moving to another table). It says where a crash may have left a key twice (3.4, 3.7), and nothing else: who
//!   may write is said by the pool's locks, in stripes, which a dead holder's survivors can free. The paper's slots lock the one key of an update; two inserts of one key into its two buckets would both succeed.
//! * **Sequence instead of HTM**: no processor that is sold today has it. The meta word's sequence tells a reader of a pair that it changed in between. A slot of a byte string is one word and needs none.
//! * **Slots are stored through the cache** and written back: a search has just read their line, and the words beside them are live.
//! * **Recovery** (Algorithm 6) walks all buckets. Here opening reads the root; a locked slot is resolved by whoever locks its bucket next, and the rest by the background collection, which also counts keys, in
//!   several threads where the tables are large (`recover.rs`).
//! * **Resizing** (3.6): a new table is as large as the one that it takes half of the cells from, so all are of one size; when 16 are there, T0 takes all keys, twice as large as all together. The paper's changes of
//!   the directory are several words; here a resize begins and ends with one store, of the view's offset (`resize.rs`). A new table is taken
//!   and cleared before it is due, a piece with each write (`spare.rs`), so that nobody waits for its beginning.
//! * **Keys that collide** more than chance makes them (a table that is not half full cannot take one) get [`PoolFull`](terrace_pool::PoolFull), and no larger table. Hashes are keyed with a secret of the pool.
//!
//! # Invariants
//! 1. A key is in one bucket of its path: first and second bucket of its cell's table, then of the table that the cell moves to. It may be in two, alike, if the slot in the earlier one is locked.
//! 2. Only the holder of a bucket's lock stores to it. A writer has locked a key's whole path, in the view that the root names, before it looks.
//! 3. A valid bit is durable only after its slot and its tag; a copy before the slot that it was made of is invalid; a lock bit before the copy.
//! 4. Under a lock that is held or unfenced, nothing is not durable but the stripe's pending bucket; under any other nothing at all. A reader that meets such a lock makes what it read durable before it answers,
//!    so nothing that was ever answered can be lost.
//! 5. The view that a writer builds upon is durable, and a resize that has ended is so before its old tables are retired. Nobody writes to them any more.
//! 6. Buckets before `count` of the tables that keys leave hold none that leaves.
//!
//! Threads: all operations from any number of threads; readers never wait. Crash: at any store. Recovery: the root and two views are read.

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
mod together;
mod verify;
mod view;
mod write;

pub use cache::{CacheBounds, CacheStats};
pub use ops::Rewo;
pub use shape::Nests;
