//! A child process of this program that fills a store, so that a parent can kill it or measure its
//! memory.

use crate::records::{key, value};
use crate::{ordered, tiered};
use std::io::{self, BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};
use terrace::{ByteSize, Index, Put, Stats, Store};
use terrace_bench::Random;

/// The first argument that makes this program a worker.
pub(crate) const WORKER: &str = "worker-of-cargo-peers";

/// The first argument of a worker that fills a map in its own memory.
pub(crate) const MAP: &str = "map";

type Outcome<T> = Result<T, Box<dyn std::error::Error>>;

/// The first argument of a worker that has a store over DRAM and files.
pub(crate) const TIERED: &str = "tiered";

/// A child that has filled the pool at a path.
pub(crate) struct Worker {
    child: Child,
    /// Its message when the pool was filled.
    pub(crate) said: String,
    stdout: BufReader<ChildStdout>,
}

impl Worker {
    /// Starts a worker that fills `pool`, made with `index`, with `records` records, and prints
    /// what the pool uses. With `load` it then overwrites records until it is killed. Returns once
    /// it has printed.
    pub(crate) fn start(pool: &Path, index: Index, records: u64, load: bool) -> Outcome<Self> {
        let mut child = command()?
            .args([
                pool.as_os_str(),
                index.name().as_ref(),
                records.to_string().as_ref(),
                load.to_string().as_ref(),
            ])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let stdout = child.stdout.take().ok_or("the worker has no output")?;
        let mut worker = Self { child, said: String::new(), stdout: BufReader::new(stdout) };
        worker.stdout.read_line(&mut worker.said)?;
        match worker.said.trim().is_empty() {
            true => Err("a worker could not fill its pool".into()),
            false => Ok(worker),
        }
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Kills it as `kill -9` does, at whatever instruction.
    pub(crate) fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        self.kill();
    }
}

/// The pool's size for `records` records: twice what they take.
pub(crate) fn pool_size(records: u64) -> ByteSize {
    ByteSize::mib(64 + records * 300 / (1 << 20))
}

/// A command that runs this program as a worker, without arguments yet.
pub(crate) fn command() -> Outcome<Command> {
    let mut command = Command::new(std::env::current_exe()?);
    command.arg(WORKER);
    Ok(command)
}

/// Runs a worker. `arguments`: the pool, its index, the number of records, whether to overwrite; or
/// [`MAP`] and those of a map, or [`TIERED`] and those of a store.
pub(crate) fn run(arguments: &[String]) -> Outcome<()> {
    if let [first, rest @ ..] = arguments
        && first == MAP
    {
        return ordered::run(rest);
    }
    if let [first, rest @ ..] = arguments
        && first == TIERED
    {
        return tiered::worker(rest);
    }
    let [pool, index, records, load] = arguments else { return Err("a worker takes four arguments".into()) };
    let index = Index::named(index).ok_or("a worker knows no such index")?;
    let (records, load) = (records.parse::<u64>()?, load.parse::<bool>()?);
    // Without huge pages, which would round up the memory that is measured here.
    let options = Store::options().path(pool).index(index).size(pool_size(records)).huge_pages(false);
    let store = options.open_or_create()?;
    fill(&store, records)?;
    writeln!(io::stdout(), "{}", describe(&store.stats()))?;
    io::stdout().flush()?;
    if load {
        overwrite(&store, records)?;
    }
    // Ends when the parent closes its end or exits.
    io::stdin().read_line(&mut String::new())?;
    Ok(())
}

fn fill(store: &Store, records: u64) -> Outcome<()> {
    for first in (store.len()..records).step_by(64) {
        let numbers = first..records.min(first + 64);
        let pairs: Vec<_> = numbers.map(|number| (key(number), value(number))).collect();
        let puts: Vec<_> = pairs.iter().map(|(key, value)| Put { key, value, expires_at: None }).collect();
        for outcome in store.put_many(&puts) {
            outcome?;
        }
    }
    Ok(())
}

/// Overwrites records until the process is killed.
fn overwrite(store: &Store, records: u64) -> Outcome<()> {
    let mut random = Random::new(records);
    loop {
        let number = random.below(records);
        store.put(key(number), value(number))?;
    }
}

/// Bytes of the pool that are in use.
fn describe(stats: &Stats) -> u64 {
    stats.pool.map_or(0, |pool| pool.size_bytes - pool.free_bytes)
}
