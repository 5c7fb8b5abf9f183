//! Several processes on one store: the cost of a second one, of readiness for the crash of any, and
//! how long a crash blocks the others.

mod deaths;
pub(crate) mod lmdb;
pub(crate) mod notes;

use crate::plan::{Plan, say};
use crate::records::{VALUE_BYTES, key, value};
use crate::server::{self, RedisMode};
use crate::worker::pool_size;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Instant;
use terrace::{Index, Options, Put, Store};
use terrace_bench::{Bound, Measure, Random, Row, Section};
use terrace_index::{U64, hash::Clht};
use terrace_medium::{Pmem, Shm};

/// The first argument that makes this program a neighbour: another process with the same store or
/// pool.
pub(crate) const NEIGHBOUR: &str = "neighbour-of-cargo-peers";
const NAME: &str = "share";

type Outcome<T> = Result<T, Box<dyn std::error::Error>>;

/// All tables of results.
pub(crate) fn sections(plan: &Plan) -> Outcome<Vec<Section>> {
    let mut sections = vec![reads(plan)?, sockets(plan)?, lmdb::section(plan)?];
    sections.push(notes::section::<Clht<Shm, U64>, Clht<Pmem, U64>>(plan, "P-CLHT", NAME)?);
    sections.push(deaths::section(plan)?);
    sections.retain(|section| !section.rows.is_empty());
    Ok(sections)
}

fn options(path: &Path, records: u64) -> Options {
    Store::options().path(path).size(pool_size(records)).expected_keys(records).shared(true)
}

/// Another process. It executes the commands that it reads, one a line, and answers each with a
/// line.
struct Neighbour {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Neighbour {
    fn start(work: &str, path: &Path, records: u64) -> Outcome<Self> {
        let mut child = Command::new(std::env::current_exe()?)
            .args([NEIGHBOUR.as_ref(), work.as_ref(), path.as_os_str(), records.to_string().as_ref()])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let input = child.stdin.take().ok_or("the neighbour has no input")?;
        let output = BufReader::new(child.stdout.take().ok_or("the neighbour has no output")?);
        let mut neighbour = Self { child, input, output };
        neighbour.answer()?;
        Ok(neighbour)
    }

    fn ask(&mut self, what: u64) -> Outcome<f64> {
        self.begin(what)?;
        self.answer()
    }

    fn begin(&mut self, what: u64) -> Outcome<()> {
        writeln!(self.input, "{what}")?;
        Ok(self.input.flush()?)
    }

    /// The sum of the rates of the neighbour and this process, working at the same time.
    fn rate_together(&mut self, seed: u64, own: impl FnOnce(u64) -> f64) -> Outcome<f64> {
        self.begin(2 * seed)?;
        let own = own(2 * seed + 1);
        Ok(self.answer()? + own)
    }

    fn answer(&mut self) -> Outcome<f64> {
        let mut line = String::new();
        self.output.read_line(&mut line)?;
        line.trim().parse().map_err(|_| "the neighbour has died".into())
    }

