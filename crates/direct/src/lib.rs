//! The engine whose records all lie in the pool.
//!
//! A record is written completely, then one word of the index makes it the key's entry; it never
//! changes after that. So
//! * a read is a pin, an index lookup and a checksum: no lock, no copy;
//! * a change of one key is an allocation, a copy, one fence, and one compare-and-swap of the
//!   index's word, which commits it;
//! * a change of several keys is the same under a descriptor whose status word commits all of them
//!   (`batch`).
//!
//! # Invariants
//! 1. A record that the index points to was durable before the index's word was stored.
//! 2. A record that was unlinked is retired, never freed: while a thread is pinned, no offset that
//!    it has seen is reused, so a compare-and-swap of an offset is exact.
//! 3. An extent belongs to one record at a time. When only the expiry changes, the new record takes
//!    it over.
//! 4. Records with a batch word other than 0 may be linked only while the engine's root names an
//!    active batch.
//!
//! # Parts
//! Each part owns the one below it, or borrows it, and knows nothing of those above.
//!
//! ```text
//!   Direct       engine.rs  the engine's traits; open.rs opens it
//!   Writes       write/     one call of a user: waits, makes room, tries again
//!   Upkeep       upkeep/    expiry, compaction, room, eviction; borrows the slots
//!   Batches      batch/     several keys at one instant
//!   Slots        slot.rs    one change of one key
//!   Reads        read/      which record counts for a reader
//!   Claims       batch/     the keys of a running batch, and the end of a dead thread's batch
//!   Records      record/    pool, index and root block; the bytes of a record
//! ```
//! Collection borrows the records alone, and the checks borrow the reads. `remote` reads records
//! out of copied bytes of a pool.

mod batch;
mod engine;
mod open;
#[cfg(all(feature = "production", not(test)))]
mod production;
mod read;
mod record;
pub mod remote;
mod slot;
mod stats;
#[cfg(test)]
mod tests;
mod upkeep;
mod write;

pub use engine::Direct;
pub use open::index_in;
#[cfg(all(feature = "production", feature = "power", not(test)))]
pub use production::open_pmem;
#[cfg(all(feature = "production", not(test)))]
pub use production::{open_over, open_shm};
pub use record::key::{Key, Kind};
pub use record::records::Settings;
