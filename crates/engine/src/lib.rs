//! Whole stores over byte keys and values.
//!
//! [`Engine`] is what a store can do; the facade holds one behind `dyn`, so that medium and index are chosen when a pool is opened.
//! [`direct`] keeps every record in the pool.
#![forbid(unsafe_code)]

mod clock;
pub mod direct;
mod engine;
mod entry;
mod error;
mod stats;

pub use clock::{Clock, ManualClock};
pub use direct::{KEY_MAX, VALUE_MAX};
pub use engine::{Commit, Each, Engine, Expected, Salvage, Watching, What, Write};
pub use entry::{Change, Entry, Put, Token, Value, Version};
pub use error::{OpenError, ReadError, WriteError};
pub use stats::{Costs, Memory, Report, Stats};
pub use terrace_index::{CURSOR_LIMIT, CacheStats, Cursor};
