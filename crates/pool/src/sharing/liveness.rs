//! Which participants of a shared pool are alive.
//!
//! On one machine the kernel answers ([`FileLocks`]). Each participant holds a lock on a byte of
//! the pool's file, and the kernel releases it when the process has died, for whatever reason, and
//! not before: a stopped process still holds it. Hosts without a common kernel will have leases
//! instead. The trait separates the two: nothing else in an open pool relies on a common kernel.

use crate::sharing::ending::{PROC, has_released_memory, kernel_name, lock_owner};
use crate::sharing::fork::ForkSafe;
use crate::sync::backoff::{Backoff, rests_in};
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::path::PathBuf;
use std::time::Duration;

/// Distinguishes live participants of a shared pool from dead ones. Each participant has an
/// instance of its own.
///
/// All recovery by survivors relies on this contract:
///
/// - A participant for which [`Liveness::is_alive`] returns false stores nothing to the pool any
///   more. On one machine this holds by itself: a dead process stores nothing. An implementation
///   with leases, or one that declares unresponsive participants dead, must enforce it: such a
///   participant must notice before its next store that it has lost its slot, and stop. (It checks
///   its lease before each store, with time to spare for the store, or it is cut off from the
///   memory.) It then opens the pool again.
/// - A participant is dead for all others or for none, from some moment on until its slot is
///   claimed again. An instance that does not know reports it alive; that delays recovery and
///   breaks nothing.
/// - A stopped participant that may continue is alive.
///
/// Dropping the value releases its slot and the gate.
pub trait Liveness: Send + Sync {
    /// Claims the slot of participant `index` until this process dies; false if a live one has it.
    fn claim(&self, index: u32) -> io::Result<bool>;
    /// Releases the slot.
    fn release(&self, index: u32);
    /// Whether a live process has the slot, other than through `self`.
    fn is_alive(&self, index: u32) -> bool;
    /// Whether the slot's process, `pid` in the participant table, is known to store nothing any
    /// more. The caller then treats it as dead, before [`Liveness::is_alive`] returns false. An
    /// implementation need not know.
    fn is_exiting(&self, _index: u32, _pid: u32) -> bool {
        false
    }
    /// Enters the gate: waits until no other process opens or closes the pool, and keeps others out
    /// until [`Liveness::leave`] or death. If another process does not leave the gate, as when it
    /// is stopped, returns an error of kind `TimedOut` that describes it.
    fn enter(&self) -> io::Result<()>;
    /// Leaves the gate, see [`Liveness::enter`].
    fn leave(&self);
    /// Whether all participants run under one kernel. Then that kernel can execute a barrier in all
    /// their running threads, and process ids are meaningful.
    fn has_common_kernel(&self) -> bool {
        false
    }
}

/// Byte-range locks of a file that belong to one open file description (`F_OFD_SETLK`, fcntl(2)).
/// They lie beyond the end of any file.
pub(crate) struct FileLocks {
    // Dropped first.
    _fork_safe: ForkSafe,
    file: File,
    /// The directory in which it looks up whether a participant's process is exiting.
    proc: PathBuf,
}

/// The locked bytes; no process reads or writes there.
#[derive(Clone, Copy)]
pub(crate) enum LockByte {
    /// Held by a process that opens or closes the pool.
    Gate,
    /// Held by every process that shares it.
    Sharers,
    /// Held by every process that reads it and relies on no process writing.
    Readers,
    /// Held by participant `index`.
    Participant(u32),
}

impl LockByte {
    fn byte(self) -> libc::off_t {
        const BASE: libc::off_t = 1 << 62;
        match self {
            Self::Gate => BASE,
            Self::Sharers => BASE + 1,
            Self::Readers => BASE + 2,
            Self::Participant(index) => BASE + 16 + libc::off_t::from(index),
        }
    }
}

/// Number of sleeps at the gate after which a process checks what the gate's holder is doing.
const GATE_PATIENCE: u32 = rests_in(Duration::from_secs(2));
/// The same if the holder is not visible.
const GATE_PATIENCE_UNSEEN: u32 = rests_in(Duration::from_secs(60));

/// How a byte is locked.
#[derive(Clone, Copy)]
pub(crate) enum LockKind {
    /// Shared with others.
    Shared,
    /// Exclusively.
    Exclusive,
    /// Not at all.
    Unlocked,
}

impl FileLocks {
    /// The locks of `file`, which was opened for this purpose: copies of its handle share the
    /// locks.
    pub(crate) fn new(file: File) -> Self {
        Self { _fork_safe: ForkSafe::new(&file), file, proc: PathBuf::from(PROC) }
    }

