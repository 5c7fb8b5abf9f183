//! Parses the kernel's lock lines: those of /proc/locks (proc_locks(5)), and those after `lock:` in
//! the `fdinfo` of a file with locks (proc_pid_fdinfo(5)).

/// A lock as the kernel prints it: `1: OFDLCK ADVISORY WRITE -1 00:1b:7 16 16`.
pub(crate) struct KernelLock<'l> {
    /// `FLOCK`, `OFDLCK` or `POSIX`.
    pub(crate) kind: &'l str,
    /// Whether it excludes all others.
    pub(crate) is_exclusive: bool,
    /// The owning process; none if the lock belongs to an open file description.
    pub(crate) pid: Option<u32>,
    /// The file: its device numbers in hexadecimal and its inode number, `00:1b:7`.
    pub(crate) file: &'l str,
    /// The first byte and the last; none if the lock has no end.
    pub(crate) bytes: (i64, Option<i64>),
}

impl<'l> KernelLock<'l> {
    /// The lock in `line`; none if the line is not a lock, or is a process that waits for one.
    pub(crate) fn parse(line: &'l str) -> Option<Self> {
        let words: Vec<&str> = line.strip_prefix("lock:").unwrap_or(line).split_whitespace().collect();
        let [_, kind, _, access, pid, file, first, last] = words[..] else { return None };
        let bytes = (first.parse().ok()?, last.parse().ok());
        Some(Self { kind, is_exclusive: access == "WRITE", pid: pid.parse().ok(), file, bytes })
    }
}
