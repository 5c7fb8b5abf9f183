//! An in-memory file system that keeps after a crash no more than a real one guarantees, and a
//! wrapper that injects failing calls.
//!
//! - [`SimFs`] is a [`Files`]: the visible names and bytes, and the
//!   durable ones. [`SimFs::crash`] simulates a power failure. Each unsynced sector of 512 bytes,
//!   or each page of 4 KiB, is kept or lost; so is each unsynced change of names, in any
//!   combination. [`SimFs::crash_states`] lists all such states of a short history, as copies;
//!   [`SimFs::directed_crashes`] those few that show a missing sync. [`SimFs::flip_bits`] damages
//!   durable data.
//! - [`SimFs::fail_sync`] fails a sync that then loses what it should have kept, as a kernel may.
//!   [`SimFs::skip_sync`] leaves one out, and [`SimFs::set_capacity`] lets the disk run full.
//! - [`Faulty`] wraps any file system, this one or the machine's. It fails the nth call, and makes
//!   reads and writes short. A sync that it fails never reaches the file system below: the bytes
//!   stay unsynced and the next sync keeps them. [`Faulty::watched`] shows each call to a test.
//!
//! Not simulated: symbolic links, permissions, quotas, sparse files (a file takes its length of the
//! capacity, names take nothing), and the page cache ([`Purpose::ReadDirect`] is a plain read).
//!
//! [`Purpose::ReadDirect`]: terrace_medium::files::Purpose::ReadDirect

mod content;
mod directed;
mod disk;
mod faulty;
mod files;
mod states;

pub use faulty::{Call, CallKind, Fault, Faulty};
pub use files::{SimFile, SimFs, SimLock};

use std::sync::Arc;
use terrace_medium::files::Files;

/// A file system of a test. Its clones are the same one.
pub trait Handle: Clone + Into<Arc<dyn Files>> {
    /// The file system, as a store takes it.
    fn handle(&self) -> Arc<dyn Files> {
        self.clone().into()
    }
}

impl<T: Clone + Into<Arc<dyn Files>>> Handle for T {}
