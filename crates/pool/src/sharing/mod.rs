//! Several processes in one pool.
//!
//! Reading order: `participants` (the table of processes) with `process` (what the kernel tells of
//! one), `liveness` (which of them are alive) with `kernel_lock` and `ending`, `alive` (the same
//! for the holder of a lock), `terms` and `release` (what they must agree on), `peers` (the
//! receiver) with `recover` (what survivors do for dead ones), `fork` (what a child must not do),
//! `protect` (a participant that only reads), `watches` (changes of keys), `notice` (texts for
//! others), `clock` (times for people).

pub(crate) mod alive;
pub(crate) mod clock;
pub(crate) mod ending;
pub(crate) mod fork;
pub(crate) mod kernel_lock;
pub(crate) mod liveness;
pub(crate) mod notice;
pub(crate) mod participants;
pub(crate) mod peers;
pub(crate) mod process;
pub(crate) mod protect;
pub(crate) mod recover;
pub(crate) mod release;
pub(crate) mod terms;
pub(crate) mod watches;
