//! A file system in memory that keeps after a crash no more than a real one promises, and calls that fail when a test says so.
//!
//! - [`SimFs`] is a [`Files`](terrace_medium::files::Files): names and bytes as programs see them, and beside them what a loss of power would leave. [`SimFs::crash`]
//!   makes that loss: of what was not synced each sector of 512 bytes, or each page of 4 KiB, is there or not; of the changes of names each
//!   is there or not, whatever their order. [`SimFs::flip_bits`] damages what is kept.
//! - [`Faulty`] stands on any file system, this one or the machine's. It fails the nth call, and makes reads and writes short.
//!
//! Left out: a sync that fails and takes what it should have kept with it (after a sync that [`Faulty`] has failed, the bytes stay unsynced, and the next sync
//! keeps them), hard links, symbolic links, permissions.

mod disk;
mod faulty;
mod files;

pub use faulty::{Fault, Faulty, FaultyFile};
pub use files::{SimFile, SimFs};
