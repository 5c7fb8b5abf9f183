//! An in-memory file system that keeps after a crash no more than a real one guarantees, and a
//! wrapper that injects failing calls.
//!
//! - [`SimFs`] is a [`Files`](terrace_medium::files::Files): the visible names and bytes, and the
//!   durable ones. [`SimFs::crash`] simulates a power failure. Each unsynced sector of 512 bytes,
//!   or each page of 4 KiB, is kept or lost; so is each unsynced change of names, in any
//!   combination. [`SimFs::flip_bits`] damages durable data.
//! - [`Faulty`] wraps any file system, this one or the machine's. It fails the nth call, and makes
//!   reads and writes short.
//!
//! Not simulated: a failed sync that loses the data it should have kept (after a sync failed by
//! [`Faulty`], the bytes stay unsynced and the next sync keeps them), hard links, symbolic links,
//! permissions.

mod disk;
mod faulty;
mod files;

pub use faulty::{Fault, Faulty, FaultyFile};
pub use files::{SimFile, SimFs};
