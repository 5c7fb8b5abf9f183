//! Terrace's server and Debian's redis-server, driven by redis-benchmark on loopback.

use crate::plan::Plan;
use crate::records::{VALUE_BYTES, key, value};
use std::cell::RefCell;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use tempfile::TempDir;
use terrace::Index;
use terrace_bench::{Bound, Measure, Measured, Row, Section, median, process_cpu_seconds, processor};

type Outcome<T> = Result<T, Box<dyn std::error::Error>>;

/// What redis-server promises for a write that it has answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RedisMode {
    /// Nothing: no append-only file, no snapshots.
    No,
    /// The write survives the process; after a crash of the machine the last second is lost.
    EverySecond,
    /// The write survives a crash of the machine.
    Always,
}

/// A running server on its own port and on processor 0.
pub(crate) struct Server {
    child: Child,
    port: u16,
    /// What it is asked, and how the answer begins, once it is ready.
    ping: [&'static [u8]; 2],
    /// Removed when the server has ended.
    files: TempDir,
}

const REDIS_PING: [&[u8]; 2] = [b"PING\r\n", b"+PONG\r\n"];
const MEMCACHED_PING: [&[u8]; 2] = [b"version\r\n", b"VERSION"];

impl Server {
    fn start(program: &mut Command, port: u16, files: TempDir) -> Outcome<Self> {
        Self::start_with(program, port, REDIS_PING, files)
    }

