//! Detects an exiting process: it stores nothing any more, but still has its locks.
//!
//! The kernel releases the memory of a dying process before it closes its files and so releases its
//! locks. With many GB, or while other processes keep the kernel busy, that takes seconds.
//! Survivors need not wait for it, since a process without memory stores nothing. /proc shows both:
//! which threads of a process have memory, and which locks its files have (proc_pid_stat(5),
//! proc_pid_fdinfo(5)).

use crate::error::Holder;
use crate::sharing::kernel_lock::KernelLock;
use crate::sharing::process::{field, is_stopped, program_of};
use rustix::fs::{Dir, Mode, OFlags, openat};
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::Path;

/// The kernel's name for `file` in its lists of locks, if this open file description has a lock.
/// (The file's metadata may name another device.)
pub(crate) fn kernel_name(file: &File) -> Option<String> {
    let text = std::fs::read_to_string(format!("/proc/self/fdinfo/{}", file.as_raw_fd())).ok()?;
    let lock = text.lines().filter(|line| line.starts_with("lock:")).find_map(KernelLock::parse);
    Some(lock?.file.to_string())
}

/// The kernel's directory of processes.
pub(crate) const PROC: &str = "/proc";

/// Whether process `pid` has no memory, but an exclusive lock on `byte` of `file`, the kernel's
/// name. False if the system does not say. `proc` is [`PROC`] or a directory laid out like it.
pub(crate) fn has_released_memory(proc: &Path, pid: u32, file: &str, byte: i64) -> bool {
    has_no_memory(proc, pid, |process| holds(process, file, byte)).unwrap_or(false)
}

/// The process with an exclusive lock on `byte` of `file`, the kernel's name, as far as visible
/// from here. Looks at all processes.
pub(crate) fn lock_owner(file: &str, byte: i64) -> Option<Holder> {
    let names = std::fs::read_dir("/proc").ok()?.flatten().map(|entry| entry.file_name());
    let mut processes = names.filter_map(|name| name.to_str()?.parse::<u32>().ok());
    let has_it = |pid: &u32| {
        let process = directory(rustix::fs::CWD, format!("/proc/{pid}"));
        process.is_ok_and(|process| holds(&process, file, byte).unwrap_or(false))
    };
    let pid = processes.find(has_it)?;
    Some(Holder {
        pid,
        program: program_of(pid),
        stopped: is_stopped(pid),
        is_local: true,
        ..Holder::default()
    })
}

/// Whether no thread of process `pid` has memory, and `also` holds.
fn has_no_memory(proc: &Path, pid: u32, also: impl FnOnce(&OwnedFd) -> io::Result<bool>) -> io::Result<bool> {
    // Refers to the same process even if its pid is reused.
    let process = directory(rustix::fs::CWD, proc.join(pid.to_string()))?;
    // The first thread ends last, or leaves the others running: mostly one look is enough.
    if has_memory(&process, "stat")? {
        return Ok(false);
    }
    let threads = names(&process, "task")?;
    for thread in &threads {
        if has_memory(&process, &format!("task/{thread}/stat"))? {
            return Ok(false);
        }
    }
    // Only a thread with memory starts a thread. If the first list missed one, the second shows it.
    let is_all = names(&process, "task")?.iter().all(|thread| threads.contains(thread));
    Ok(is_all && also(&process)?)
}

/// Whether the thread with this `stat` has memory mapped. An ended thread has none.
fn has_memory(process: &OwnedFd, stat: &str) -> io::Result<bool> {
    const MAPPED_BYTES: usize = 23;
    let stat = match read(process, stat) {
        Err(error) if is_gone(&error) => return Ok(false),
        read => read?,
    };
    Ok(field(&stat, MAPPED_BYTES) != Some("0"))
}

/// Whether a file of the process has an exclusive lock on `byte` of `file`, the kernel's name.
fn holds(process: &OwnedFd, file: &str, byte: i64) -> io::Result<bool> {
    for opened in names(process, "fdinfo")? {
        match read(process, &format!("fdinfo/{opened}")) {
            Ok(text) if text.lines().any(|line| is_lock_of(line, file, byte)) => return Ok(true),
            Err(error) if !is_gone(&error) => return Err(error),
            _ => {}
        }
    }
    Ok(false)
}

/// Whether a line of a file's `fdinfo` is such a lock.
fn is_lock_of(line: &str, file: &str, byte: i64) -> bool {
    KernelLock::parse(line).is_some_and(|lock| {
        let is_ours = lock.kind == "OFDLCK" && lock.is_exclusive && lock.file == file;
        is_ours && lock.bytes == (byte, Some(byte))
    })
}

fn directory(at: impl AsFd, path: impl AsRef<Path>) -> io::Result<OwnedFd> {
    Ok(openat(at, path.as_ref(), OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?)
}

/// The names in a directory of the process, except those that begin with a dot.
fn names(process: &OwnedFd, path: &str) -> io::Result<Vec<String>> {
    let entries = Dir::read_from(directory(process, path)?)?;
    let names = entries.map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned()));
    names.filter(|name| !name.as_ref().is_ok_and(|name| name.starts_with('.'))).collect()
}

fn read(process: &OwnedFd, path: &str) -> io::Result<String> {
    let mut text = String::new();
    let file = openat(process, path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?;
    File::from(file).read_to_string(&mut text)?;
    Ok(text)
}

/// Whether the file or process does not exist any more.
fn is_gone(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::ENOENT | libc::ESRCH))
}

#[cfg(test)]
#[path = "tests/ending.rs"]
pub(crate) mod tests;
