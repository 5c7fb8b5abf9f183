//! One region that outlives the process, with everything in it that threads share: named roots, memory, epochs, locks.
//!
//! The format is described in `docs/pool-format.md`.

mod check;
mod layout;
mod participants;
mod pool;

pub use check::Finding;
pub use layout::{Geometry, Layout, MAX_POOL, PAGE};
pub use participants::Owner;
pub use pool::{Pool, Start};
