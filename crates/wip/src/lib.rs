//! `wip`: an ordered store on a disk, durable on ordinary file systems, after WipDB (X. Zhao et
//! al.; thesis ch. 2).
//!
//! The keys are cut into *buckets*, ranges of about the same amount of data. A bucket has a hash
//! table in memory for its writes (`memtable`) and below it three levels of sorted tables in files,
//! which overlap within a level. A level's tables are merged together into *one* table of the next
//! level, never into tables that are there: so an item is written once a level, and once more for
//! each eighth of a split, whatever the size of the store (2.3.1, 2.3.5). A bucket that is full is
//! split into eight.
//!
//! - `write`: the log, MemTables, and what makes a write visible; `read`, `range`.
//! - `state`: what there is at one moment; `structure`: how it changes, durably; `edit`.
//! - `jobs`: background work; `flush`, `merging`, `split`.
//! - `open`: recovery.

mod check;
mod engine;
mod jobs;
mod memtable;
mod open;
mod range;
mod read;
mod state;
mod write;

pub use open::NAME;
pub use state::store::{Settings, Wip};
