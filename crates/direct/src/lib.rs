//! The engine whose records all lie in the pool.
//!
//! A record is written completely, then one word of the index makes it the key's entry; it never
//! changes after that. So
//! * a read is a pin, an index lookup and a checksum: no lock, no copy;
//! * a change of one key is an allocation, a copy, one fence, and one compare-and-swap of the
//!   index's word, which commits it;
//! * a change of several keys is the same under a descriptor whose status word commits all of them
//!   (`batch.rs`).
//!
//! # Invariants
//! 1. A record that the index points to was durable before the index's word was stored.
//! 2. A record that was unlinked is retired, never freed: while a thread is pinned, no offset that
//!    it has seen is reused, so a compare-and-swap of an offset is exact.
//! 3. An extent belongs to one record at a time. When only the expiry changes, the new record takes
//!    it over.
//! 4. Records with a batch word other than 0 may be linked only while the engine's root names an
//!    active batch.

mod absence;
mod batch;
mod check;
mod chores;
mod collect;
mod commit;
mod compact;
mod counters;
mod descriptor;
mod evict;
mod expiry;
mod flight;
mod key;
#[cfg(test)]
mod one_instant;
mod plan;
#[cfg(all(feature = "production", not(test)))]
mod production;
mod range;
mod read;
mod record;
mod recover;
pub mod remote;
mod remove;
mod remove_range;
mod room;
mod root;
mod scan;
#[cfg(test)]
mod small;
mod snapshot;
mod stage;
mod store;
#[cfg(test)]
mod stray;
mod view;
#[cfg(test)]
mod waits;
mod write;

pub use key::Key;
#[cfg(all(feature = "production", feature = "power", not(test)))]
pub use production::open_pmem;
#[cfg(all(feature = "production", not(test)))]
pub use production::{open_over, open_shm};
pub use store::{Direct, Kind, Settings, index_in};
