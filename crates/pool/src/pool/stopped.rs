//! Kills a stopped participant. It keeps its locks and pins, and must not be treated as dead while
//! it could continue.

use crate::error::Holder;
use crate::pool::Pool;
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use std::fs::File;
use std::io;
use std::os::unix::fs::MetadataExt;
use terrace_medium::MappedMedium;

impl<M: MappedMedium> Pool<M> {
    /// Kills the process of `holder`, one of [`Pool::other_participants`], if it still shares this
    /// pool, is still stopped and has not run meanwhile. Returns whether it was killed. It is
    /// recovered like any dead participant.
    ///
    /// # Errors
    /// If the system refuses, as for another user's process.
    pub fn end_stopped(&self, holder: &Holder) -> io::Result<bool> {
        let Some(pid) = i32::try_from(holder.pid).ok().and_then(Pid::from_raw) else { return Ok(false) };
        // Open a handle first, then check its identity: a pid may be reused at any time, a handle
        // is not.
        let handle = match pidfd_open(pid, PidfdFlags::empty()) {
            Err(rustix::io::Errno::SRCH) => return Ok(false),
            opened => opened?,
        };
        let is_still = |other: &Holder| other.stopped && other.idle_since(holder);
        let Some(file) = self.medium().mapping().as_file() else { return Ok(false) };
        if !self.other_participants().iter().any(is_still) || !has_open(holder.pid, file)? {
            return Ok(false);
        }
        pidfd_send_signal(handle, Signal::KILL)?;
        Ok(true)
    }
}

/// Whether the process `pid` has `file` open. A pid in the pool may belong to another pid
/// namespace, where it names another process.
fn has_open(pid: u32, file: &File) -> io::Result<bool> {
    let of = |metadata: std::fs::Metadata| (metadata.dev(), metadata.ino());
    let wanted = of(file.metadata()?);
    let open = std::fs::read_dir(format!("/proc/{pid}/fd"))?;
    // An entry that is closed meanwhile does not match.
    Ok(open.flatten().any(|entry| std::fs::metadata(entry.path()).is_ok_and(|found| of(found) == wanted)))
}
