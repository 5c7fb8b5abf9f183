//! A store over DRAM and a slower tier, after HeterMM.
//!
//! The index and the hot records lie in DRAM, everything else in files on a slower tier: CXL or
//! persistent memory with a file system, or an SSD. The index knows nothing of it: its words are
//! addresses in one *space*, which stay the same while a record moves (section 4 of the paper).
//!
//! ```text
//!              DRAM: one pool                               tier: a directory
//!   index ──┐
//!           ├──> address ──> open blocks: changes in place     log: a record a write
//!   writer ─┘                closed blocks ───── seal ───────> blocks: live records, read-only
//!                            copies of hot records <── read ── large values: a file each
//! ```
//!
//! # Parts
//! Each receiver owns its own fields and holds the one below, which does not know it:
//!
//! ```text
//!   Tiered    engine, open, expiry     the operations of every engine, and the sweep
//!   Writes    write, commit            writes of one key, and of several at one instant
//!   Upkeep    upkeep/                  blocks go to the tier, dead records leave it, checkpoints
//!   Reads     read, scan, cache        reads, and copies of what is read often
//!   Records   records, changes         the index, the pages and the locks: look-ups and swaps
//!   Journal   journal                  the log, the manifest and large values
//!   Tier      tier/                    files of blocks, and whether the store may be written
//! ```
//!
//! - `space`: records, addresses, pages and blocks in DRAM, how an index compares records, locks.
//! - `tier`: blocks and large values in files, and what is left of damaged ones.
//! - `recover`, `replay`, `newest`: the steps of an open, over `Writes`.
//! - `settings`, `error`, `shortage`: how a store is opened, why not, and what lacked room.

mod cache;
mod changes;
mod commit;
mod engine;
mod error;
mod expiry;
mod journal;
mod newest;
mod open;
mod read;
mod records;
mod recover;
mod replay;
mod scan;
mod settings;
mod shortage;
mod space;
mod tier;
mod upkeep;
mod write;

pub use engine::Tiered;
pub use error::TieredError;
pub use open::MakePool;
pub use settings::Settings;
pub use space::probe::{Kind, Probes, grows_without_reading};
pub use space::shares::Shares;
pub use tier::NAME;
pub use tier::salvage::salvage;
