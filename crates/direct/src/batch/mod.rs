//! Atomic changes of several keys, for every reader and through a crash.
//!
//! Batches run one after the other, under a lock in the engine's root. A batch goes through these
//! steps; each number is a fence on a medium with a volatile cache.
//!
//! * **Stage**: write the new records, each with the role of the key in the batch
//!   ([`Role`](crate::record::format::Role)) and a batch word that names its entry of the
//!   descriptor. Write the descriptor, open, with each key's new record (1).
//! * **Announce**: the root names the descriptor (2).
//! * **Publish**, in pieces of 64 keys: record the old records of a piece in the descriptor (one
//!   more fence; for the first piece, (1) does). Then swap each slot from the old record to the new
//!   one (3). If a slot has changed since its old record was recorded, record the present one
//!   durably first. If a key is not in its expected version, or the pool has no room for a new
//!   slot, the batch is aborted here.
//! * **Commit**: store the descriptor's status (4).
//! * **Finalize**: set batch words to 0, empty the slots of removed keys, restore the slots of kept
//!   keys (5).
//! * **Finish**: the root names no batch (6). Retire old records, tombstones and descriptor.
//!
//! **Readers** never wait. A reader that meets a record with a batch word reads the descriptor: if
//! the batch is committed the new record counts, else the old one. So all keys change at the
//! instant at which the status is stored. (On a volatile cache, the reader makes the status durable
//! before it answers.)
//!
//! **Writers** of single keys wait from publish to finish: a change before finalize would have to
//! be undone, and a record replaced after it could be freed while the descriptor names it. This
//! also makes the expectations sound. Every key that a transaction has read has a record of the
//! batch in its slot (role `Keep`: it changes nothing) from before the commit until after it. So
//! all expectations hold at the instant of the commit.
//!
//! **A crash** before (2) leaves unreachable blocks. After (2) and before (4) is durable, recovery
//! goes through the descriptor and puts the old record into each slot that names the new one; such
//! a slot was stored after its old record was durable. After (4), recovery finalizes what is not
//! finalized. Both are idempotent, so a crash during recovery or abort adds no new case. After (6)
//! nothing is left to do.
//!
//! Throughout, the batch's thread is pinned, so no block that the descriptor names is reused before
//! (6). If the thread dies while others run, one of them finishes the batch. The new records exist
//! until then, because no thread replaces them. An old record exists for as long as its slot names
//! the new one; otherwise it is not needed.
//!
//! # Reading order
//! `descriptor` (the status that decides a batch), `claim` (keys that a running batch has claimed)
//! and `recover` (the end of a batch, also of a dead thread's); reads stand on these three. Above
//! the reads: `plan` (one step a key), `flight` (a running batch), `commit` (all of it in order)
//! and `frozen` (reads while writers are stopped).

pub(crate) mod claim;
pub(crate) mod commit;
pub(crate) mod descriptor;
pub(crate) mod flight;
pub(crate) mod frozen;
pub(crate) mod plan;
pub(crate) mod recover;
