//! Resident memory of a process with a store, whatever it does, and how long an open takes after it
//! was killed.
//!
//! The process is a child of this one, with the allocator's own settings.

use super::tables::{Table, Tables};
use super::work::{VALUE_BYTES, dram, get, load, operations, shape, user_bytes};
use super::{NAME, records};
use crate::files::{Outcome, Place, alone, beside};
use crate::plan::Plan;
use crate::worker;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdout, Stdio};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};
use terrace::{ByteSize, Engine, Store};
use terrace_bench::{Bound, Choice, Kind, Random, Workload, Zipfian, process_resident_bytes};
use terrace_medium::files::{Files, Purpose, SystemFiles};

const TABLE: Table = Table::beside(
    "Resident memory of a process with a store, the most of all looks, one a millisecond",
    "of --dram",
    &["other"],
);
const OPENS: Table = Table::beside(
    "Opening a store whose process was killed; beside a read of the entries of all its blocks, past the page cache",
    "ms",
    &["entries"],
);
/// What the child does, one after the other.
const PHASES: [&str; 5] = ["load", "half puts, zipf", "puts, uniform", "gets, zipf", "gets, uniform"];
const OPEN: &str = "open";
const FIRST: &str = "open after kill -9";

pub(super) fn measure(plan: &Plan, place: &Place, tables: &mut Tables) -> Outcome<()> {
    let mut names = PHASES.iter().map(|phase| named(phase)).chain([named(OPEN), FIRST.into()]);
    if !names.any(|name| plan.begins(NAME, &name)) {
        return Ok(());
    }
    let (directory, records) = (place.fresh()?, records(plan));
    let store = directory.path().join("store");
    let memory = dram(records, user_bytes(VALUE_BYTES), 0.25);
    let mut child = Worker::start(&store, memory, records, true)?;
    for phase in PHASES {
        let (_, most) = child.phase(phase)?;
        resident(phase, most, memory, tables);
    }
    child.kill();
    let (bytes, entries) = read_entries(&store)?;
    let mut child = Worker::start(&store, memory, records, false)?;
    let (took, most) = child.phase(OPEN)?;
    resident(OPEN, most, memory, tables);
    let row = beside(FIRST.into(), took.parse()?, entries * 1e3, Some(Bound::AtMost(1.3)));
    tables.add(OPENS, row.noting(format!("{} MB of entries", bytes / 1_000_000)));
    Ok(())
}

fn named(phase: &str) -> String {
    format!("resident memory, {phase}")
}

/// Resident bytes of a process: all, and those that no file has.
#[derive(Clone, Copy, Debug, Default)]
struct Resident {
    all: u64,
    anonymous: u64,
}

impl Resident {
    fn of(pid: u32) -> Option<Self> {
        let all = process_resident_bytes(pid)?;
        let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
        let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:"))?;
        let anonymous: u64 = line.trim().strip_suffix(" kB")?.trim().parse().ok()?;
        Some(Self { all, anonymous: anonymous << 10 })
    }
}

fn resident(phase: &str, most: Resident, memory: u64, tables: &mut Tables) {
    let share = most.all as f64 / memory as f64;
    let [all, anonymous, memory] = [most.all, most.anonymous, memory].map(|bytes| bytes >> 20);
    let note = format!("{all} of {memory} MiB; {anonymous} of them are of no file");
    tables.add(TABLE, alone(named(phase), share, Some(Bound::AtMost(1.05))).noting(note));
}

/// A child with a store.
struct Worker {
    child: Child,
    stdout: BufReader<ChildStdout>,
}

impl Worker {
    fn start(store: &Path, memory: u64, records: u64, is_new: bool) -> Outcome<Self> {
        let command = worker::command().map_err(|error| error.to_string());
        let mut command = command?;
        for (name, _) in crate::ALLOCATOR_SETTINGS {
            command.env_remove(name);
        }
        command.arg(worker::TIERED).arg(store);
        command.args([memory.to_string(), records.to_string(), is_new.to_string()]);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let stdout = child.stdout.take().ok_or("the worker has no output")?;
        Ok(Self { child, stdout: BufReader::new(stdout) })
    }

