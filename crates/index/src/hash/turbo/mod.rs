//! TurboHash: a hash table of small shards, each probed sequentially, one media block at a time.
//!
//! Xingsheng Zhao: the thesis's chapter 3, *TurboHash: A Hash Table for Key-value Store on
//! Persistent Memory* (Algorithms 1 to 4 in 3.7; published at SYSTOR 2023).
//!
//! # Picture
//! ```text
//!   root --> descriptors: a line a shard     | lock | version | place 0 | place 1 |
//!                                            | keys | pending | probes | 0 |
//!        --> places: a word a shard         a copy of the place that the version chooses; volatile
//!                |
//!                v
//!   shard: 2^n buckets of 256 bytes in a row, in the order of the keys' hashes;
//!          the first follows the last
//!
//!   bucket of u64 keys    | meta | tags: 14 bytes, 2 spare | overflow: 64 bits | 14 x pair |
//!   bucket of byte keys   | meta | tags: 27 bytes | overflow: 40 bits | 27 x slot |
//!               slot: [63:49] 15 bits of the hash  [48:41] check  [40:0] the record's offset / 8
//!   meta        | sequence (u64 keys: 36 bits) or check (byte keys: 10 bits) |
//!               | deleted, a bit a slot | live, a bit a slot |
//!
//!   hash of a key         | which shard | which bucket: its home | ... | tag: the last 8 bits |
//! ```
//! A key lies in the first bucket from its home on that had a free slot when it was added. A bucket
//! with an empty slot (neither live nor deleted) ends the *path* of a search. A deleted slot never
//! does, but it can be filled again. A full bucket ends the path, too, unless the tag's bit in its
//! `overflow` word is set. So a path only grows, until its shard is rehashed.
//!
//! # What differs from the thesis, and why
//! * **No near-place update, so no slot reserved for it.** Values are one word: an update is one
//!   atomic store in place, one write-back, one fence. All slots take keys, and a bucket ends a
//!   path if any slot is empty.
//! * **Any key, 0 included**, and any word.
//! * **The sequence** (3.3.4.5) is argued for one writer between a reader's two looks. Here key,
//!   word and meta are loaded in this order with Acquire, and a reader that finds the meta word
//!   changed looks again. Whatever writers did in between, an answer is a state that the bucket
//!   had. Only 2^36 changes of one bucket between two loads would go unnoticed. Slots of byte
//!   strings are one word and need no sequence; their meta word has a check instead.
//! * **A missing key** needs no second look. A key that is present throughout keeps its slot (or is
//!   found in the shard's old version, which does not change); a key that moves was absent in
//!   between.
//! * **A full bucket has overflow bits** (3.3.2 keeps no record of a path's end, to save a write).
//!   If only buckets that are not full ended paths, a search for an absent key would read 1.6
//!   buckets at a load of 0.8, and 2.3 at 0.85. So the word that the layout leaves free has a bit
//!   for each of 64 (byte keys: 40) classes of tags. An insert that passes a full bucket sets its
//!   bit, durable with the slot, by the fence that an insert has anyway. At that load a search then
//!   reads 1.0 buckets. The price is a second block written by an insert that sets a bit, once for
//!   each class and bucket. Only the next rehash clears a bit.
//! * **Nothing in a process's own memory.** The thesis mirrors the shards' descriptors in DRAM.
//!   Here the mirror (*places*) lies in the pool, is never made durable, and is rewritten from the
//!   descriptors when the pool is initialized. So any process that shares the pool reads one word a
//!   shard, and there is no second truth. Lock, count and statistics are volatile likewise.
//! * **A shard begins without memory and grows from one bucket.** There are many shards: one for
//!   1024 keys of the hint, or for 1 MiB of the pool, whichever gives more. So an empty one must
//!   cost nothing but its line. Shards also shrink: a shard with eight times more slots than keys
//!   is halved, and `maintain` releases the buckets of an empty one. The number of shards never
//!   changes.
//! * **When a shard grows, and when garbage is collected.** Each insert measures how far from its
//!   home it has to look. If that exceeds the scope of 16 buckets, or its moving average two and a
//!   half, the shard is counted. At 85% full it doubles; else, if an eighth of its slots are
//!   deleted, it is rehashed at its size without them. Otherwise its keys collide more often than
//!   by chance, and doubling would not help: it stays, and paths exceed the scope. So a shard never
//!   has more than two and a half times the slots that its keys needed, whatever the keys are. The
//!   hash is keyed with a secret of the pool, so an adversary cannot choose such keys. A shard of
//!   2^15 buckets grows no further; once it is full, inserts into it return
//!   [`PoolFull`](terrace_pool::PoolFull). So do inserts into a shard without a free slot that the
//!   pool has no room to double.
//! * **Where in a bucket**: the first line, which every search reads, is filled first; then the
//!   line that the tag chooses, which a search can fetch together with the first.
//!
//! # Invariants
//! 1. Every bucket from a key's home to the one before its own is full: no slot is empty. It has
//!    the overflow bit of the key's tag set. No key is twice in a shard.
//! 2. Only the holder of a shard's lock stores to its descriptor, its place and its buckets.
//! 3. A live bit is durable only after its slot, its tag, and the overflow bits that lead to it.
//!    Under a lock that is held or unfenced, only the buckets that `pending` names and the
//!    descriptor's line may not be durable; under any other lock, everything is. A reader that
//!    meets such a lock persists the buckets that it read before it returns, so no answer is ever
//!    lost.
//! 4. A shard's version is stored once its new buckets are durable, and is durable before any
//!    thread writes to them. Until then they are unreachable memory.
//! 5. A shard's old buckets are retired, never freed, and no thread writes to them any more.
//!
//! Threads: all operations from any number of threads; writers of one shard wait for each other,
//! also during its rehash. Crash: at any store. Recovery: the directory is read.

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
pub use shape::BucketShape;
