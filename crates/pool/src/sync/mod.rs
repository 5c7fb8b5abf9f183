//! Locks in the pool, and waiting for other threads and processes.
//!
//! Reading order: `lock` (the word of a lock), `locked` (taking and releasing it), `intents` (what
//! a thread records before it tries one), `backoff` (how a thread waits), `waiting` (which threads
//! of this process wait).

pub(crate) mod backoff;
pub(crate) mod intents;
pub(crate) mod lock;
pub(crate) mod locked;
pub(crate) mod waiting;
