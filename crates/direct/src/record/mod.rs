//! Records, the lowest part of the engine: their bytes, and what the pool keeps beside them.
//!
//! In reading order: `format` (the bytes of a record), `view` (a record in the pool), `key` (how
//! the index finds its key), `layout` (the root block) with `counters` and `removals`, `uses` and
//! `limit` (what eviction has to know at each read and write; both use `flag`), `records` (pool,
//! index and root together), and `stage` (new records before they are linked).

pub(crate) mod counters;
pub(crate) mod flag;
pub(crate) mod format;
pub(crate) mod key;
pub(crate) mod layout;
pub(crate) mod limit;
pub(crate) mod records;
pub(crate) mod removals;
pub(crate) mod stage;
pub(crate) mod uses;
pub(crate) mod view;
