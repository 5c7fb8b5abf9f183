//! Several processes in one pool.
//!
//! Reading order: `participants` (the table of processes), `liveness` (which of them are alive,
//! with `kernel_lock` and `ending`), `recover` (what survivors do for dead ones), `fork` (what a
//! child must not do), `protect` (a participant that only reads), `stopped` (one that does not
//! run), `notice` (texts for others), `watch` (changes of keys), `clock` (times for people).

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
pub(crate) mod stopped;
pub(crate) mod terms;
pub(crate) mod watches;