    fn call(&self, command: libc::c_int, hold: LockKind, place: LockByte) -> io::Result<libc::flock> {
        let kind = match hold {
            LockKind::Shared => libc::F_RDLCK,
            LockKind::Exclusive => libc::F_WRLCK,
            LockKind::Unlocked => libc::F_UNLCK,
        };
        let mut lock = bytes(kind, place.byte(), 1);
        loop {
            // SAFETY: the descriptor is open as long as `self`, and `lock` is what these commands
            // expect.
            if unsafe { libc::fcntl(self.file.as_raw_fd(), command, &raw mut lock) } == 0 {
                return Ok(lock);
            }
            let error = io::Error::last_os_error();
            if error.kind() != io::ErrorKind::Interrupted {
                return Err(error);
            }
        }
    }

    /// Takes a lock if it is free now.
    pub(crate) fn try_hold(&self, hold: LockKind, place: LockByte) -> io::Result<bool> {
        match self.call(libc::F_OFD_SETLK, hold, place) {
            Ok(_) => Ok(true),
            Err(error) if matches!(error.raw_os_error(), Some(libc::EAGAIN | libc::EACCES)) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Returns an error if the gate's holder is stopped, or if it has not been visible for a long
    /// time. `turn` counts the sleeps of this process at the gate.
    fn check_gate(&self, turn: u32) -> io::Result<()> {
        let there = kernel_name(&self.file).and_then(|file| lock_owner(&file, LockByte::Gate.byte()));
        let why = match there {
            Some(holder) if holder.stopped => format!("{holder}, is opening or closing it"),
            None if turn >= GATE_PATIENCE_UNSEEN => {
                "a process that is not visible from here has been opening or closing it for a minute"
                    .to_string()
            }
            _ => return Ok(()),
        };
        Err(io::Error::new(io::ErrorKind::TimedOut, why))
    }

    /// Whether another process has a lock there.
    pub(crate) fn is_held(&self, place: LockByte) -> io::Result<bool> {
        let found = self.call(libc::F_OFD_GETLK, LockKind::Exclusive, place)?;
        Ok(found.l_type != libc::F_UNLCK as libc::c_short)
    }
}

/// The system's description of a lock on `len` bytes from `start` on; 0 is all to the end.
fn bytes(kind: libc::c_int, start: libc::off_t, len: libc::off_t) -> libc::flock {
    let (kind, from) = (kind as libc::c_short, libc::SEEK_SET as libc::c_short);
    libc::flock { l_type: kind, l_whence: from, l_start: start, l_len: len, l_pid: 0 }
}

/// Releases every lock of `file`'s open file description.
pub(crate) fn release_all(file: &File) {
    let mut all = bytes(libc::F_UNLCK, 0, 0);
    // SAFETY: the descriptor is open, and `all` is what the command expects. (No failure matters
    // here: the file is about to be closed.)
    let _ = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_OFD_SETLK, &raw mut all) };
}

impl Liveness for FileLocks {
    fn claim(&self, index: u32) -> io::Result<bool> {
        self.try_hold(LockKind::Exclusive, LockByte::Participant(index))
    }
    fn release(&self, index: u32) {
        let _ = self.try_hold(LockKind::Unlocked, LockByte::Participant(index));
    }
    fn is_alive(&self, index: u32) -> bool {
        // If the kernel does not say, the participant counts as alive.
        self.is_held(LockByte::Participant(index)).unwrap_or(true)
    }
    fn is_exiting(&self, index: u32, pid: u32) -> bool {
        let byte = LockByte::Participant(index).byte();
        kernel_name(&self.file).is_some_and(|file| has_released_memory(&self.proc, pid, &file, byte))
    }
    fn enter(&self) -> io::Result<()> {
        let mut backoff = Backoff::new();
        for turn in 1u32.. {
            if self.try_hold(LockKind::Exclusive, LockByte::Gate)? {
                return Ok(());
            }
            backoff.rest();
            if turn.is_multiple_of(GATE_PATIENCE) {
                self.check_gate(turn)?;
            }
        }
        unreachable!("it has waited for months")
    }
    fn leave(&self) {
        let _ = self.try_hold(LockKind::Unlocked, LockByte::Gate);
    }
    fn has_common_kernel(&self) -> bool {
        true
    }
}

#[cfg(test)]
#[path = "tests/liveness.rs"]
pub(crate) mod tests;
