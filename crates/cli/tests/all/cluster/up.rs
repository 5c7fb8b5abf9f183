//! `terrace cluster up` as a child process, and what tests ask of it.

use std::{
    fs::{self, Permissions},
    io::{BufRead, BufReader, Read},
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::mpsc,
    thread,
    time::{Duration, Instant},
};

use serde_json::Value;
use terrace_testkit::free_ports;

use crate::common::{Place, Run, program, run, without_settings};

pub(super) const PATIENCE: Duration = Duration::from_secs(120);

/// `terrace cluster up`, and what it prints.
pub(crate) struct Up {
    child: Child,
    pub(super) place: Place,
    pub(crate) port: u16,
    pub(super) etcd: String,
    lines: mpsc::Receiver<String>,
}

impl Up {
    pub(crate) fn start(place: Place) -> Up {
        Self::start_at(place, free_ports(3), free_ports(1))
    }

    pub(super) fn start_at(place: Place, port: u16, etcd_port: u16) -> Up {
        Self::start_with(place, port, etcd_port, &[])
    }

    pub(super) fn start_with(place: Place, port: u16, etcd_port: u16, more: &[&str]) -> Up {
        let size: &[&str] = if more.contains(&"--size") { &[] } else { &["--size", "512mb"] };
        let mut child = program()
            .args(["cluster", "up", "--serve", "3", "--cache", "16mb", "--lease", "500ms"])
            .args(size)
            .args(["--port", &port.to_string(), "--etcd-port", &etcd_port.to_string(), "--dir"])
            .arg(place.path("cluster"))
            .args(more)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let (give, lines) = mpsc::channel();
        pass(child.stdout.take().unwrap(), give.clone());
        pass(child.stderr.take().unwrap(), give);
        let up = Up { child, place, port, etcd: format!("127.0.0.1:{etcd_port}"), lines };
        let line = up.hears("");
        assert!(
            line.starts_with(&format!("3 serving nodes have all slots: redis-cli -c -p {port}")),
            "{line}\n{}",
            up.logs()
        );
        up
    }

    /// The next line that contains this.
    pub(super) fn hears(&self, text: &str) -> String {
        loop {
            let line = self.lines.recv_timeout(PATIENCE);
            let line = line.unwrap_or_else(|_| panic!("no line with `{text}`\n{}", self.logs()));
            if line.contains(text) {
                return line;
            }
        }
    }

    fn logs(&self) -> String {
        let dir = fs::read_dir(self.place.path("cluster/logs")).into_iter().flatten().flatten();
        let log = |path: PathBuf| {
            let text = String::from_utf8_lossy(&fs::read(&path).unwrap_or_default()).into_owned();
            let last: Vec<&str> = text.lines().rev().take(30).collect();
            let last: Vec<&str> = last.into_iter().rev().collect();
            format!("{}:\n{}\n", path.display(), last.join("\n"))
        };
        dir.map(|entry| log(entry.path())).collect()
    }

    /// A command about the cluster.
    pub(crate) fn cluster(&self, words: &[&str]) -> Run {
        run(["cluster"].iter().chain(words).chain(&["--etcd", &self.etcd]), b"")
    }

    pub(super) fn status(&self) -> Value {
        serde_json::from_str(self.cluster(&["status", "--json"]).ok().text()).unwrap()
    }

    /// The first status that is as wanted.
    pub(crate) fn wait(&self, is_it: impl Fn(&Value) -> bool) -> Value {
        self.in_time("the status", || Some(self.status()).filter(&is_it))
    }

    #[allow(clippy::disallowed_methods, reason = "waits for other processes")]
    pub(crate) fn in_time<T>(&self, what: &str, attempt: impl Fn() -> Option<T>) -> T {
        let begin = Instant::now();
        while begin.elapsed() < PATIENCE {
            match attempt() {
                Some(found) => return found,
                None => thread::sleep(Duration::from_millis(50)),
            }
        }
        panic!("{what} did not come\n{}\n{}", self.cluster(&["status"]).text(), self.logs())
    }

