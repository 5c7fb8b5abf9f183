//! Whole stores over byte keys and values.
//!
//! [`Engine`] is the core that every store has; [`Pooled`], [`Ordered`] and [`OnDisk`] are optional
//! capabilities. The facade holds an engine behind `dyn`, so the medium and the index are chosen
//! when a store is opened. [`direct`] keeps every record in a pool, [`wip`] in files.
#![forbid(unsafe_code)]

mod capability;
mod clock;
mod cursor;
pub mod direct;
mod draft;
mod durability;
mod engine;
mod entry;
mod error;
mod eviction;
mod finding;
mod removals;
mod retry;
mod standing;
mod stats;
mod table;
pub mod tiered;
mod watches;
pub mod wip;

pub use capability::{OnDisk, Ordered, Pooled, RangeCursor, RangeRemoved};
pub use clock::{Clock, ManualClock};
pub use cursor::Cursor;
pub use direct::{KEY_MAX, VALUE_MAX};
pub use durability::{Count, Durability, Durably, Ticket};
pub use engine::{
    Chore, Commit, Engine, EntryCallback, Expected, Rest, Salvage, WatchHandle, Write, WriteKind,
    expected_present,
};
pub use entry::{Change, Entry, Put, Token, Value, Version};
pub use error::{CloseError, OpenError, ReadError, WatchError, WriteError};
pub use eviction::{Evicting, Eviction, First, KeyUse, Policy};
pub use finding::{Finding, Place, Remedy};
pub use stats::{Costs, DiskStats, IndexFigures, Memory, PoolStats, Report, Stats, TierFigure, TierStats};
pub use terrace_index::{CURSOR_LIMIT, CacheStats, Direction};
pub use watches::{Watch, Watches};
