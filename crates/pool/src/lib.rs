//! One region that outlives the process, with everything in it that threads share: named roots, memory, epochs, locks.
//!
//! Reading order: [`Layout`] (what lies where), [`PoolOptions`] (how a pool is made and opened), [`Pool`]. The format, and what of it is
//! believed after which crash, is written down in `docs/pool-format.md`.

mod check;
mod clock;
mod error;
mod file;
mod grow;
mod layout;
mod lifetime;
mod open;
mod options;
mod participants;
mod pool;
mod roots;
mod superblock;

pub use check::Finding;
pub use error::{CloseError, Durability, GrowError, Holder, OpenError, Problem, RootError};
pub use layout::{Geometry, Layout, MAX_POOL, PAGE};
pub use open::{Description, describe};
pub use options::PoolOptions;
pub use participants::Owner;
pub use pool::{Pool, Start};
pub use roots::Root;
