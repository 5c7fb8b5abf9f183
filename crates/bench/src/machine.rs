//! Facts about the machine, and the system's counters of a process.

use std::fs;
use std::hint::black_box;
use std::sync::atomic::Ordering::Relaxed;
use terrace_medium::{Medium, Offset, Region, Word};

/// The machine that a report was made on.
#[derive(Clone, Debug)]
pub struct Machine {
    /// The processor's name, family, model and stepping.
    pub processor: String,
    /// Processors that may be used.
    pub processors: usize,
    /// Bytes of memory.
    pub memory_bytes: u64,
    /// The kernel's release.
    pub kernel: String,
    /// The kernel's rule for transparent huge pages of anonymous memory.
    pub huge_pages: String,
}

impl Machine {
    /// This machine.
    pub fn here() -> Self {
        let cpu = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        let field = |name| field(&cpu, name).unwrap_or("?");
        let processor =
            format!("{}, family {} model {}", field("model name"), field("cpu family"), field("model\t"));
        let memory = fs::read_to_string("/proc/meminfo").unwrap_or_default();
        let kib =
            self::field(&memory, "MemTotal").and_then(|v| v.split_whitespace().next()?.parse::<u64>().ok());
        let huge = fs::read_to_string("/sys/kernel/mm/transparent_hugepage/enabled").unwrap_or_default();
        let chosen = huge.split_whitespace().find_map(|w| w.strip_prefix('[')?.strip_suffix(']'));
        Self {
            processor,
            processors: std::thread::available_parallelism().map_or(1, usize::from),
            memory_bytes: kib.unwrap_or(0) * 1024,
            kernel: fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default().trim().to_owned(),
            huge_pages: chosen.unwrap_or("not known").to_owned(),
        }
    }
}

/// The value of the first line `name... : value`.
fn field<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    text.lines()
        .find(|line| line.starts_with(name))
        .and_then(|line| line.split_once(':'))
        .map(|(_, v)| v.trim())
}

/// The fields of /proc/PID/stat from the third on. (The second, the program's name, may contain
/// anything.)
fn stat(pid: u32) -> Option<Vec<u64>> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let fields = stat.rsplit_once(')')?.1;
    Some(fields.split_whitespace().map(|field| field.parse().unwrap_or(0)).collect())
}

/// Processor seconds that process `pid` has used, in user and system mode, in steps of 1/100.
pub fn process_cpu_seconds(pid: u32) -> Option<f64> {
    let fields = stat(pid)?;
    // proc(5): utime and stime are the 14th and 15th field, in ticks; Linux counts 100 a second.
    Some((fields.get(11)? + fields.get(12)?) as f64 / 100.0)
}

/// Resident bytes of process `pid`, private or shared.
pub fn process_resident_bytes(pid: u32) -> Option<u64> {
    status_bytes(pid, "VmRSS")
}

/// As [`process_resident_bytes`], without shared memory: heap, stacks and resident parts of its
/// program's file.
pub fn process_private_bytes(pid: u32) -> Option<u64> {
    Some(status_bytes(pid, "RssAnon")? + status_bytes(pid, "RssFile")?)
}

fn status_bytes(pid: u32, name: &str) -> Option<u64> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let kib: u64 = field(&status, name)?.split_whitespace().next()?.parse().ok()?;
    Some(kib * 1024)
}

/// Stores to every page of `region` without changing it. A page that was only read is still the
/// shared page of zeros: the first store is a fault of its own. It takes milliseconds if the host
/// of a virtual machine has to provide a huge page.
pub fn touch<M: Medium>(region: &Region<M>) {
    // The compiler must not know that nothing is added, or it would make this a load.
    let nothing = black_box(0);
    for page in (0..region.medium().len() as u64).step_by(4096) {
        region.at(Offset::<Word>::new(page)).fetch_or(region.medium(), nothing, Relaxed);
    }
}

/// Pages that this process has touched for the first time so far. Timed code that touches many
/// pages measures the kernel.
pub fn page_faults() -> u64 {
    stat(std::process::id()).and_then(|fields| fields.get(7).copied()).unwrap_or(0)
}
