//! The seam between a store and its engine.
//!
//! [`Engine`] is the core that every engine has; [`Pooled`], [`Ordered`] and [`OnDisk`] are
//! optional capabilities. The facade holds an engine behind `dyn`, so the medium and the index are
//! chosen when a store is opened. Engines share what lies here: entries and their versions, errors,
//! findings, figures, and the parts that any engine on files needs ([`Draft`], [`Standing`],
//! [`Retry`]).
#![forbid(unsafe_code)]

mod capability;
mod clock;
mod cursor;
mod draft;
mod durability;
mod engine;
mod entry;
mod error;
mod eviction;
mod finding;
mod layers;
mod limits;
mod mix;
mod removals;
mod retry;
mod standing;
mod stats;
mod table;
mod watches;

pub use capability::{OnDisk, Ordered, Pooled, RangeCursor, RangeRemoved};
pub use clock::{Clock, ManualClock};
pub use cursor::Cursor;
pub use draft::{Draft, HEAD_MAX, append_drafts, draft, need_of, read_drafts};
pub use durability::{Count, Durability, Durably, Ticket};
pub use engine::{
    Chore, Commit, Engine, EntryCallback, Expected, Rest, Salvage, WatchHandle, Write, WriteKind,
    expected_present,
};
pub use entry::{Absence, Bytes, Change, Entry, Live, Put, Token, Value, Version};
pub use error::{CloseError, DRAM_PER_KEY, OpenError, ReadError, WatchError, WriteError};
pub use eviction::{Evicting, Eviction, First, KeyUse, Policy};
pub use finding::{Finding, Place, Remedy, finding, place_of};
pub use layers::{LAYER_FIGURES, Layers, NoLayers};
pub use limits::{KEY_MAX, VALUE_MAX};
pub use mix::mix;
pub use removals::Removals;
pub use retry::Retry;
pub use standing::{Standing, check_sizes};
pub use stats::{Costs, DiskStats, Figure, IndexFigures, Memory, PoolStats, Report, Stats, TierStats};
pub use table::{Indexed, Ranges, Table};
pub use terrace_index::{CURSOR_LIMIT, CacheStats, Direction, LayerStats};
pub use watches::{Watch, Watches};
