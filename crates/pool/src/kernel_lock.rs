//! The lines in which the kernel tells of a lock: in /proc/locks (proc_locks(5)), and behind `lock:` in the `fdinfo` of a file that has one (proc_pid_fdinfo(5)).

/// A lock as the kernel names it: `1: OFDLCK ADVISORY WRITE -1 00:1b:7 16 16`.
pub(crate) struct KernelLock<'l> {
    /// `FLOCK`, `OFDLCK` or `POSIX`.
    pub(crate) kind: &'l str,
    /// Whether it keeps everybody else out.
    pub(crate) is_exclusive: bool,
    /// Who has it; none if it belongs to an opening of the file.
    pub(crate) pid: Option<u32>,
    /// The file: its device's numbers in hexadecimal and its inode's, `00:1b:7`.
    pub(crate) file: &'l str,
    /// The first byte and the last; none if there is no last one.
    pub(crate) bytes: (i64, Option<i64>),
}

impl<'l> KernelLock<'l> {
    /// The lock that `line` tells of; none if it tells of none, or of somebody who waits for one.
    pub(crate) fn parse(line: &'l str) -> Option<Self> {
        let words: Vec<&str> = line.strip_prefix("lock:").unwrap_or(line).split_whitespace().collect();
        let [_, kind, _, access, pid, file, first, last] = words[..] else { return None };
        let bytes = (first.parse().ok()?, last.parse().ok());
        Some(Self { kind, is_exclusive: access == "WRITE", pid: pid.parse().ok(), file, bytes })
    }
}
