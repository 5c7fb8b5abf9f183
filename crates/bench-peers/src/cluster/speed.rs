//! Gets of values in the cache of a serving node, beside the same of `terrace serve`.

use super::processes::Processes;
use super::{Outcome, row};
use crate::plan::Plan;
use crate::server::terrace_program;
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};
use terrace_bench::{Bound, Row, Section, median};
use terrace_testkit::free_ports;

const KEYS: &str = "10000";

pub(super) fn section(plan: &Plan) -> Outcome<Section> {
    let cluster = Processes::start(1, "1gb")?;
    let plain = Plain::start()?;
    let title = "redis-benchmark, 50 connections, 10,000 keys of 3 bytes: a cluster's only serving node, whose cache has all values, beside `terrace serve`";
    let mut section = Section::new(title, "thousand/s", &["serve"]);
    let rounds = if plan.quick { 1 } else { 7 };
    let requests = if plan.quick { 50_000 } else { 400_000 };
    for (command, pipeline) in [("get", 1), ("get", 16), ("set", 1), ("set", 16)] {
        let requests = if pipeline == 1 { requests / 4 } else { requests };
        let (mut ours, mut theirs) = (Vec::new(), Vec::new());
        for round in 0..=rounds {
            // Both by turns; the first round fills the stores and the cache.
            let mut both = [cluster.ports[0], plain.port];
            if round % 2 == 1 {
                both.reverse();
            }
            for port in both {
                let rate = rate(port, if round == 0 { "set,get" } else { command }, pipeline, requests)?;
                if round > 0 {
                    if port == plain.port { theirs.push(rate) } else { ours.push(rate) }
                }
            }
        }
        let (ours, theirs) = (median(&ours), median(&theirs));
        let named = row(format!("{command}, {pipeline} in a pipeline"), ours / theirs);
        let mut row =
            Row { ours: Some(ours), peers: vec![Some(theirs)], ratio: Some(ours / theirs), ..named };
        if command == "get" {
            row = row.against(0, Bound::AtLeast(0.9));
        }
        section.rows.push(row);
    }
    Ok(section)
}

/// `terrace serve` with a new pool.
struct Plain {
    child: Child,
    port: u16,
    _directory: tempfile::TempDir,
}

impl Plain {
    fn start() -> Outcome<Self> {
        let (directory, port) = (tempfile::tempdir_in("/dev/shm")?, free_ports(1));
        let mut command = Command::new(terrace_program()?);
        command.args([
            "serve",
            "--port",
            &port.to_string(),
            "--size",
            "1gb",
            "--metrics-port",
            "0",
            "--pool",
        ]);
        let child =
            command.arg(directory.path().join("pool")).stdout(Stdio::null()).stderr(Stdio::null()).spawn()?;
        let plain = Self { child, port, _directory: directory };
        for _ in 0..1000 {
            if TcpStream::connect(("127.0.0.1", port)).is_ok() {
                return Ok(plain);
            }
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
        Err("`terrace serve` does not answer".into())
    }
}

impl Drop for Plain {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Thousand requests a second.
fn rate(port: u16, tests: &str, pipeline: u32, requests: u32) -> Outcome<f64> {
    let mut command = Command::new("redis-benchmark");
    command.args([
        "-p",
        &port.to_string(),
        "-t",
        tests,
        "-P",
        &pipeline.to_string(),
        "-r",
        KEYS,
        "-c",
        "50",
        "--csv",
    ]);
    let output = command.args(["-n", &requests.to_string()]).output()?;
    let text = String::from_utf8(output.stdout)?;
    let last = text.lines().last().and_then(|line| line.split(',').nth(1));
    let rate = last
        .and_then(|rate| rate.trim_matches('"').parse::<f64>().ok())
        .ok_or("redis-benchmark says nothing")?;
    Ok(rate / 1e3)
}
