//! A memory region that outlives the process, with the structures that threads and processes share
//! in it: named roots, memory, epochs, locks.
//!
//! Reading order: [`Layout`] (what lies where), [`PoolOptions`] (how to create and open a pool),
//! [`Pool`]. `docs/pool-format.md` describes the format, and which parts of it are trusted after
//! which crash.

mod accounting;
mod arrival;
mod backoff;
mod barrier;
mod blocks;
mod check;
mod classes;
mod clock;
mod collect;
#[cfg(test)]
mod crossings;
mod doubt;
mod ending;
mod epoch;
mod error;
mod file;
mod fixed;
mod fork;
mod grow;
mod kernel_lock;
mod layout;
#[cfg(test)]
mod leftovers;
mod lifetime;
mod limbo;
mod liveness;
mod lock;
mod lost;
mod notes;
mod notice;
mod open;
mod options;
mod orphans;
mod pages;
mod participants;
mod pool;
mod protect;
mod recover;
mod roots;
mod seats;
mod shared;
mod slabs;
#[cfg(test)]
mod small;
mod stopped;
mod superblock;
mod vacate;
mod verify;
mod waiting;
mod watch;
mod zones;

pub use accounting::Space;
pub use backoff::{Backoff, rest_with};
pub use blocks::{Durable, Fence, Fresh, PoolFull};
pub use check::{Finding, Remedy};
pub use collect::{CollectReport, Marker};
pub use epoch::{ErasedGuard, Guard, PinnedBytes};
pub use error::{Bytes, CloseError, Durability, GrowError, Holder, OpenError, Problem, RootError};
pub use fixed::{Fixed, FixedRow};
pub use fork::{Forked, Opener};
pub use layout::{Geometry, Layout, MAX_POOL, PAGE};
pub use liveness::Liveness;
#[doc(hidden)]
pub use lock::set_thread_number;
pub use lock::{Lock, Locked};
pub use lost::explain_lost_memory;
pub use notice::{NOTICE_MAX, notices};
pub use open::{Description, describe};
pub use options::PoolOptions;
pub use participants::Owner;
pub use pool::{Initializing, Pool, Start};
pub use roots::Root;
pub use vacate::Sparse;
pub use watch::{Watch, WatchError};
