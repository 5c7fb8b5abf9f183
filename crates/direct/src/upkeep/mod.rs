//! Upkeep: the work beside reads and writes, most of it in the background.
//!
//! In reading order: `expiry` (removes what has expired), `compact` (moves records together),
//! `room` (both, for a write that finds the pool full), `evict` (the same for a cache), `collect`
//! (frees what is unreachable), `check` (finds damage), and `chores` (all of it in steps).

pub(crate) mod check;
pub(crate) mod chores;
pub(crate) mod collect;
pub(crate) mod compact;
pub(crate) mod evict;
pub(crate) mod expiry;
pub(crate) mod room;
