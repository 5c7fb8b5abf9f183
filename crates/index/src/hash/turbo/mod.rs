//! TurboHash: a hash table of small shards, each probed in sequence, a media block at a time.
//!
//! Xingsheng Zhao: the thesis's chapter 3, *TurboHash: A Hash Table for Key-value Store on Persistent Memory* (Algorithms 1 to 4 in 3.7; published at SYSTOR 2023).
//!
//! # Picture
//! ```text
//!   root --> descriptors: a line a shard     | lock | version | place 0 | place 1 | keys | pending | probes | 0 |
//!        --> places: a word a shard          the place that the version chooses, once more; volatile
//!                |
//!                v
//!   shard: 2^n buckets of 256 bytes in a row, in the order of the keys' hashes; the last is followed by the first
//!
//!   bucket of u64 keys    | meta | tags: 14 bytes, 2 spare | passed: 64 bits | 14 x (key, word) |
//!   bucket of byte keys   | meta | tags: 27 bytes | passed: 40 bits | 27 x slot |
//!                           slot: [63:49] 15 bits of the key's hash  [48:41] check  [40:0] the record's offset / 8
//!   meta                  [63:..] sequence (u64 keys: 36 bits) or check (byte keys: 10 bits) | deleted, a bit a slot | live, a bit a slot |
//!
//!   hash of a key         | which shard | which bucket: its home | ... | tag: the last 8 bits |
//! ```
//! A key lies in the first bucket from its home on that had a free slot when it came. A bucket with an empty slot (neither live nor deleted) ends the *path* of a search; a deleted slot
//! never does, but it can be filled again. A full bucket ends the path too, unless the tag's bit in its `passed` word is set. So a path only grows, until its shard is
//! rehashed.
//!
//! # What differs from the thesis, and why
//! * **No near-place update, so no slot reserved for it.** Values are one word: an update is one atomic store in place, one write-back, one fence. All slots take keys, and a bucket
//!   ends a path if any is empty.
//! * **Any key, 0 included**, and any word.
//! * **The sequence** (3.3.4.5) is argued for one writer between a reader's two looks. Here key, word and meta are loaded in this order with Acquire, and a reader that finds the meta word
//!   changed looks again: whatever writers did in between, an answer is a state that the bucket had. Only 2^36 changes of one bucket between two loads would go unnoticed. Slots of byte strings
//!   are one word and need no sequence; their meta word has a check in its place.
//! * **A missing key** needs no second look: a key that is there throughout keeps its slot (or is found in the shard's old version, which stays as it was), and one that
//!   moves was absent in between.
//! * **A full bucket knows who has passed it** (3.3.2 keeps no record of a path's end, to save a write). With full buckets alone for an end, a search for an absent key reads 1.6 buckets on average
//!   at a load of 0.8, and 2.3 at 0.85. So the word that the layout leaves free has a bit for each of 64 (byte keys: 40) classes of tags: an insert that passes a full
//!   bucket sets its own, durable with the slot, by the fence that an insert has anyway; at that load it is 1.0 buckets. The price is a second block written by an insert that
//!   sets one, once for each class and bucket. A bit is cleared by the next rehash only.
//! * **Nothing in a process's own memory.** The thesis mirrors the shards' descriptors in DRAM. Here the mirror (*places*) lies in the pool, is never made durable, and is written again from
//!   the descriptors when the pool is brought up: one word a shard to read for any process that shares the pool, and no second truth. Lock, count and statistics are volatile likewise.
//! * **A shard begins with nothing and grows from one bucket.** Shards are many (about one for 1024 keys of the hint, or for 1 MiB of the pool, whichever is more), so an empty one must cost
//!   nothing but its line. Shards also shrink: eight times more slots than keys halve it, and `maintain` takes the buckets of an empty one back. The number of shards
//!   stays for ever.
//! * **When a shard grows, and when garbage is collected.** Each insert measures how far from its home it has to look. When that passes the scope of 16 buckets, or its moving average two and a half, the
//!   shard is looked through: 85% full it doubles; else, if an eighth of its slots are deleted, it is rehashed at its size, without them. Otherwise its keys collide more than chance makes them
//!   and doubling would not help: it stays, and the path goes on beyond the scope. So a shard has never more than two and a half times the slots that its keys had needed, whatever the keys are; and the hash is
//!   keyed with a secret of the pool, so nobody can choose such keys. A shard of 2^15 buckets grows no further; once it is full, inserts into it answer
//!   [`PoolFull`](terrace_pool::PoolFull). So do inserts into a shard without a free slot that the pool has no room to double.
//! * **Where in a bucket**: its first line, which every search reads, is filled first; then the line that the tag chooses, which a search can fetch together with the first.
//!
//! # Invariants
//! 1. Every bucket from a key's home to the one before its own is full (no slot is empty) and says that the key's tag has passed it. No key is twice in a shard.
//! 2. Only the holder of a shard's lock stores to its descriptor, its place and its buckets.
//! 3. A live bit is durable only after its slot, its tag, and the passed bits that lead to it. Under a lock that is held or unfenced, nothing is not durable but the buckets that `pending` names, and
//!    the descriptor's line; under any other lock nothing at all. A reader that meets such a lock makes the buckets that it read durable before it answers, so nothing that was ever answered can be lost.
//! 4. A shard's version is stored once its new buckets are durable, and is durable before anyone writes to them. Until then they are memory that nobody can reach.
//! 5. A shard's old buckets are retired, never freed, and nobody writes to them any more.
//!
//! Threads: all operations from any number of threads; writers of one shard wait for each other, also while it is rehashed. Crash: at any store. Recovery: the directory is read.

mod bucket;
mod bytes;
mod directory;
mod ops;
mod pairs;
mod rehash;
mod scan;
mod shape;
mod stored;
mod verify;
mod write;

pub use ops::Turbo;
pub use shape::Buckets;
