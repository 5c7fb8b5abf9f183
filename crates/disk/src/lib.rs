//! What engines on files share: sorted tables, a log, a manifest of what there is, and the order in
//! which all that becomes durable.
//!
//! Nothing here starts a thread, reads a clock or draws a random number. The engine hands in the
//! files ([`Files`](terrace_medium::files::Files)), so a test can replace the disk.
#![forbid(unsafe_code)]

mod bounded;
pub mod codec;
pub mod cold;
mod directory;
mod ends;
mod error;
mod item;
mod log;
mod manifest;
mod merge;
mod rate;
mod reserve;
mod source;
mod table;
mod versions;

pub use bounded::BoundedFiles;
pub use directory::{Directory, Identity, Place, list_files};
pub use ends::Ends;
pub use error::DiskError;
pub use item::{Content, Item};
pub use log::{
    Cut, LOG_PAYLOAD_MAX, Log, LogOptions, Need, Position, Record, Replayed, Tail, create_file, replay,
    salvage_log,
};
pub use manifest::{EDIT_MAX, Manifest, salvage_edits};
pub use merge::Merge;
pub use rate::Rate;
pub use reserve::{Lent, Reserve};
pub use source::{OwnedItem, Sorted, Source};
pub use table::{
    Expiring, FilterKind, Found, Properties, Sketch, TableCache, TableCursor, TableOptions, TableReader,
    TableWriter,
};
pub use versions::{Dropped, Entry, Kept, Visible};
