//! Work beside reads and writes: `expiry`, `compact`, `room`, `evict`, `collect`, `check`,
//! `chores`.

pub(crate) mod check;
pub(crate) mod chores;
pub(crate) mod collect;
pub(crate) mod compact;
pub(crate) mod evict;
pub(crate) mod expiry;
pub(crate) mod room;
