//! Level hashing: two levels of buckets, resized in place.
//!
//! Zuo, Hua, Wu: *Level Hashing: A High-performance and Flexible-resizing Persistent Hashing Index
//! Structure* (the longer version of their paper at OSDI 2018; Algorithms 1 to 6 in section 4).
//!
//! # Picture
//! ```text
//!   root --> state: which tiers, and what they are turned into
//!            tiers: rows of 2^n buckets, in the order of positions (of the hash)
//!
//!   top level      | 0 | 1 | 2 | 3 | 4 | 5 | 6 | 7 |
//!   bottom level   |   0   |   1   |   2   |   3   |
//!                     '--- a unit: a bottom bucket, which has the lock, and the two above it
//!
//!   a key has two positions: its hash, and that XOR a function of its tag;
//!   so it has four buckets: two above, and the two below them
//!
//!   bucket, 128 bytes, of u64 keys    | meta | lock | 3 x key | 3 x word | 4 x key | 4 x word |
//!   bucket, 128 bytes, of byte keys   | meta | lock | 14 x slot |
//!       slot: [63:49] tag, 15 bits of the hash  [48:41] check  [40:0] the record's offset / 8
//!   meta          | sequence, and for byte keys a check | upper | a mark a slot | a token a slot |
//! ```
//! A slot holds a key if its token is set. A new key goes to the less loaded of its two top
//! buckets; else to the less loaded of the two below; else where one other key can be moved away
//! (`movement.rs`). Otherwise the table grows by a new top level, and the old bottom level is
//! emptied into it, unit by unit (`resize.rs`).
//!
//! # What differs from the paper, and why
//! * **An update is one atomic store in place**, one write-back, one fence: values are one word. So
//!   the opportunistic update and its undo log (3.3.4) are left out, and no slot has to be free.
//! * **More slots.** 128-byte buckets hold 7 pairs or 14 byte-string slots, where the paper's hold
//!   4 items of 31 bytes. Any key is allowed, 0 included.
//! * **A token and its slot often share a line.** A line survives a crash as a prefix of its
//!   stores. So an insert into the first line (3 pairs, 6 byte-string slots) takes one fence;
//!   elsewhere it takes the paper's two.
//! * **The second position is computed from the first and a tag** (partial keys, as in cuckoo
//!   filters). So a slot of a byte-string key determines the key's other buckets without its
//!   record.
//! * **Locks.** The paper locks slots, for readers, too (3.4). It does not say what keeps two
//!   inserts of one key apart, or a search from missing a key that moves. Here a *unit* has a lock,
//!   and a writer holds those of both units of its key. So no other thread changes the key's state,
//!   nor moves the key, because a move needs the lock of the unit where it lies. Readers take no
//!   lock: they load key and word between two equal loads of the meta word. A reader that found
//!   nothing loads the four meta words again (they have a sequence), and the state.
//! * **Movements leave marks.** After a crash between the two tokens of a movement the key is there
//!   twice. In the paper, updates and recovery look for a duplicate, but deletions do not: the key
//!   would return from its duplicate. Looking for one before every change would read up to three
//!   more buckets. Here both slots of a movement are marked, in words that it stores anyway, so
//!   only a thread that meets a mark looks (`marks.rs`).
//! * **Movements go forward only**, so that scans, which the paper does not have, miss nothing. See
//!   `movement.rs` for the cost of that, and for what compensates it.
//! * **All writers resize, step by step.** The paper moves item by item: write it into its new
//!   slot, set the token, clear the old token, three fences; meanwhile searches visit three levels.
//!   Here all keys that leave a unit move at once, with two fences. The store that makes them
//!   visible in the new buckets removes them from the old one: no duplicates, and never more than
//!   four buckets to search.
//! * **Dynamic search** (3.2.1) compares the numbers of keys above and below. Two counters that
//!   every writer changes would be a bottleneck. So the four buckets of one new key in 256 are
//!   compared, and a moving average of that decides.
//! * **Keys that all collide** (chosen by an adversary with the pool's secret seed) do not make the
//!   table grow without bound. If an insert finds no place although less than a quarter of all
//!   slots is used, it returns [`PoolFull`](terrace_pool::PoolFull).
//! * **Nothing in a process's own memory**, so processes can share a table. The count is volatile
//!   and in stripes (`count.rs`).
//!
//! # Invariants
//! 1. A key lies in one of the four buckets of its two positions. It is in two of them only while
//!    it moves, or because a crash interrupted that. Then both slots are marked and have the same
//!    word.
//! 2. Only the holder of a unit's lock stores to its buckets. A thread that changes a key holds
//!    both its units.
//! 3. While a lock is free and not marked unfenced, everything stored under it is durable. On a
//!    volatile cache, a reader that meets a held or unfenced lock persists the unit before it
//!    returns, so no answer is ever lost.
//! 4. A token is durable only after its slot. After a change of tokens, a meta word never has an
//!    earlier value.
//! 5. A unit's move up or down is durable before any thread writes to its new buckets. Until then
//!    they are memory that no thread reads.
//! 6. The state is durable before anything that depends on it. Tiers that a reader may still use
//!    are retired, never freed.
//! 7. Keys move from a unit to a later one, or within a unit.
//!
//! Threads: all operations from any number of threads. Crash: at any store. Recovery: constant
//! time; a resize continues where it was.
//!
//! # Files
//! What is stored: `bucket`, `shape`, `pairs`, `bytes`, `root`. The units: `units`, `movement`,
//! `marks`, `scan`, `verify`. Above them `resize`, and above that `ops`, `write`, `stored`.

mod bucket;
mod bytes;
mod marks;
mod movement;
mod ops;
mod pairs;
mod resize;
mod root;
mod scan;
mod shape;
mod stored;
mod units;
mod verify;
mod write;

pub use ops::Level;
pub use shape::BucketShape;
