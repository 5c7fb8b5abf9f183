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
//! # Files
//! From below:
//! - `memtable`: the items of a bucket in memory.
//! - `state`: what there is at one moment; in its folder `table`, `garbage`, `edit`, `structure`
//!   (how a state changes, durably), `snapshots`, `bell`, and `store`, which owns all of this.
//! - `read`, `range`: what a reader does with a store.
//! - `jobs`: background work; `flush`, `merging`, `split`, `join` do one job each, `choice` tells
//!   which is next, `refill` fills the MemTables of an open.
//! - `engine`, `room`, `write`: the engine, and what makes a write visible; `open`: recovery.
//! - `check`: checks, checkpoints, and the salvage of what is sound.

mod check;
mod engine;
mod jobs;
mod memtable;
mod open;
mod range;
mod read;
mod room;
mod state;
mod write;

pub use engine::Wip;
pub use open::NAME;
pub use state::store::Settings;