    /// Waits until it has ended a phase. Returns what it says, and what was resident at most.
    fn phase(&mut self, phase: &str) -> Outcome<(String, Resident)> {
        let (stop, pid, stdout) = (&AtomicBool::new(false), self.child.id(), &mut self.stdout);
        let (line, most) = std::thread::scope(|scope| {
            let watch = scope.spawn(move || {
                let mut most = Resident::default();
                while !stop.load(Relaxed) {
                    let now = Resident::of(pid).unwrap_or_default();
                    most = if now.all > most.all { now } else { most };
                    std::thread::sleep(Duration::from_millis(1));
                }
                most
            });
            let mut line = String::new();
            let read = stdout.read_line(&mut line);
            stop.store(true, Relaxed);
            (read.map(|_| line), watch.join().expect("a thread panicked"))
        });
        let line = line?;
        let said = line.trim().strip_prefix(phase).ok_or_else(|| format!("a worker failed at: {phase}"))?;
        Ok((said.trim().to_owned(), most))
    }

    fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        self.kill();
    }
}

/// The child. `arguments`: the store's directory, its DRAM, its records, and whether it is new.
pub(crate) fn run(arguments: &[String]) -> Outcome<()> {
    let [path, memory, records, is_new] = arguments else {
        return Err("a worker takes four arguments".into());
    };
    let (records, is_new) = (records.parse::<u64>()?, is_new.parse::<bool>()?);
    let options = Store::options().directory(path).engine(Engine::Tiered);
    let options = options.memory(ByteSize::bytes(memory.parse()?));
    let began = Instant::now();
    let store = options.open_or_create()?;
    if is_new {
        PHASES.iter().try_for_each(|phase| {
            do_phase(&store, phase, records)?;
            say(phase)
        })?;
    } else {
        let took = began.elapsed().as_secs_f64() * 1e3;
        if store.len() != records {
            return Err(format!("{} records of {records}", store.len()).into());
        }
        say(&format!("{OPEN} {took}"))?;
    }
    // Until it is killed.
    std::io::stdin().read_line(&mut String::new())?;
    Ok(())
}

fn say(what: &str) -> Outcome<()> {
    writeln!(std::io::stdout(), "{what}")?;
    Ok(std::io::stdout().flush()?)
}

fn do_phase(store: &Store, phase: &str, records: u64) -> Outcome<()> {
    let skewed = Choice::Skewed(Zipfian::THETA);
    let (reads, choice, count) = match phase {
        "load" => return load(store, VALUE_BYTES, 0..records),
        "half puts, zipf" => (50, skewed, records / 2),
        "puts, uniform" => (0, Choice::Uniform, records / 2),
        "gets, zipf" => (100, skewed, records / 4),
        _ => (100, Choice::Uniform, records / 100),
    };
    let (shape, mut key) = (shape(VALUE_BYTES), Vec::new());
    let (mut random, mut value) = (Random::new(1), [0; VALUE_BYTES]);
    for operation in operations(Workload::reads_and_updates(reads, choice), records, 1).take(count as usize) {
        shape.key(operation.record, &mut key);
        if operation.kind == Kind::Read {
            get(store, &key)?;
        } else {
            random.fill(&mut value);
            store.put(&key, value)?;
        }
    }
    Ok(())
}

/// Reads the entries of all blocks of a store. Returns their bytes, and seconds.
fn read_entries(store: &Path) -> Outcome<(u64, f64)> {
    /// Bytes of a block's foot, the word of it that counts records, and bytes of an entry.
    const FOOT: u64 = 8 * 18;
    const RECORDS: usize = 6;
    const ENTRY: u64 = 32;
    let (mut bytes, mut piece, start) = (0, vec![0; 1 << 20], Instant::now());
    for entry in std::fs::read_dir(store)? {
        let path = entry?.path();
        if path.extension().is_none_or(|extension| extension != "block") {
            continue;
        }
        let file = SystemFiles.open(&path, Purpose::ReadDirect)?;
        let (end, mut foot) =
            (file.length()?.checked_sub(FOOT).ok_or("a block is too short")?, [0; FOOT as usize]);
        file.read_exact_at(&mut foot, end)?;
        let records = u64::from_le_bytes(*foot[8 * RECORDS..].first_chunk().expect("eight bytes"));
        let mut at = end.checked_sub(records * ENTRY).ok_or("a block has too many records")?;
        bytes += end - at;
        while at < end {
            let len = piece.len().min((end - at) as usize);
            file.read_exact_at(&mut piece[..len], at)?;
            at += len as u64;
        }
    }
    Ok((bytes, start.elapsed().as_secs_f64()))
}
