//! A memory region that outlives the process, with the structures that threads and processes share
//! in it: named roots, memory, epochs, locks.
//!
//! Reading order: [`Layout`] (what lies where), [`PoolOptions`] (how to create and open a pool),
//! [`Pool`]. `docs/pool-format.md` describes the format, and which parts of it are trusted after
//! which crash.
//!
//! Inside, each part is a receiver that holds the part below it, and knows none above:
//!
//! ```text
//! base::Base             the region, what lies where, this process
//! allocator::Units       descriptions of units, bitmaps of slabs
//!            Granules    whole units and runs of granules
//!            Heap        blocks
//! reclaim::Epochs        pinned threads
//!          Limbo         retired blocks
//! sharing::Peers         the other processes, and what is left of dead ones
//! pool::Inner            the superblock, the root directory, the close
//! ```
//!
//! `gc` stands on all of them. `format`, `sync` and the parts of `sharing` that only read the
//! participant table stand beside or below `Base`.

mod allocator;
mod anchor;
mod base;
mod error;
mod format;
mod gc;
mod open;
mod pool;
mod reclaim;
mod sharing;
mod sync;
#[cfg(test)]
mod tests;

pub use allocator::usage::Space;
pub use error::{Bytes, CloseError, Durability, GrowError, Holder, OpenError, Problem, RootError};
pub use format::finding::{Finding, Remedy};
pub use format::layout::{Geometry, Layout, MAX_POOL, PAGE};
pub use format::lifetime::Start;
pub use gc::{CollectReport, Marker};
pub use open::options::PoolOptions;
pub use open::sigbus::explain_lost_memory;
pub use open::{Description, describe};
pub use pool::compaction::{Compaction, Sparse};
pub use pool::fixed::{Fixed, FixedRow};
pub use pool::fresh::{Durable, Fence, Fresh};
pub use pool::guard::{ErasedGuard, Guard, PinnedBytes};
pub use pool::roots::Root;
#[doc(hidden)]
pub use pool::testing::Testing;
pub use pool::watch::{Watch, WatchError};
pub use pool::{Initializing, Pool};
pub use reclaim::shortage::PoolFull;
pub use sharing::fork::{Forked, Opener};
pub use sharing::liveness::Liveness;
pub use sharing::notice::{NOTICE_MAX, notices};
pub use sync::backoff::{Backoff, rest_with};
pub use sync::lock::Lock;
pub use sync::lock::Owner;
#[doc(hidden)]
pub use sync::lock::set_thread_number;
pub use sync::locked::Locked;
