//! Which versions of keys a reader sees, and which of them a compaction keeps.

mod kept;
mod visible;

pub use kept::{Dropped, Kept};
pub use visible::{Entry, Visible};
