//! A memory region that outlives the process, with the structures that threads and processes share
//! in it: named roots, memory, epochs, locks.
//!
//! Reading order: [`Layout`] (what lies where), [`PoolOptions`] (how to create and open a pool),
//! [`Pool`]. `docs/pool-format.md` describes the format, and which parts of it are trusted after
//! which crash.

mod allocator;
mod error;
mod fixed;
mod format;
mod gc;
mod open;
mod pool;
mod reclaim;
mod sharing;
mod sync;
#[cfg(test)]
mod tests;

pub use allocator::blocks::{Durable, Fence, Fresh, PoolFull};
pub use allocator::compact::Sparse;
pub use allocator::usage::Space;
pub use error::{Bytes, CloseError, Durability, GrowError, Holder, OpenError, Problem, RootError};
pub use fixed::{Fixed, FixedRow};
pub use format::finding::{Finding, Remedy};
pub use format::layout::{Geometry, Layout, MAX_POOL, PAGE};
pub use format::roots::Root;
pub use gc::{CollectReport, Marker};
pub use open::options::PoolOptions;
pub use open::sigbus::explain_lost_memory;
pub use open::{Description, describe};
pub use pool::{Initializing, Pool, Start};
pub use reclaim::epoch::{ErasedGuard, Guard, PinnedBytes};
pub use sharing::fork::{Forked, Opener};
pub use sharing::liveness::Liveness;
pub use sharing::notice::{NOTICE_MAX, notices};
pub use sharing::participants::Owner;
pub use sharing::watch::{Watch, WatchError};
pub use sync::backoff::{Backoff, rest_with};
#[doc(hidden)]
pub use sync::lock::set_thread_number;
pub use sync::lock::{Lock, Locked};
