//! Work beside the writes: pages go to the tier, and dead records leave it.
//!
//! - `work`: what all of it has in common.
//! - `seal`: the way of a block to the tier; `flush`: which block goes, and when.
//! - `reclaim`: how dead records leave the tier; `survivors`: which ones stay.
//! - `room`: what a write does that finds no room.
//! - `check`, `checkpoint`: comparison with checksums, and copies of a store.

pub(crate) mod check;
mod checkpoint;
mod flush;
mod reclaim;
mod room;
mod seal;
mod survivors;
pub(crate) mod work;
