//! The log: records in order over several files, its *segments*.
//!
//! ```text
//!   0000000007.log: | head | record | record | ... | end |        see `head` and `record`
//!   0000000008.log: | head | record | ... | zeros                 records go here
//!   0000000009.log: | zeros                                       prepared
//! ```
//! A *position* counts bytes over all segments. A record lies in one segment, and chains of sums
//! run through all of them.
//!
//! **Torn tail or damage.** The first bad record ends a replay. It is the *tail* that a power loss
//! tore, unless a valid header behind it says that this position was durable: then the file is
//! damaged. Headers behind it are found by looking at every eighth byte, since they are valid by
//! themselves. So damage is told apart as soon as any record was written after the sync that
//! covered the damaged part, or the log was closed. [`Replayed::end`] tells how far the log goes,
//! for a caller that knows from elsewhere how far it must go.
//!
//! **Where a segment ends.** A writer that goes on to the next segment leaves an end record, so a
//! segment missing behind it is noticed. After a crash the writer begins a new segment, whose head
//! says where the old one ended; nothing is ever written behind a torn tail. Numbers have no gap:
//! segments are removed one by one, the directory synced after each, the oldest first when they are
//! released and the newest first when they lie behind a torn tail. The next segment has its name
//! before an end record names it, and keeps it from then on: it is emptied, not removed.
//!
//! **No room.** If a write lacks room, every record that is not written completely is taken out:
//! the file is cut and synced. Its positions are never used again, so [`Log::write`] answers
//! [`DiskError::Full`](crate::DiskError::Full) for them for good. The next record begins a segment.
//! Records that make room get that of the [`Reserve`](crate::Reserve); until it is kept again, they
//! go to small segments, and no other record is taken.
//!
//! **Failure.** A failed sync, or a write that fails otherwise, is the end of the log: what is
//! durable is unknown from then on. Every later call returns that error. A log that is opened again
//! writes the records anew that it does not know to be durable: a kernel may show bytes that a
//! failed sync has lost, and never write them.

mod copy;
mod head;
mod open;
mod record;
mod records;
mod replay;
mod salvage;
mod segment;
mod state;
mod writer;

pub(crate) use head::{HEAD, Head, read_head, store_in};
pub(crate) use record::{Chain, HEADER, Header, Owner, payload_sum, size};
pub(crate) use records::{Records, renew};

pub use copy::Cut;
pub use replay::{Record, Replayed, Tail, replay};
pub use salvage::salvage_log;
pub(crate) use segment::allocate;
pub use segment::create as create_file;
pub use writer::{Log, LogOptions, Need};

/// How a segment of the log begins.
pub(crate) const MAGIC: [u8; 8] = segment::MAGIC;

/// A place in a log: bytes over all its segments. It only grows.
pub type Position = u64;

/// Bytes of the longest payload of a record.
pub const LOG_PAYLOAD_MAX: usize = record::PAYLOAD_MAX;
