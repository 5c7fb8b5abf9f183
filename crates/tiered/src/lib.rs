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
//! - `record`: a version of a key; `space`: addresses, pages, blocks in DRAM; `block`: on the tier.
//! - `probe`: how an index compares records that are not in DRAM.
//! - `stripes`: the locks of keys; `read`, `write`, `commit`, `scan`.
//! - `cache`: copies of hot records, and how DRAM is divided.
//! - `flush`: how a block goes to the tier; `reclaim`: how dead records leave it.
//! - `open`: recovery; `unnamed`: blocks that no edit names; `maintain`: expiry, checks,
//!   checkpoints.
//! - `salvage`: what is left of a damaged store; `sound`: the records of a damaged file.

mod block;
mod cache;
mod commit;
mod edit;
mod engine;
mod entries;
mod flush;
mod large;
mod maintain;
mod open;
mod probe;
mod read;
mod reclaim;
mod record;
mod salvage;
mod scan;
mod shortage;
mod sound;
mod space;
mod store;
mod stripes;
mod unnamed;
mod write;

pub use open::{MakePool, NAME, TieredError};
pub use probe::{Kind, Probes, grows_without_reading};
pub use salvage::salvage;
pub use space::Shares;
pub use store::{Settings, Tiered};
