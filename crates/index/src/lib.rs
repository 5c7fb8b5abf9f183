//! The indexes of Terrace: one algorithm a folder, each written once for every medium.
//!
//! An index maps a key to one 64-bit word. The caller gives the word its meaning; for byte-string
//! keys it is the offset of a record that contains the key. Keys have a [`KeyKind`]: [`U64`],
//! stored inline, or [`Bytes`], read from the record.
//!
//! Every operation takes a [`Guard`](terrace_pool::Guard): while it lives, nothing that the
//! operation returned is reused. Operations are linearizable, and durable on their medium when they
//! return. Reads take no lock and never wait.
#![forbid(unsafe_code)]

mod change;
mod count;
pub mod cursor;
pub mod hash;
mod key;
mod layers;
pub mod ordered;
mod point;
mod range;

pub use change::{ChangeError, Decision, Deferred, Fencing, Swapped};
pub use cursor::{CURSOR_LIMIT, Cursor, Place, Position};
pub use hash::{CacheBounds, CacheStats};
pub use key::{Bytes, KeyKind, RecordKeys, U64};
pub use layers::{LayerOptions, LayerStats};
pub use point::{Damage, IndexStats, Inserted, Key, PointIndex, StoreError, Stored};
pub use range::{Direction, RangeIndex};