    fn kill(&mut self) {
        let _ = self.child.kill();
    }
}

impl Drop for Neighbour {
    fn drop(&mut self) {
        self.kill();
        let _ = self.child.wait();
    }
}

/// Runs a neighbour. `arguments`: its work, the path, the number of records.
pub(crate) fn run(arguments: &[String]) -> Outcome<()> {
    let [work, path, records] = arguments else { return Err("a neighbour takes three arguments".into()) };
    let (path, records) = (Path::new(path), records.parse::<u64>()?);
    match work.as_str() {
        "reads" => {
            let store = options(path, records).open()?;
            answer_each(|seed| read_some(&store, records, seed))
        }
        "writes" => {
            let store = options(path, records).open()?;
            answer_each(|seed| write_some(&store, records, seed))
        }
        deaths::HOLDS => deaths::hold(path, records),
        _ => lmdb::run(work, path, records),
    }
}

fn answer_each(work: impl Fn(u64) -> f64) -> Outcome<()> {
    let mut out = std::io::stdout();
    writeln!(out, "0")?;
    out.flush()?;
    for line in std::io::stdin().lines() {
        writeln!(out, "{}", work(line?.parse()?))?;
        out.flush()?;
    }
    Ok(())
}

/// Million calls of `each` a second, with random records. The records are chosen before the time is
/// taken.
pub(crate) fn rate(
    operations: u64,
    records: u64,
    seed: u64,
    mut each: impl FnMut(&[u8], &[u8]) -> bool,
) -> f64 {
    const CHOSEN: u64 = 1000;
    let mut random = Random::new(seed);
    let (mut seconds, mut done) = (0.0, 0);
    for _ in 0..operations / CHOSEN {
        let numbers = (0..CHOSEN).map(|_| random.below(records));
        let drawn: Vec<_> = numbers.map(|number| (key(number), value(number))).collect();
        let start = Instant::now();
        done += drawn.iter().filter(|(key, value)| each(key, value)).count() as u64;
        seconds += start.elapsed().as_secs_f64();
    }
    if done == operations { operations as f64 / seconds / 1e6 } else { f64::NAN }
}

/// Million gets a second, of present keys.
fn read_some(store: &Store, records: u64, seed: u64) -> f64 {
    rate(1_000_000, records, seed, |key, _| matches!(store.get(key), Ok(Some(_))))
}

/// Million single puts a second, of present keys.
fn write_some(store: &Store, records: u64, seed: u64) -> f64 {
    rate(400_000, records, seed, |key, value| store.put(key, value).is_ok())
}

/// A store with `records` records.
fn filled(path: &Path, records: u64) -> Outcome<Store> {
    let store = options(path, records).create()?;
    for first in (0..records).step_by(64) {
        let pairs: Vec<_> =
            (first..records.min(first + 64)).map(|number| (key(number), value(number))).collect();
        let puts: Vec<_> = pairs.iter().map(|(key, value)| Put { key, value, expires_at: None }).collect();
        store.put_many(&puts).into_iter().try_for_each(|done| done)?;
    }
    store.upkeep().collapse_huge_pages();
    Ok(store)
}

/// Reads of a second process beside those of the first.
fn reads(plan: &Plan) -> Outcome<Section> {
    let title = "Reads of a second process that shares the store, while the first does nothing; 16-byte keys, 64-byte values, in /dev/shm";
    let mut section = Section::new(title, "M/s", &["first process"]).ours_named("second");
    if !plan.wants(NAME, "get") {
        return Ok(section);
    }
    say(&format!("{NAME} get"));
    let records = plan.count(10_000_000);
    let directory = tempfile::tempdir_in("/dev/shm")?;
    let path = directory.path().join("share.pool");
    let store = filled(&path, records)?;
    let mut neighbour = Neighbour::start("reads", &path, records)?;
    let mut seeds = (1..).step_by(2);
    let second: Measure<'_> = Box::new(|| neighbour.ask(seeds.next().unwrap_or(1)).unwrap_or(f64::NAN));
    let first: Measure<'_> = Box::new(|| read_some(&store, records, 2));
    let row = Row::from_measured("get", plan.runner().row(&mut [second, first]));
    section.rows.push(row.against(0, Bound::AtLeast(0.95)));
    Ok(section)
}

/// Reads of a second process beside those of a client of a server, one request after the other.
fn sockets(plan: &Plan) -> Outcome<Section> {
    let title = "GET of a second process that shares the store, and of a client at a Unix socket with nothing else to do; one thread, one request at a time, \
                 16-byte keys, 64-byte values";
    let mut section = Section::new(title, "M/s", &["through the socket"]).ours_named("shared");
    let records = plan.count(1_000_000);
    for (name, start) in [
        ("Terrace", (|| server::terrace(Index::Clht)) as fn() -> _),
        ("Redis", || server::redis(RedisMode::No)),
    ] {
        if !plan.begins(NAME, &format!("socket of {name}")) {
            continue;
        }
        let directory = tempfile::tempdir_in("/dev/shm")?;
        let path = directory.path().join("share.pool");
        let _store = filled(&path, records)?;
        let mut neighbour = Neighbour::start("reads", &path, records)?;
        let server = start()?;
        server::fill(&server, records)?;
        let mut socket = server.connect_unix()?;
        let mut seeds = 1..;
        let shared: Measure<'_> = Box::new(|| neighbour.ask(seeds.next().unwrap_or(1)).unwrap_or(f64::NAN));
        let asked: Measure<'_> = Box::new(|| ask_some(&mut socket, records, 2).unwrap_or(f64::NAN));
        let row =
            Row::from_measured(format!("get, socket of {name}"), plan.runner().row(&mut [shared, asked]));
        section.rows.push(row.against(0, Bound::AtLeast(10.0)));
    }
    Ok(section)
}

/// Million gets a second through a connection, each sent after the answer to the previous one.
fn ask_some(socket: &mut UnixStream, records: u64, seed: u64) -> std::io::Result<f64> {
    const READS: u64 = 30_000;
    let mut random = Random::new(seed);
    let mut reply = [0; REPLY_HEAD.len() + VALUE_BYTES as usize + 2];
    let start = Instant::now();
    for _ in 0..READS {
        let key = key(random.below(records));
        socket.write_all(&[b"*2\r\n$3\r\nGET\r\n$16\r\n", &key[..], b"\r\n"].concat())?;
        socket.read_exact(&mut reply)?;
        if !reply.starts_with(REPLY_HEAD) {
            return Err(std::io::Error::other("another answer than a value"));
        }
    }
    Ok(READS as f64 / start.elapsed().as_secs_f64() / 1e6)
}

const REPLY_HEAD: &[u8] = b"$64\r\n";
