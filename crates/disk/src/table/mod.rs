//! Tables: items in order in a file that never changes.
//!
//! ```text
//!   | block | block | ... | partition | block | ... | partition | ... | top | properties | foot |
//! ```
//! A *block* has about 4 KiB of items (see `block`). A *partition* follows the blocks that it
//! describes, about 128: the last key and the length of each, and a filter over their keys. The
//! *top* has the last key and the place of each partition; it stays in memory. So a get of a key
//! that the table does not have reads no block, and one of a key that it has reads one: partitions
//! are small enough to be cached before blocks.
//!
//! Each of these pieces ends with one byte that says how it is compressed, and a checksum that
//! covers it, seeded by the table's number and the piece's offset. So neither a changed byte nor a
//! piece of another place or table passes.
//!
//! The *foot* is the last 64 bytes:
//!
//! ```text
//!   | magic u64 | format u32 | 0 u32 | table u64 | top: offset u64, bytes u32
//!   | properties: bytes u32 | store u64 | 0 u64 | checksum u64 |
//! ```

mod block;
mod cursor;
mod filter;
#[cfg(test)]
#[path = "tests/fuzz.rs"]
mod fuzz;
mod partition;
mod piece;
mod properties;
mod reader;
mod sketch;
mod writer;

pub use cursor::TableCursor;
pub use filter::FilterKind;
pub use properties::{Expiring, Properties};
pub use reader::{Found, TableCache, TableReader};
pub use sketch::Sketch;
pub use writer::{TableOptions, TableWriter};
