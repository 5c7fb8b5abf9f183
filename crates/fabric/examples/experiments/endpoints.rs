//! What endpoints cost.

use crate::half::{Child, print_line};
use std::time::{Duration, Instant};
use terrace_fabric::{Endpoint, Fabric};

pub(crate) fn run() {
    println!("-- endpoints, each with a domain of its own");
    for count in ["1", "16", "64"] {
        println!("{count}: {}", Child::start(&mut crate::child(&["open", count])).line("cost: "));
    }
    let mut defaults = crate::child(&["open", "16"]);
    defaults.env("FI_OFI_RXM_BUFFER_SIZE", "16384").env("FI_OFI_RXM_MSG_RX_SIZE", "4096");
    println!("16 with libfabric's own buffers: {}", Child::start(&mut defaults).line("cost: "));
}

pub(crate) fn open(count: usize) {
    let fabric = crate::fabric();
    drop(fabric.open().expect("an endpoint"));
    let before = State::now();
    let began = Instant::now();
    let endpoints: Vec<_> = (0..count).map(|_| fabric.open().expect("an endpoint")).collect();
    let opened = began.elapsed();
    let after = State::now();
    std::thread::sleep(Duration::from_secs(1));
    let idle_ticks = State::now().ticks - after.ticks;
    let began = Instant::now();
    endpoints.into_iter().for_each(|endpoint| endpoint.close().expect("closed"));
    let closed = began.elapsed();
    let each = |total: Duration| total.as_secs_f64() * 1e3 / count as f64;
    print_line(&format!(
        "cost: {} KiB, {} threads, {} descriptors; open {:.2} ms, close {:.2} ms each; {idle_ticks} ticks in a second",
        after.resident_kib - before.resident_kib,
        after.threads - before.threads,
        after.descriptors - before.descriptors,
        each(opened),
        each(closed),
    ));
}

struct State {
    resident_kib: u64,
    threads: u64,
    descriptors: usize,
    ticks: u64,
}

impl State {
    fn now() -> Self {
        let status = std::fs::read_to_string("/proc/self/status").expect("a status");
        let number = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name)).expect("a line");
            line.split_whitespace().next().and_then(|word| word.parse().ok()).expect("a number")
        };
        let stat = std::fs::read_to_string("/proc/self/stat").expect("a stat");
        let (_, fields) = stat.rsplit_once(')').expect("a name");
        let ticks =
            fields.split_whitespace().skip(11).take(2).map(|field| field.parse::<u64>().expect("ticks"));
        Self {
            resident_kib: number("VmRSS:"),
            threads: number("Threads:"),
            descriptors: std::fs::read_dir("/proc/self/fd").expect("descriptors").count(),
            ticks: ticks.sum(),
        }
    }
}
