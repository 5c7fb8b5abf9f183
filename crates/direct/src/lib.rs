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

mod batch;
mod engine;
mod read;
mod record;
pub mod remote;
#[cfg(test)]
mod tests;
mod upkeep;
mod write;

pub use engine::{Direct, Kind, Settings, index_in};
pub use record::key::Key;