    /// A command by `redis-cli -c`, which follows the nodes' words; again while the cluster
    /// changes.
    pub(super) fn redis(&self, port: u16, words: &[&str]) -> String {
        self.in_time("the reply", || {
            let mut command = Command::new("redis-cli");
            without_settings(&mut command);
            let done = command.args(["-c", "-p", &port.to_string()]).args(words).output().unwrap();
            let text = String::from_utf8_lossy(&done.stdout).trim().to_owned();
            let is_passing = ["MOVED", "CLUSTERDOWN", "TRYAGAIN", "ERR", "Could not", "Error", "UNAVAILABLE"]
                .iter()
                .any(|word| text.starts_with(word));
            (done.status.success() && !is_passing && !text.is_empty()).then_some(text)
        })
    }

    pub(crate) fn put_all(&self, value: &str) {
        for nth in 0..30 {
            assert_eq!(self.redis(self.port, &["set", &format!("key{nth}"), value]), "OK");
        }
    }

    pub(crate) fn has_all(&self, value: &str) {
        for nth in 0..30 {
            let port = self.port + nth % 3;
            assert_eq!(self.redis(port, &["get", &format!("key{nth}")]), value, "key{nth}");
        }
    }

    /// The process of the child that has this as an argument.
    pub(super) fn process(&self, word: &str) -> u32 {
        self.in_time("the child", || {
            let all = fs::read_dir("/proc").unwrap().flatten();
            let mut numbers = all.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
            numbers.find(|number| {
                let read =
                    |name: &str| fs::read_to_string(format!("/proc/{number}/{name}")).unwrap_or_default();
                let stat = read("stat");
                let parent = stat.rsplit(')').next().and_then(|rest| rest.split_whitespace().nth(1));
                let words = read("cmdline");
                // Not before it has become the program.
                parent == Some(&self.child.id().to_string())
                    && !words.contains("child")
                    && words.split('\0').any(|given| given == word)
            })
        })
    }

    pub(crate) fn kill(&self, word: &str) -> String {
        signal("-KILL", self.process(word));
        self.hears("was killed by signal 9: starting it again; see ")
    }

    /// Ends it by SIGTERM: cleanly, and without a word.
    pub(crate) fn end(mut self) -> Place {
        let children = [self.process("etcd"), self.process("memory"), self.process("serve")];
        signal("-TERM", self.child.id());
        let code = self.child.wait().unwrap();
        assert!(code.success(), "{code}\n{}", self.logs());
        assert_eq!(self.lines.iter().collect::<Vec<_>>(), Vec::<String>::new());
        for child in children {
            assert!(!PathBuf::from(format!("/proc/{child}")).exists(), "{child} runs");
        }
        let place = Place { directory: tempfile::tempdir().unwrap() };
        std::mem::replace(&mut self.place, place)
    }
}

impl Drop for Up {
    fn drop(&mut self) {
        // Its children end with it.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

pub(super) fn signal(name: &str, process: u32) {
    assert!(Command::new("kill").args([name, &process.to_string()]).status().unwrap().success());
}

#[allow(clippy::disallowed_methods, reason = "a thread that reads while the test goes on")]
fn pass(out: impl Read + Send + 'static, to: mpsc::Sender<String>) {
    thread::spawn(move || {
        BufReader::new(out).lines().map_while(Result::ok).try_for_each(|line| to.send(line))
    });
}

/// A key file as it has to be.
pub(super) fn write_key(path: &Path) {
    fs::write(path, "0123456789abcdef0123456789abcdef\n").unwrap();
    fs::set_permissions(path, Permissions::from_mode(0o600)).unwrap();
}

pub(super) fn nodes(status: &Value) -> &Vec<Value> {
    status["nodes"].as_array().unwrap()
}

pub(super) fn slots(node: &Value) -> u64 {
    node["slots"].as_u64().unwrap()
}

/// Whether three nodes serve.
pub(crate) fn is_whole(status: &Value) -> bool {
    let all: Vec<u64> = nodes(status).iter().filter(|node| node["session"] == true).map(slots).collect();
    // A share, or one without the 2,000 slots that a test moves.
    all.len() == 3 && all.iter().all(|slots| *slots > 3000) && status["slots_unassigned"] == 0
}

/// A memory node that any port will do for.
pub(super) fn memory_node(etcd: &str, key: &Path, pool: &Path, more: &[&str]) -> Command {
    let mut command = program();
    command.args(["node", "--role", "memory", "--listen", "127.0.0.1:0", "--etcd", etcd]).args(more);
    command.arg("--key-file").arg(key).arg("--pool").arg(pool);
    command
}

/// What a command has written to standard error.
pub(super) fn errors(done: &std::process::Output) -> String {
    String::from_utf8_lossy(&done.stderr).into_owned()
}
