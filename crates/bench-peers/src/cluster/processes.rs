//! `terrace cluster up` with real processes, and how to strike them.

use super::Outcome;
use crate::server::terrace_program;
use rustix::process::{Pid, Signal, kill_process};
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use tempfile::TempDir;
use terrace_testkit::free_ports;

/// The lease of the serving nodes.
pub(super) const LEASE: Duration = Duration::from_millis(300);

/// A cluster of processes.
pub(super) struct Processes {
    up: Child,
    pub(super) ports: Vec<u16>,
    etcd: u16,
    program: std::path::PathBuf,
    _directory: TempDir,
}

impl Processes {
    /// Starts so many serving nodes over a pool of this size, and waits for their slots.
    pub(super) fn start(serving: u16, size: &str) -> Outcome<Self> {
        let directory = tempfile::tempdir_in("/dev/shm")?;
        let first = free_ports(serving + 3);
        let etcd = first + serving;
        let program = terrace_program()?;
        let mut command = Command::new(&program);
        command.args(["cluster", "up", "--serve", &serving.to_string(), "--port", &first.to_string()]);
        command.args(["--etcd-port", &etcd.to_string(), "--size", size, "--lease", "300ms", "--dir"]);
        let mut up = command.arg(directory.path()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn()?;
        let output = up.stdout.take().ok_or("no output")?;
        let (send, heard) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            for line in BufReader::new(output).lines().map_while(Result::ok) {
                let _ = send.send(line);
            }
        });
        let ports = (first..first + serving).collect();
        let processes = Self { up, ports, etcd, program, _directory: directory };
        let began = Instant::now();
        loop {
            let line =
                heard.recv_timeout(Duration::from_secs(60)).map_err(|_| "the cluster does not start")?;
            if line.contains("have all slots") {
                return Ok(processes);
            }
            if began.elapsed() > Duration::from_secs(60) {
                return Err("the cluster does not start".into());
            }
        }
    }

    /// The process whose command line has all these words.
    fn find(&self, words: &[&str]) -> Outcome<Pid> {
        let directory = self._directory.path().to_string_lossy().into_owned();
        let begun = Instant::now();
        while begun.elapsed() < Duration::from_secs(10) {
            for entry in std::fs::read_dir("/proc")?.flatten() {
                let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse::<i32>().ok()) else {
                    continue;
                };
                let Ok(line) = std::fs::read(entry.path().join("cmdline")) else { continue };
                let line = String::from_utf8_lossy(&line).replace('\0', " ");
                let is_it = line.contains(&directory) && words.iter().all(|word| line.contains(word));
                if is_it && !line.contains("cluster up") && !line.contains("cluster child") {
                    return Pid::from_raw(pid).ok_or_else(|| "no process".into());
                }
            }
            std::thread::sleep(Duration::from_millis(2));
        }
        Err(format!("there is no process with {words:?}").into())
    }

    /// Kills the serving node at this port; the parent starts it again after a moment.
    pub(super) fn kill_serving(&self, port: u16) -> Outcome<()> {
        self.kill(&["--role serve", &format!("--port {port} ")])
    }

    pub(super) fn kill_memory(&self) -> Outcome<()> {
        self.kill(&["--role memory"])
    }

    pub(super) fn kill_etcd(&self) -> Outcome<()> {
        self.kill(&["etcd ", "--listen-client-urls"])
    }

    fn kill(&self, words: &[&str]) -> Outcome<()> {
        Ok(kill_process(self.find(words)?, Signal::KILL)?)
    }

    /// Runs `terrace cluster` with these words.
    pub(super) fn command(&self, words: &[&str]) -> Outcome<()> {
        let mut command = Command::new(&self.program);
        command.arg("cluster").args(words).args(["--etcd", &format!("127.0.0.1:{}", self.etcd)]);
        let output = command.output()?;
        match output.status.success() {
            true => Ok(()),
            false => Err(String::from_utf8_lossy(&output.stderr).into_owned().into()),
        }
    }
}

impl Drop for Processes {
    fn drop(&mut self) {
        let _ = kill_process(Pid::from_child(&self.up), Signal::TERM);
        let _ = self.up.wait();
    }
}