    fn start_with(
        program: &mut Command,
        port: u16,
        ping: [&'static [u8]; 2],
        files: TempDir,
    ) -> Outcome<Self> {
        let child = program.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn()?;
        let mut server = Self { child, port, ping, files };
        let deadline = Instant::now() + Duration::from_secs(30);
        while !server.answers() {
            if let Some(status) = server.child.try_wait()? {
                return Err(format!("{program:?} ended at once: {status}").into());
            }
            if Instant::now() > deadline {
                return Err(format!("{program:?} does not answer").into());
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(server)
    }

    pub(crate) fn connect(&self) -> std::io::Result<TcpStream> {
        let stream = TcpStream::connect((Ipv4Addr::LOCALHOST, self.port))?;
        stream.set_nodelay(true)?;
        Ok(stream)
    }

    fn answers(&self) -> bool {
        let mut reply = [0; 7];
        let ping = |mut stream: TcpStream| {
            stream.set_read_timeout(Some(Duration::from_secs(1)))?;
            stream.write_all(self.ping[0])?;
            stream.read_exact(&mut reply)
        };
        self.connect().and_then(ping).is_ok() && reply == self.ping[1]
    }

    /// A connection to the server's Unix socket.
    pub(crate) fn connect_unix(&self) -> std::io::Result<UnixStream> {
        UnixStream::connect(socket(&self.files))
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn socket(files: &TempDir) -> PathBuf {
    files.path().join("socket")
}

pub(crate) fn free_port() -> std::io::Result<u16> {
    Ok(TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?.port())
}

/// A command that runs `program` on the `nth` of the usable processors only, without the user's
/// settings for Terrace. (taskset becomes the program, so the process id is the program's.)
fn pinned(nth: usize, program: impl AsRef<std::ffi::OsStr>) -> Command {
    let mut command = Command::new("taskset");
    command.arg("-c").arg(processor(nth).to_string()).arg(program);
    without_settings(&mut command);
    command
}

/// Removes the user's settings for Terrace from a command.
pub(crate) fn without_settings(command: &mut Command) {
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("TERRACE_") {
            command.env_remove(name);
        }
    }
}

/// The terrace program next to this one, built now; or the one that `TERRACE_PROGRAM` names, as it
/// is.
pub(crate) fn terrace_program() -> Outcome<PathBuf> {
    if let Some(given) = std::env::var_os("TERRACE_PROGRAM") {
        return Ok(given.into());
    }
    let cargo = std::env::var("CARGO").unwrap_or_else(|_| "cargo".into());
    let built = Command::new(cargo).args(["build", "--quiet", "--release", "--bin", "terrace"]).status()?;
    let program = std::env::current_exe()?.with_file_name("terrace");
    match built.success() && program.exists() {
        true => Ok(program),
        false => Err("the terrace program could not be built; run this from the project's directory".into()),
    }
}

/// Terrace with a new pool in /dev/shm, made with `index`.
pub(crate) fn terrace(index: Index) -> Outcome<Server> {
    let files = tempfile::tempdir_in("/dev/shm")?;
    let (pool, socket) = (files.path().join("server.pool"), socket(&files));
    serve(files, |command| {
        command.arg("--pool").arg(pool).arg("--unix").arg(socket);
        command.args(["--index", index.name(), "--size", "2GiB"]);
    })
}

/// Terrace with a new store in a directory in `files`, whose writes survive a loss of power.
pub(crate) fn terrace_in(files: TempDir) -> Outcome<Server> {
    let store = files.path().join("store");
    serve(files, |command| _ = command.arg("--dir").arg(store).args(["--durability", "power"]))
}

/// Terrace with a new store over so many bytes of DRAM and a directory in `files`.
pub(crate) fn terrace_tiered(files: TempDir, dram: u64) -> Outcome<Server> {
    let store = files.path().join("store");
    serve(files, |command| {
        command.args(["--engine", "tiered", "--dram", &dram.to_string(), "--dir"]).arg(store);
    })
}

/// Debian's memcached with one thread, so many bytes of DRAM, and a file of so many in `files`.
pub(crate) fn memcached(files: TempDir, dram: u64, file: u64) -> Outcome<Server> {
    let port = free_port()?;
    let path = files.path().join("extstore").display().to_string();
    let (memory, store) = ((dram >> 20).to_string(), format!("ext_path={path}:{}m", (file >> 20).max(64)));
    let mut command = pinned(0, "memcached");
    command.args(["-l", "127.0.0.1", "-U", "0", "-t", "1", "-u", "root", "-m", &memory, "-o", &store]);
    command.args(["-p", &port.to_string()]);
    Server::start_with(&mut command, port, MEMCACHED_PING, files)
}

/// Terrace with one event loop and the arguments that `give` adds.
fn serve(files: TempDir, give: impl FnOnce(&mut Command)) -> Outcome<Server> {
    let port = free_port()?;
    let mut command = pinned(0, terrace_program()?);
    command.arg("serve");
    give(&mut command);
    command.args(["--bind", "127.0.0.1", "--metrics-port", "0", "--threads", "1", "--port"]);
    command.arg(port.to_string());
    Server::start(&mut command, port, files)
}

/// redis-server with an empty data set. Its files, if any, are temporary.
pub(crate) fn redis(mode: RedisMode) -> Outcome<Server> {
    redis_in(mode, tempfile::tempdir()?)
}

/// As [`redis`], with its files in `files`.
pub(crate) fn redis_in(mode: RedisMode, files: TempDir) -> Outcome<Server> {
    let port = free_port()?;
    let mut command = pinned(0, "redis-server");
    command.args(["--bind", "127.0.0.1", "--save", "", "--auto-aof-rewrite-percentage", "0", "--dir"]);
    command.arg(files.path()).arg("--port").arg(port.to_string());
    command.arg("--unixsocket").arg(socket(&files));
    command.args(match mode {
        RedisMode::No => ["--appendonly", "no", "--appendfsync", "no"],
        RedisMode::EverySecond => ["--appendonly", "yes", "--appendfsync", "everysec"],
        RedisMode::Always => ["--appendonly", "yes", "--appendfsync", "always"],
    });
    Server::start(&mut command, port, files)
}

/// Sets the first `records` keys, pipelined.
pub(crate) fn fill(server: &Server, records: u64) -> Outcome<()> {
    send_each(server, records, b"+OK\r\n", |request, number| {
        request.extend_from_slice(b"*3\r\n$3\r\nSET\r\n$16\r\n");
        request.extend_from_slice(&key(number));
        write!(request, "\r\n${VALUE_BYTES}\r\n")?;
        request.extend_from_slice(&value(number));
        request.extend_from_slice(b"\r\n");
        Ok(())
    })
}

/// Sends the requests that `add` makes for the numbers below `requests`, pipelined. Each must be
/// answered with `expected`.
pub(crate) fn send_each(
    server: &Server,
    requests: u64,
    expected: &[u8],
    add: impl Fn(&mut Vec<u8>, u64) -> std::io::Result<()>,
) -> Outcome<()> {
    const BATCH: u64 = 500;
    let mut stream = server.connect()?;
    let (mut request, mut replies) = (Vec::new(), vec![0; BATCH as usize * expected.len()]);
    for first in (0..requests).step_by(BATCH as usize) {
        let mut numbers = first..requests.min(first + BATCH);
        let replies = &mut replies[..(numbers.end - numbers.start) as usize * expected.len()];
        request.clear();
        numbers.try_for_each(|number| add(&mut request, number))?;
        stream.write_all(&request)?;
        stream.read_exact(replies)?;
        if !replies.chunks(expected.len()).all(|reply| reply == expected) {
            return Err("a server gave another answer than the expected one".into());
        }
    }
    Ok(())
}

/// Waits, at most a minute, until the server does nothing on its own any more (huge pages, files).
pub(crate) fn wait_until_idle(server: &Server) -> Outcome<()> {
    let cpu = || process_cpu_seconds(server.pid()).ok_or("a server is gone");
    for _ in 0..120 {
        let before = cpu()?;
        std::thread::sleep(Duration::from_millis(500));
        if cpu()? - before <= 0.01 {
            return Ok(());
        }
    }
    Ok(())
}

/// A kind of load.
#[derive(Clone, Copy, Debug)]
struct Load {
    command: &'static str,
    pipeline: u64,
    requests: u64,
    keys: u64,
}

impl Load {
    fn name(self) -> String {
        format!("{}, pipeline {}", self.command, self.pipeline)
    }
}

/// Requests a second, and the server's processor seconds for a million requests.
fn drive(server: &Server, load: Load) -> Outcome<(f64, f64)> {
    let [keys, value] = [load.keys, VALUE_BYTES].map(|n| n.to_string());
    let command = load.command.to_lowercase();
    let of_command = ["-r", &keys, "-d", &value, "-t", &command];
    let of_script = ["-r", &keys, "eval", SCRIPT, "1", "key:__rand_int__"];
    let arguments = if load.command == EVAL { &of_script } else { &of_command };
    benchmark(server, load.pipeline, load.requests, arguments)
}

/// Runs redis-benchmark with `arguments` on a processor of its own, with 50 clients. Returns
/// requests a second, and the server's processor seconds for a million requests.
pub(crate) fn benchmark(
    server: &Server,
    pipeline: u64,
    requests: u64,
    arguments: &[&str],
) -> Outcome<(f64, f64)> {
    let cpu = || process_cpu_seconds(server.pid()).ok_or("a server is gone");
    let before = cpu()?;
    let port = server.port.to_string();
    let output = pinned(1, "redis-benchmark")
        .args(["-h", "127.0.0.1", "-p", &port, "-c", "50", "-P", &pipeline.to_string()])
        .args(["-n", &requests.to_string(), "--csv"])
        .args(arguments)
        .output()?;
    let text = String::from_utf8_lossy(&output.stdout);
    // A line of names, and one of figures: what was done, requests a second, latencies.
    let rate = text.lines().last().and_then(|line| line.split("\",\"").nth(1)?.parse::<f64>().ok());
    let rate = rate
        .ok_or_else(|| format!("redis-benchmark said: {text}{}", String::from_utf8_lossy(&output.stderr)))?;
    Ok((rate, (cpu()? - before) * 1e6 / requests as f64))
}

/// The command that runs [`SCRIPT`].
const EVAL: &str = "EVAL";
/// Costs little but what a script costs by itself.
const SCRIPT: &str = "return redis.call('get', KEYS[1])";

const PEERS: [&str; 3] = ["redis no", "everysec", "always"];

/// Requests a second, and their cost for the server.
pub(crate) fn sections(plan: &Plan) -> Outcome<Vec<Section>> {
    let title = "Server: redis-benchmark, 50 clients, 64-byte values, a million keys, loopback; server and client each on a processor of its own. \
                 Ours keeps every answered write through a crash of the process (durability process); Redis with appendonly no keeps nothing, \
                 with everysec as much as ours, with always also through a crash of the machine. Judged against appendonly no";
    let mut rates = Section::new(title, "requests/s", &PEERS);
    let mut costs = Section::new("The server's processor time", "CPU s a million requests", &PEERS);
    for pipeline in [1, 16] {
        for command in ["SET", "GET", EVAL] {
            let requests = plan.count(if pipeline == 1 { 300_000 } else { 2_000_000 });
            let load = Load { command, pipeline, requests, keys: plan.count(1_000_000) };
            if plan.begins("server", &load.name()) {
                let (rate, cost) = rows(plan, load)?;
                rates.rows.push(rate);
                costs.rows.push(cost);
            }
        }
    }
    Ok([rates, costs].into_iter().filter(|section| !section.rows.is_empty()).collect())
}

fn rows(plan: &Plan, load: Load) -> Outcome<(Row, Row)> {
    let mut servers = vec![terrace(Index::Clht)?, redis(RedisMode::No)?];
    // A get costs Redis the same in every mode.
    if load.command == "SET" {
        servers.push(redis(RedisMode::EverySecond)?);
        servers.push(redis(RedisMode::Always)?);
    }
    for server in &servers {
        fill(server, load.keys)?;
        wait_until_idle(server)?;
    }
    let (rates, costs) = alternate(plan, servers.len(), |nth| drive(&servers[nth], load))?;
    if load.command == EVAL {
        // Nothing is asked of it.
        return Ok((Row::from_measured(load.name(), rates), Row::from_measured(load.name(), costs)));
    }
    let (rate, cost) = if load.pipeline == 1 { (1.0, 0.9) } else { (1.5, 0.6) };
    Ok((
        Row::from_measured(load.name(), rates).against(0, Bound::AtLeast(rate)),
        Row::from_measured(load.name(), costs).against(0, Bound::AtMost(cost)),
    ))
}

/// Measures servers alternately by `drive`, which returns requests a second and their cost. Returns
/// the rates and the costs.
pub(crate) fn alternate(
    plan: &Plan,
    servers: usize,
    drive: impl Fn(usize) -> Outcome<(f64, f64)>,
) -> Outcome<(Measured, Measured)> {
    let (costs, failure) = (RefCell::new(vec![Vec::<f64>::new(); servers]), RefCell::new(None));
    let mut sides = Vec::<Measure<'_>>::new();
    for nth in 0..servers {
        let (costs, failure, drive) = (&costs, &failure, &drive);
        sides.push(Box::new(move || match drive(nth) {
            Ok((rate, cost)) => {
                costs.borrow_mut()[nth].push(cost);
                rate
            }
            Err(error) => {
                *failure.borrow_mut() = Some(error);
                f64::NAN
            }
        }));
    }
    let measured = plan.runner().row(&mut sides);
    drop(sides);
    if let Some(failure) = failure.into_inner() {
        return Err(failure);
    }
    let figures = costs.into_inner();
    let medians = figures.iter().map(|figures| median(figures)).collect();
    let costs = Measured { medians, figures, ..measured.clone() };
    Ok((measured, costs))
}
