//! Ending a participant that stands still. It keeps what it holds, and nobody may treat it as dead while it could go on; so it is made dead.

use crate::error::Holder;
use crate::pool::Pool;
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use std::fs::File;
use std::io;
use std::os::unix::fs::MetadataExt;
use terrace_medium::MappedMedium;

impl<M: MappedMedium> Pool<M> {
    /// Kills the process of `holder`, one of [`Pool::other_participants`], if it still shares this pool, still stands still and has not run in between. Whether it did. What it has left is taken back as after
    /// any death.
    ///
    /// # Errors
    /// If the system refuses, as where the process is another user's.
    pub fn end_stopped(&self, holder: &Holder) -> io::Result<bool> {
        let Some(pid) = i32::try_from(holder.pid).ok().and_then(Pid::from_raw) else { return Ok(false) };
        // First a handle, then the look at whose it is: a number may be given to another process at any time, a handle not.
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

/// Whether the process `pid` has `file` open: a number in the pool may be one of another namespace of processes, where it means somebody else.
fn has_open(pid: u32, file: &File) -> io::Result<bool> {
    let of = |metadata: std::fs::Metadata| (metadata.dev(), metadata.ino());
    let wanted = of(file.metadata()?);
    let open = std::fs::read_dir(format!("/proc/{pid}/fd"))?;
    // One that is closed meanwhile is not it.
    Ok(open.flatten().any(|entry| std::fs::metadata(entry.path()).is_ok_and(|found| of(found) == wanted)))
}
