//! Runs the built program.
#![allow(dead_code, reason = "each test file uses a part of it")]

use std::{
    ffi::OsStr,
    io::{BufRead, BufReader, Read, Write},
    net::TcpStream,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
};

use tempfile::TempDir;

/// The exit code and output of a run.
pub(crate) struct Run {
    pub(crate) code: i32,
    pub(crate) out: Vec<u8>,
    pub(crate) err: String,
}

impl Run {
    pub(crate) fn text(&self) -> &str {
        std::str::from_utf8(&self.out).unwrap()
    }

    /// Asserts that the run succeeded.
    #[track_caller]
    pub(crate) fn ok(self) -> Run {
        assert_eq!(self.code, 0, "{}{}", self.err, String::from_utf8_lossy(&self.out));
        self
    }

    /// Asserts that the run failed with this code and an error that contains `why`.
    #[track_caller]
    pub(crate) fn fails(self, code: i32, why: &str) -> Run {
        assert_eq!(self.code, code, "{}{}", self.err, String::from_utf8_lossy(&self.out));
        let says_so = self.err.lines().any(|line| line.starts_with("error: ")) && self.err.contains(why);
        assert!(says_so, "not `{why}`: {}", self.err);
        self
    }
}

/// The program, without settings from the environment of the tests.
pub(crate) fn program() -> Command {
    program_under(&[])
}

/// The same, as the argument of another command.
pub(crate) fn program_under(other: &[&str]) -> Command {
    let words: Vec<&str> = other.iter().copied().chain([env!("CARGO_BIN_EXE_terrace")]).collect();
    let mut command = Command::new(words[0]);
    command.args(&words[1..]);
    without_settings(&mut command);
    command
}

/// Removes from a command what the environment of the tests may set: Terrace's settings, the
/// password of redis-cli, colours without a terminal, and a language other than English.
pub(crate) fn without_settings(command: &mut Command) {
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("TERRACE_") {
            command.env_remove(name);
        }
    }
    command.env_remove("CLICOLOR_FORCE").env_remove("REDISCLI_AUTH").env("LC_ALL", "C");
}

/// Runs the program to its end.
pub(crate) fn run<S: AsRef<OsStr>>(arguments: impl IntoIterator<Item = S>, input: &[u8]) -> Run {
    let mut child = program()
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let output = std::thread::scope(|scope| {
        // The program may exit without reading all of it.
        scope.spawn(move || stdin.write_all(input));
        child.wait_with_output().unwrap()
    });
    let err = String::from_utf8(output.stderr).unwrap();
    Run { code: output.status.code().unwrap_or(-1), out: output.stdout, err }
}

/// A directory for pools, in /dev/shm if possible.
pub(crate) struct Place {
    pub(crate) directory: TempDir,
}

impl Place {
    pub(crate) fn new() -> Place {
        let directory = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap();
        Place { directory }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// The pool that `run` uses.
    pub(crate) fn pool(&self) -> PathBuf {
        self.path("test.pool")
    }

    pub(crate) fn run(&self, arguments: &[&str]) -> Run {
        self.run_with(arguments, b"")
    }

    pub(crate) fn run_with(&self, arguments: &[&str], input: &[u8]) -> Run {
        self.run_on(&self.pool(), arguments, input)
    }

    pub(crate) fn run_on(&self, pool: &Path, arguments: &[&str], input: &[u8]) -> Run {
        let pool = ["--pool", pool.to_str().unwrap(), "--size", "64MiB"];
        run(arguments.iter().chain(&pool), input)
    }
}

/// A server process, killed when the test ends.
pub(crate) struct Served {
    pub(crate) child: Child,
    /// Its output up to `ready`.
    pub(crate) heading: String,
    pub(crate) port: u16,
    pub(crate) metrics_port: u16,
}

/// The metrics page at a port.
pub(crate) fn metrics(port: u16) -> String {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
    stream.write_all(b"GET /metrics HTTP/1.1\r\n\r\n").unwrap();
    let mut page = String::new();
    stream.read_to_string(&mut page).unwrap();
    page
}

/// A port that was free a moment ago.
pub(crate) fn free_port() -> u16 {
    terrace_testkit::free_ports(1)
}

impl Served {
    /// Starts a server on a pool, and waits until it is ready.
    pub(crate) fn start(pool: &Path, arguments: &[&str]) -> Served {
        Self::start_under(&[], pool, arguments)
    }

    /// The same, as the argument of another command, such as `unshare`.
    pub(crate) fn start_under(other: &[&str], pool: &Path, arguments: &[&str]) -> Served {
        let place = ["--size", "64MiB", "--pool", pool.to_str().unwrap()];
        Self::start_with(other, &[&place, arguments].concat())
    }

    /// Starts a server on a store that the arguments name.
    pub(crate) fn start_with(other: &[&str], arguments: &[&str]) -> Served {
        // Another test may take the port before the server does.
        for _ in 0..20 {
            let (port, metrics_port) = (free_port(), free_port());
            let mut child = program_under(other)
                .args(["serve", "--port", &port.to_string(), "--metrics-port", &metrics_port.to_string()])
                .args(arguments)
                .stdout(Stdio::piped())
                .stderr(Stdio::piped())
                .spawn()
                .unwrap();
            if let Some(heading) = ready(&mut child) {
                return Served { child, heading, port, metrics_port };
            }
            let mut why = String::new();
            child.stderr.take().unwrap().read_to_string(&mut why).unwrap();
            child.wait().unwrap();
            assert!(why.contains("is in use by another program"), "the server did not start: {why}");
        }
        panic!("no free port in 20 attempts");
    }

    pub(crate) fn signal(&self, name: &str) {
        let sent = Command::new("kill").args([name, &self.child.id().to_string()]).status().unwrap();
        assert!(sent.success());
    }

    /// Stops the server, and waits until it is stopped: on a busy machine, SIGSTOP takes effect
    /// late.
    pub(crate) fn stop(&self) {
        self.signal("-STOP");
        let pid = rustix::process::Pid::from_child(&self.child);
        let waited = rustix::process::waitpid(Some(pid), rustix::process::WaitOptions::UNTRACED);
        assert!(waited.unwrap().is_some_and(|(_, status)| status.stopped()));
    }

    /// Waits for the server's end; returns its exit code and its standard error.
    pub(crate) fn end(&mut self) -> (Option<i32>, String) {
        let code = self.child.wait().unwrap().code();
        let mut err = String::new();
        self.child.stderr.take().unwrap().read_to_string(&mut err).unwrap();
        (code, err)
    }
}

/// The server's output up to `ready`; `None` if it ends before.
pub(crate) fn ready(child: &mut Child) -> Option<String> {
    let mut heading = String::new();
    let mut out = BufReader::new(child.stdout.as_mut().unwrap());
    while out.read_line(&mut heading).unwrap() > 0 {
        if heading.ends_with("\nready\n") {
            return Some(heading);
        }
    }
    None
}

impl Drop for Served {
    fn drop(&mut self) {
        // The server may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
