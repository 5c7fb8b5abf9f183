//! Data from the operating system: the section CPU, and fields of other sections.

use super::fields::{Figures, fields};
use crate::command::Context;

/// The section CPU: seconds of CPU time of the process.
pub(super) fn cpu(out: &mut String, _: &Context<'_>, _: &Figures) -> std::fmt::Result {
    let [user, system, user_children, system_children] = seconds();
    fields(
        out,
        &[
            ("used_cpu_sys", &format!("{system:.6}")),
            ("used_cpu_user", &format!("{user:.6}")),
            ("used_cpu_sys_children", &format!("{system_children:.6}")),
            ("used_cpu_user_children", &format!("{user_children:.6}")),
        ],
    )
}

/// CPU seconds in user mode and in the kernel, of this process and of its reaped children: fields
/// 14 to 17 of proc_pid_stat(5). Zeros if there is no such file.
fn seconds() -> [f64; 4] {
    let text = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    // The second field is the program's name in parentheses, and may contain any character.
    let fields: Vec<&str> =
        text.rsplit_once(')').map_or(Vec::new(), |(_, rest)| rest.split_whitespace().collect());
    let tick = 1.0 / rustix::param::clock_ticks_per_second() as f64;
    let ticks = |nth: usize| fields.get(nth - 3).and_then(|field| field.parse::<f64>().ok()).unwrap_or(0.0);
    [14, 15, 16, 17].map(|nth| ticks(nth) * tick)
}

/// The kernel's name, release and machine, as `uname -srm`.
pub(super) fn kernel() -> String {
    let name = rustix::system::uname();
    let parts = [name.sysname(), name.release(), name.machine()];
    parts.map(|part| part.to_string_lossy().into_owned()).join(" ")
}

/// Path of the running program.
pub(super) fn executable() -> String {
    std::env::current_exe().map_or(String::new(), |path| path.display().to_string())
}

/// Resident memory of this process, bytes.
pub(super) fn resident_bytes() -> u64 {
    kibibytes("/proc/self/status", "VmRSS:")
}

/// Memory of the machine, bytes.
pub(super) fn memory_bytes() -> u64 {
    kibibytes("/proc/meminfo", "MemTotal:")
}

/// A value in KiB from a file of the kernel, in bytes; 0 if there is no such file.
fn kibibytes(file: &str, name: &str) -> u64 {
    let text = std::fs::read_to_string(file).unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix(name)).unwrap_or_default();
    line.split_whitespace().next().and_then(|kib| kib.parse::<u64>().ok()).unwrap_or(0) * 1024
}
