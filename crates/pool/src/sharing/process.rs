//! What the kernel tells about a process, by /proc.

/// The kernel's name for the running process `pid`.
pub(crate) fn program_of(pid: u32) -> String {
    std::fs::read_to_string(format!("/proc/{pid}/comm"))
        .map_or_else(|_| String::new(), |s| printable(s.trim_end()))
}

pub(crate) fn printable(text: &str) -> String {
    text.chars().filter(|c| !c.is_control()).collect()
}

/// The start time of process `pid`, in ticks since boot; `None` if there is no such process.
pub(crate) fn process_start(pid: u32) -> Option<u64> {
    field_of(pid, 22)?.parse().ok()
}

/// Whether all threads of process `pid` are stopped, by a signal or a debugger. A debugger may stop
/// single threads.
pub(crate) fn is_stopped(pid: u32) -> bool {
    // The first thread may have ended before the others. While it runs, no further check is needed.
    if !matches!(field_of(pid, 3).as_deref(), Some("T" | "t" | "Z")) {
        return false;
    }
    let Ok(threads) = std::fs::read_dir(format!("/proc/{pid}/task")) else { return false };
    let mut any = false;
    for thread in threads.flatten() {
        let stat = std::fs::read_to_string(thread.path().join("stat"));
        match stat.as_ref().ok().and_then(|stat| field(stat, 3)) {
            Some("T" | "t") => any = true,
            // An ended thread does not run.
            None | Some("Z" | "X") => {}
            Some(_) => return false,
        }
    }
    any
}

/// CPU time of the threads of process `pid`, ended ones included, in the kernel's ticks.
pub(crate) fn ran_ticks(pid: u32) -> u64 {
    let ticks =
        [14, 15].map(|number| field_of(pid, number).and_then(|ticks| ticks.parse().ok()).unwrap_or(0));
    ticks.iter().sum()
}

fn field_of(pid: u32, number: usize) -> Option<String> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    field(&stat, number).map(str::to_string)
}

/// Field `number`, from the third on, of /proc/PID/stat, counted as in proc_pid_stat(5). (The
/// second field, the program in parentheses, may itself contain spaces and parentheses.)
pub(crate) fn field(stat: &str, number: usize) -> Option<&str> {
    let (_, fields) = stat.rsplit_once(')')?;
    fields.split_whitespace().nth(number - 3)
}
