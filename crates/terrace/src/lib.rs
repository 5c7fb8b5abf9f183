//! Terrace: a key-value store for memory that outlives the process.
//!
//! ```
//! use std::time::Duration;
//! use terrace::{ByteSize, Store};
//!
//! # let directory = tempfile::tempdir()?;
//! # let path = directory.path().join("app.pool");
//! let store = Store::options().path(&path).size(ByteSize::mib(16)).open_or_create()?;
//!
//! store.put(b"user:7", b"Ada")?;
//! assert_eq!(store.get(b"user:7")?.unwrap(), b"Ada");
//! assert_eq!(store.increment(b"hits", 1)?, 1);
//!
//! let mut batch = store.batch(); // all of it or none, also through a crash
//! batch.put(b"a", b"1").remove(b"b").expire(b"user:7", Duration::from_secs(60));
//! batch.commit()?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! * [`Store`]: `Clone + Send + Sync`; created or opened by [`Options`]. Reads take no lock and
//!   copy nothing: a [`Value`] is a view into the pool.
//! * [`Batch`], [`Store::transaction`]: changes of several keys, all or nothing.
//! * The effect of a call that has returned survives what the store's [`Durability`] says: the end
//!   of the process, or the loss of power.
//!
//! Keys have up to 64 KiB, values up to 512 MiB; either may be empty. Times are unix milliseconds.
#![forbid(unsafe_code)]

mod background;
mod batch;
mod bounds;
mod clock;
pub mod cold;
mod error;
mod index;
mod keyspace;
mod merge;
mod open;
mod options;
mod owned;
mod put_options;
mod range;
mod salvaged;
mod size;
mod store;
mod transaction;
mod written;

pub use batch::Batch;
pub use bounds::{KeyRange, OwnedRange, prefix_range};
pub use clock::{SystemClock, at_instant};
pub use error::{CloseError, GrowError, IncrementError, OpenError};
pub use index::{Engine, Index};
pub use keyspace::Keyspace;
pub use options::Options;
pub use owned::OwnedValue;
pub use put_options::PutOptions;
pub use range::Range;
pub use salvaged::Salvaged;
pub use size::{ByteSize, ByteSizeError};
pub use store::{Disk, Evictor, Iter, Keys, Opening, Sharing, Store, Upkeep, Watch, WeakStore};
pub use terrace_engine::{
    CURSOR_LIMIT, CacheStats, Change, Clock, Costs, Count, Cursor, Direction, DiskStats, Durability, Entry,
    Eviction, Figure, Finding, First, IndexFigures, KEY_MAX, KeyUse, LAYER_FIGURES, LayerStats, Layers,
    ManualClock, NoLayers, Place, Policy, PoolStats, Put, RangeCursor, RangeRemoved, ReadError, Remedy,
    Report, Stats, Ticket, TierStats, Token, VALUE_MAX, Value, Version, WatchError, WriteError,
};
pub use terrace_medium::HugePages;
pub use terrace_pool::{GrowError as PoolGrowError, Holder, NOTICE_MAX, Problem, Start, explain_lost_memory};
pub use transaction::Transaction;

/// Runs the examples of the chapter about ordered stores.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/ordered.md")]
struct OrderedStores;

/// Runs the examples of the chapter about stores on a disk.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/disk.md")]
struct StoresOnADisk;

/// Runs the examples of the chapter about stores over DRAM and files.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/tiered.md")]
struct StoresOverTwoTiers;

/// Reads the notices of the processes that have the store at `path` open, as posted with
/// [`Sharing::post_notice`], from its files, without opening the store. The notice of a process
/// that has just died may still be there.
///
/// ```
/// # let directory = tempfile::tempdir_in("/dev/shm")?;
/// # let path = directory.path().join("app.pool");
/// let store = terrace::Store::options().path(&path).create()?;
/// store.sharing().post_notice("redis://127.0.0.1:6379");
/// assert_eq!(terrace::notices(&path)?, ["redis://127.0.0.1:6379"]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn notices(path: impl AsRef<std::path::Path>) -> Result<Vec<String>, OpenError> {
    let path = path.as_ref();
    if path.is_dir() {
        return Ok(open::notice(path).into_iter().collect());
    }
    Ok(terrace_pool::notices(path)?)
}
