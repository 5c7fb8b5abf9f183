//! The time that a start of the program takes, the start of its process included.

use crate::plan::Plan;
use crate::records::{key, value};
use crate::server::{free_port, terrace_program, without_settings};
use crate::worker::{Worker, pool_size};
use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use terrace::Index;
use terrace_bench::Section;

type Outcome<T> = Result<T, Box<dyn std::error::Error>>;

const NAME: &str = "startup";

/// Starts of the program beside those of redis-server.
pub(crate) fn section(plan: &Plan) -> Outcome<Section> {
    let title =
        "Start: from the start of the process to its end, or to its first right answer; a pool in /dev/shm";
    let mut section = Section::new(title, "ms", &["redis-server"]);
    if !["version", "serve", "kill"].iter().any(|row| plan.wants(NAME, row)) {
        return Ok(section);
    }
    let terrace = terrace_program()?;
    if plan.begins(NAME, "version") {
        let version = |program: &Path| {
            let mut command = Command::new(program);
            command.arg("--version");
            timed_to_end(command)
        };
        let sides: [&dyn Fn() -> Outcome<f64>; 2] =
            [&|| version(&terrace), &|| version("redis-server".as_ref())];
        section.rows.push(plan.row("--version", &sides)?);
    }
    if plan.begins(NAME, "serve") {
        let ours = || {
            let directory = tempfile::tempdir_in("/dev/shm")?;
            let pool = directory.path().join("start.pool");
            timed_to_answer(serve(&terrace, &pool, "64MiB"), b"PING\r\n", b"+PONG\r\n")
        };
        let theirs = || {
            let directory = tempfile::tempdir_in("/dev/shm")?;
            let mut command = Command::new("redis-server");
            command.args(["--bind", "127.0.0.1", "--save", "", "--dir"]).arg(directory.path());
            timed_to_answer(command, b"PING\r\n", b"+PONG\r\n")
        };
        section.rows.push(plan.row("serve, to the first PONG", &[&ours, &theirs])?);
    }
    let records = plan.count(1_000_000);
    if plan.begins(NAME, "kill") {
        let directory = tempfile::tempdir_in("/dev/shm")?;
        let pool = directory.path().join("start.pool");
        drop(Worker::start(&pool, Index::Clht, records, false)?);
        let restart = || {
            let mut worker = Worker::start(&pool, Index::Clht, records, true)?;
            std::thread::sleep(Duration::from_millis(200));
            worker.kill();
            let (key, value) = (key(records / 2), value(records / 2));
            let ask = [b"*2\r\n$3\r\nGET\r\n$16\r\n", &key[..], b"\r\n"].concat();
            let answer = [format!("${}\r\n", value.len()).as_bytes(), &value[..], b"\r\n"].concat();
            let size = pool_size(records).as_bytes().to_string();
            timed_to_answer(serve(&terrace, &pool, &size), &ask, &answer)
        };
        section.rows.push(plan.row("serve after kill -9, 1M records, to the first GET", &[&restart])?);
    }
    Ok(section)
}

fn serve(terrace: &Path, pool: &Path, size: &str) -> Command {
    let mut command = Command::new(terrace);
    command.arg("serve").arg("--pool").arg(pool).args(["--size", size, "--bind", "127.0.0.1"]);
    command.args(["--metrics-port", "0"]);
    command
}

fn silent(command: &mut Command) -> &mut Command {
    without_settings(command);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null())
}

/// Milliseconds that a process takes.
fn timed_to_end(mut command: Command) -> Outcome<f64> {
    let start = Instant::now();
    let status = silent(&mut command).status()?;
    let elapsed = start.elapsed();
    match status.success() {
        true => Ok(elapsed.as_secs_f64() * 1e3),
        false => Err(format!("{command:?} failed: {status}").into()),
    }
}

/// A server that is killed at the end.
struct Started(Child);

impl Drop for Started {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Milliseconds until a server, whose port is added, gives an answer.
fn timed_to_answer(mut command: Command, ask: &[u8], answer: &[u8]) -> Outcome<f64> {
    let port = free_port()?;
    command.args(["--port", &port.to_string()]);
    let start = Instant::now();
    let mut server = Started(silent(&mut command).spawn()?);
    let mut stream = loop {
        if let Ok(stream) = TcpStream::connect((Ipv4Addr::LOCALHOST, port)) {
            break stream;
        }
        if let Some(status) = server.0.try_wait()? {
            return Err(format!("{command:?} ended at once: {status}").into());
        }
        if start.elapsed() > Duration::from_secs(60) {
            return Err(format!("{command:?} does not answer").into());
        }
        std::thread::sleep(Duration::from_micros(50));
    };
    stream.set_read_timeout(Some(Duration::from_secs(60)))?;
    stream.write_all(ask)?;
    let mut reply = vec![0; answer.len()];
    stream.read_exact(&mut reply)?;
    let elapsed = start.elapsed();
    match reply == answer {
        true => Ok(elapsed.as_secs_f64() * 1e3),
        false => Err(format!("{command:?} gave another answer than the expected one").into()),
    }
}
