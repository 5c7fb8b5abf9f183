//! `cluster` and `node`: a cluster of real processes on this machine.

use std::{
    collections::BTreeMap,
    fs::{self, Permissions},
    io::{BufRead, BufReader, Read, Write},
    net::{TcpListener, TcpStream},
    os::unix::{
        fs::{FileExt, PermissionsExt},
        net::UnixDatagram,
    },
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::mpsc,
    thread,
    time::{Duration, Instant},
};

use serde_json::Value;
use terrace_cluster::directory::parse_ranges;
use terrace_protocol::slot;
use terrace_testkit::free_ports;

use crate::common::{Place, Run, free_port, metrics, program, run, without_settings};

const PATIENCE: Duration = Duration::from_secs(120);

/// `terrace cluster up`, and what it prints.
pub(crate) struct Up {
    child: Child,
    place: Place,
    pub(crate) port: u16,
    etcd: String,
    lines: mpsc::Receiver<String>,
}

impl Up {
    pub(crate) fn start(place: Place) -> Up {
        Self::start_at(place, free_ports(3), free_ports(1))
    }

    fn start_at(place: Place, port: u16, etcd_port: u16) -> Up {
        Self::start_with(place, port, etcd_port, &[])
    }

    fn start_with(place: Place, port: u16, etcd_port: u16, more: &[&str]) -> Up {
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
    fn hears(&self, text: &str) -> String {
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

    fn status(&self) -> Value {
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
    fn redis(&self, port: u16, words: &[&str]) -> String {
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
    fn process(&self, word: &str) -> u32 {
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

fn signal(name: &str, process: u32) {
    assert!(Command::new("kill").args([name, &process.to_string()]).status().unwrap().success());
}

#[allow(clippy::disallowed_methods, reason = "a thread that reads while the test goes on")]
fn pass(out: impl Read + Send + 'static, to: mpsc::Sender<String>) {
    thread::spawn(move || {
        BufReader::new(out).lines().map_while(Result::ok).try_for_each(|line| to.send(line))
    });
}

/// A key file as it has to be.
fn write_key(path: &Path) {
    fs::write(path, "0123456789abcdef0123456789abcdef\n").unwrap();
    fs::set_permissions(path, Permissions::from_mode(0o600)).unwrap();
}

fn nodes(status: &Value) -> &Vec<Value> {
    status["nodes"].as_array().unwrap()
}

fn slots(node: &Value) -> u64 {
    node["slots"].as_u64().unwrap()
}

/// Whether three nodes serve.
pub(crate) fn is_whole(status: &Value) -> bool {
    let all: Vec<u64> = nodes(status).iter().filter(|node| node["session"] == true).map(slots).collect();
    // A share, or one without the 2,000 slots that a test moves.
    all.len() == 3 && all.iter().all(|slots| *slots > 3000) && status["slots_unassigned"] == 0
}

#[test]
fn cluster_serves_through_the_death_of_each_process() {
    let up = Up::start(Place::new());
    up.put_all("first");
    up.has_all("first");
    let status = up.wait(is_whole);
    assert_eq!((&status["leader"], &status["cluster"]), (&"memory".into(), &"terrace".into()));
    let ids: Vec<&str> = nodes(&status).iter().map(|node| node["id"].as_str().unwrap()).collect();
    let table = up.cluster(&["status"]).ok().text().to_owned();
    for (nth, id) in ids.iter().enumerate() {
        let row = table.lines().find(|line| line.starts_with(&id[..8])).unwrap();
        assert!(row.contains(&format!("127.0.0.1:{}", usize::from(up.port) + nth)), "{table}");
        assert!(row.contains("serve") && row.contains("yes") && row.contains("no"), "{table}");
    }

    let told = up.redis(up.port, &["info", "cluster"]);
    assert!(told.contains("cluster_enabled:1") && told.contains("cluster_session:1"), "{told}");

    let port = (up.port + 1).to_string();
    let line = up.kill(&port);
    assert!(line.starts_with(&format!("the serving node at {port} was killed")), "{line}");
    up.has_all("first");
    up.put_all("second");
    // The same node comes back.
    let status = up.wait(is_whole);
    assert!(nodes(&status).iter().map(|node| node["id"].as_str().unwrap()).eq(ids.iter().copied()));

    assert!(up.kill("memory").starts_with("the memory node was killed"));
    up.has_all("second");
    up.wait(is_whole);

    assert!(up.kill("etcd").starts_with("etcd was killed"));
    up.has_all("second");
    up.put_all("third");
    up.in_time("etcd", || (up.cluster(&["status"]).code == 0).then_some(()));
    up.wait(is_whole);
    // The manager goes on, too.
    up.kill(&port);
    up.has_all("third");
    up.wait(is_whole);

    // Without its data, etcd hears all anew, and its maps are followed.
    fs::remove_dir_all(up.place.path("cluster/etcd/member")).unwrap();
    up.kill("etcd");
    up.has_all("third");
    up.put_all("fourth");
    up.in_time("etcd", || (up.cluster(&["status"]).code == 0).then_some(()));
    up.wait(|now| is_whole(now) && now["id"] == status["id"]);
    up.kill(&port);
    up.has_all("fourth");
    up.wait(is_whole);
    up.cluster(&["move", "0-999", &format!("127.0.0.1:{port}")]).ok();
    up.has_all("fourth");
    let served = up.redis(up.port + 1, &["cluster", "myid"]);
    let owner = up.in_time("the slot's owner", || {
        let shards = up.redis(up.port, &["cluster", "nodes"]);
        let row = shards.lines().find(|row| row.split(' ').skip(8).any(|range| range.starts_with("0-")))?;
        (row.split(' ').next() == Some(served.trim())).then(|| row.to_owned())
    });
    assert!(owner.contains(&format!(":{port}@")), "{owner}");
}

#[test]
fn cluster_that_ended_goes_on_with_its_data() {
    let up = Up::start(Place::new());
    let (port, etcd) = (up.port, up.etcd.rsplit(':').next().unwrap().parse().unwrap());
    let id = up.status()["id"].clone();
    up.put_all("value");
    up.wait(is_whole);
    let place = up.end();
    // A pool that another cluster uses is refused by name.
    let up = Up::start_at(place, port, etcd);
    up.has_all("value");
    assert_eq!(up.wait(is_whole)["id"], id);
    let second = up.place.path("second");
    let key = up.place.path("cluster/key");
    let refused = run(
        [
            "node",
            "--role",
            "memory",
            "--etcd",
            &up.etcd,
            "--size",
            "64mb",
            "--listen",
            "127.0.0.1:0",
            "--key-file",
        ]
        .map(String::from)
        .into_iter()
        .chain([key.to_str().unwrap().into(), "--pool".into(), second.to_str().unwrap().into()]),
        b"",
    );
    refused.fails(1, "is not that of the cluster terrace in etcd at");
    up.has_all("value");
    // A second cluster in the directory, too.
    let (dir, free) = (up.place.path("cluster"), free_port().to_string());
    let words = ["cluster", "up", "--etcd-port", &free, "--dir", dir.to_str().unwrap()];
    run(words, b"").fails(1, "a cluster runs in ");
    // Another etcd would be one of others.
    let etcd = up.etcd.rsplit(':').next().unwrap();
    let other = up.place.path("other");
    let words = ["cluster", "up", "--etcd-port", etcd, "--port", "31990", "--dir", other.to_str().unwrap()];
    run(words, b"").fails(1, "another program may have the port: give another --etcd-port");
    up.end();
}

/// The memory node knows its pool and its address, and the serving nodes know where it was.
#[test]
fn memory_node_comes_back_while_etcd_is_away() {
    let up = Up::start(Place::new());
    up.put_all("first");
    let etcd = up.process("etcd");
    signal("-STOP", etcd);
    up.kill("memory");
    up.put_all("second");
    up.has_all("second");
    signal("-CONT", etcd);
    up.wait(is_whole);
    for (name, mode) in
        [("", 0o700), ("logs", 0o700), ("logs/memory", 0o600), ("lock", 0o600), ("pool.log", 0o600)]
    {
        let found = fs::metadata(up.place.path("cluster").join(name)).unwrap().permissions().mode();
        assert_eq!(found & 0o777, mode, "{name}");
    }
    // The memory node may have acknowledged writes in its log alone, until it has stopped.
    let pool = up.place.path("cluster/pool");
    let on_pool = |words: &[&str]| run([words, &["--pool", pool.to_str().unwrap()]].concat(), b"");
    for words in [&["check"][..], &["check", "--repair"], &["dump"], &["get", "key0"], &["stats"]] {
        on_pool(words).fails(1, "is the pool of a cluster");
    }
    let place = up.end();
    on_pool(&["check"]).ok();
    drop(place);
}

#[test]
fn memory_node_that_waits_for_etcd_ends_when_asked() {
    let place = Place::new();
    let (key, pool) = (place.path("key"), place.path("pool"));
    write_key(&key);
    let mut command = program();
    command.args(["node", "--role", "memory", "--listen", "127.0.0.1:0", "--size", "128mb"]);
    command.args(["--metrics-port", "0", "--etcd", &format!("127.0.0.1:{}", free_port())]);
    let mut child =
        command.arg("--key-file").arg(&key).arg("--pool").arg(&pool).stderr(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(child.stderr.take().unwrap()).lines().map_while(Result::ok);
    lines.find(|line| line.contains("does not answer")).expect("a line about etcd");
    signal("-TERM", child.id());
    // The rest of its words, to its end.
    assert!(lines.any(|line| line.contains("nothing was opened")));
    assert!(child.wait().unwrap().success());
    assert!(!pool.exists());
}

#[test]
fn memory_node_shows_metrics() {
    let up = Up::start(Place::new());
    // A process that was killed may have the port for a moment yet.
    let held = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = held.local_addr().unwrap().to_string();
    let metrics_port = address.rsplit(':').next().unwrap();
    let (key, pool) = (up.place.path("key"), up.place.path("other"));
    write_key(&key);
    let mut command = program();
    command.args(["node", "--role", "memory", "--listen", "127.0.0.1:0", "--size", "128mb"]);
    command.args(["--etcd", &up.etcd, "--cluster", "other", "--metrics-port", metrics_port]);
    command.arg("--key-file").arg(&key).arg("--pool").arg(&pool);
    let manager = UnixDatagram::bind(up.place.path("manager")).unwrap();
    command.env("NOTIFY_SOCKET", up.place.path("manager"));
    let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
    #[allow(clippy::disallowed_methods, reason = "the other process shall find the port taken")]
    thread::sleep(Duration::from_millis(300));
    drop(held);
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map(Result::unwrap);
    let places = lines.next().unwrap();
    assert!(places.ends_with(&format!(" · metrics http://{address}/metrics")), "{places}");
    assert_eq!(lines.next().unwrap(), "ready");
    let mut told = [0; 16];
    manager.set_read_timeout(Some(PATIENCE)).unwrap();
    let len = manager.recv(&mut told).unwrap();
    assert_eq!(&told[..len], b"READY=1");
    let page = metrics(metrics_port.parse().unwrap());
    // Without what is kept for the logs.
    let room = page.lines().find_map(|line| line.strip_prefix("terrace_memory_room_bytes ")).unwrap();
    assert!((1 << 20..126 << 20).contains(&room.parse::<u64>().unwrap()), "{room}");
    for line in ["terrace_memory_sessions 0", "terrace_memory_pool_bytes 134217728", "# EOF"] {
        assert!(page.lines().any(|found| found == line), "{line}: {page}");
    }
    // The port is refused before anything is made.
    let mut command = program();
    command.args(["node", "--role", "memory", "--etcd", &up.etcd, "--metrics-port", metrics_port]);
    let third = up.place.path("third");
    let done = command.arg("--key-file").arg(&key).arg("--pool").arg(&third).output().unwrap();
    assert_eq!(done.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&done.stderr).contains("to use another port: --metrics-port PORT"));
    assert!(!third.exists());
    signal("-TERM", child.id());
    assert!(child.wait().unwrap().success());
    assert!(TcpStream::connect(&address).is_err());
    up.end();
}

/// The node waits until the entry of a dead one would be gone.
#[test]
fn memory_node_on_a_copy_of_the_pool_is_refused() {
    let up = Up::start(Place::new());
    let (from, to) = (up.place.path("cluster"), up.place.path("copy"));
    fs::create_dir(&to).unwrap();
    fs::copy(from.join("pool.cluster"), to.join("pool.cluster")).unwrap();
    // It is refused before it looks into it.
    fs::write(to.join("pool"), "").unwrap();
    let before = up.status()["memory"].clone();
    let mut command = program();
    command.args(["node", "--role", "memory", "--listen", "127.0.0.1:0", "--metrics-port", "0"]);
    command.args(["--etcd", &up.etcd, "--key-file"]).arg(from.join("key"));
    let done = command.arg("--pool").arg(to.join("pool")).output().unwrap();
    let why = String::from_utf8_lossy(&done.stderr).into_owned();
    assert_eq!(done.status.code(), Some(1), "{why}");
    assert!(why.contains("has a memory node at") && why.contains("stop that memory node first"), "{why}");
    assert_eq!(up.status()["memory"], before);
    up.end();
}

#[test]
fn slots_move_and_drain_as_the_operator_wishes() {
    let up = Up::start(Place::new());
    up.put_all("value");
    let status = up.wait(is_whole);
    let epoch = |status: &Value| status["epoch"].as_u64().unwrap();
    let ids: Vec<String> = nodes(&status).iter().map(|node| node["id"].as_str().unwrap().into()).collect();
    let address = |nth: u16| format!("127.0.0.1:{}", up.port + nth);

    // To a node that has none of them: each has one range.
    let ranges = |status: &Value, nth: u16| {
        let node = &nodes(status)[usize::from(nth)];
        parse_ranges(node["ranges"].as_str().unwrap()).unwrap()
    };
    let to = if ranges(&status, 1)[0].first == 0 { 2 } else { 1 };
    let moved = up.cluster(&["move", "0-999,2000", &address(to)]).ok();
    assert!(moved.text().starts_with("slots 0-999 2000 go to node "), "{}", moved.text());
    up.has_all("value");
    let after = up.status();
    let ranges = ranges(&after, to);
    let has = |first, last| ranges.iter().any(|range| range.first <= first && last <= range.last);
    assert!(has(0, 999) && has(2000, 2000) && !has(1000, 1000), "{ranges:?}");
    assert!(epoch(&after) > epoch(&status));

    let drained = up.cluster(&["drain", &ids[0][..12]]).ok();
    assert!(drained.text().contains(" is drained: its "), "{}", drained.text());
    up.has_all("value");
    let after = up.status();
    assert_eq!((slots(&nodes(&after)[0]), &nodes(&after)[0]["drained"]), (0, &true.into()));
    up.cluster(&["move", "5", &ids[0]]).fails(1, "is drained");
    up.cluster(&["drain", &address(1)]).ok();
    up.cluster(&["drain", &address(2)]).fails(1, "no other node could take the slots of node");
    up.has_all("value");
    assert_eq!(slots(&nodes(&up.status())[2]), 16_384);
    for nth in 0..2 {
        let undrained = up.cluster(&["undrain", &address(nth)]).ok();
        assert!(undrained.text().contains(" gets "), "{}", undrained.text());
    }
    up.wait(is_whole);
    up.has_all("value");

    up.cluster(&["drain", ""]).fails(1, "there is no node");
    up.cluster(&["drain", "127.0.0.1:1"]).fails(1, "the cluster's nodes: ");
    up.cluster(&["move", "1-0", &ids[0]]).fails(2, "are no slots");
    up.cluster(&["move", "16384", &ids[0]]).fails(2, "are no slots");
    up.cluster(&["status", "--cluster", "other"]).fails(1, "there is no cluster other in etcd");
}

/// The memory node goes on, and mends the entries; the nodes have one range of slots each.
#[test]
fn wrong_entries_in_etcd_end_no_memory_node() {
    let up = Up::start(Place::new());
    up.put_all("first");
    let status = up.wait(is_whole);
    let ranges = |status: &Value| {
        let of = |node: &Value| node["ranges"].as_str().unwrap().split(' ').count();
        nodes(status).iter().map(of).sum::<usize>()
    };
    assert_eq!(ranges(&status), 3, "{status}");
    for (key, text) in [("id", "[]"), ("memory", r#"{"address":"127.0.0.1:1","pool":"x"}"#)] {
        let key = format!("/terrace/terrace/{key}");
        let put =
            Command::new("etcdctl").args(["--endpoints", &up.etcd, "put", &key, text]).output().unwrap();
        assert!(put.status.success());
        up.wait(|now| now["id"] == status["id"] && now["memory"] == status["memory"]);
        up.put_all("second");
        let told = format!("the key {key} in etcd ");
        up.in_time("the error", || {
            fs::read_to_string(up.place.path("cluster/logs/memory")).ok()?.contains(&told).then_some(())
        });
    }
    up.has_all("second");
    up.end();
}

#[test]
fn cluster_with_a_password_shows_metrics_and_drains() {
    let place = Place::new();
    let password = place.path("password");
    fs::write(&password, "open sesame\n").unwrap();
    let (port, metrics_port) = (free_ports(3), free_ports(4));
    let file = password.to_str().unwrap().to_owned();
    let more = ["--password-file", &file, "--metrics-port", &metrics_port.to_string()];
    let up = Up::start_with(place, port, free_ports(1), &more);
    assert!(metrics(metrics_port).contains("terrace_memory_sessions_serving 3"));
    for nth in 1..=3 {
        // The memory node's pool.
        let page = metrics(metrics_port + nth);
        assert!(page.contains("terrace_cluster_room_bytes"), "{page}");
        let size = format!("terrace_pool_bytes {}", 512 << 20);
        for line in [&size, "terrace_pool_info{path=\"\"} 1"] {
            assert!(page.lines().any(|found| found == line), "{line}: {page}");
        }
    }
    let node = format!("127.0.0.1:{port}");
    let ask = |words: &[&str]| {
        let mut command = Command::new("redis-cli");
        without_settings(&mut command);
        let given = ["-p", &port.to_string(), "-a", "open sesame", "--no-auth-warning"];
        let done = command.args(given).args(words).output().unwrap();
        String::from_utf8_lossy(&done.stdout).replace('\r', "")
    };
    assert_eq!(ask(&["config", "get", "size"]), format!("size\n{}\n", 512 << 20));
    assert_eq!(ask(&["config", "get", "maxmemory"]), format!("maxmemory\n{}\n", 512 << 20));
    let memory = ask(&["info", "memory"]);
    assert!(memory.contains(&format!("maxmemory:{}\n", 512 << 20)), "{memory}");
    assert!(!memory.contains("used_memory:0\n"), "{memory}");

    up.cluster(&["drain", &node, "--wait"]).fails(1, "NOAUTH").fails(1, "give --password-file");
    let copy = up.place.path("copy").to_str().unwrap().to_owned();
    let refused = up.cluster(&["backup", &copy]).fails(1, "NOAUTH");
    assert!(refused.err.contains("with --password-file FILE"), "{}", refused.err);
    assert!(!Path::new(&copy).exists());
    let copied = up.cluster(&["backup", &copy, "--format", "resp", "--password-file", &file]).ok();
    assert!(copied.err.contains("copied 0 keys of all 16384 slots to "), "{}", copied.err);
    let drained = up.cluster(&["drain", &node, "--wait", "--password-file", &file]).ok();
    assert!(drained.text().contains(" slots have gone to the others"), "{}", drained.text());
    assert!(ask(&["info", "cluster"]).contains("cluster_slots_served:0\n"));

    // A node that stands still loses its lease, and the memory node says so.
    let still = up.process(&(port + 1).to_string());
    signal("-STOP", still);
    let log = || fs::read_to_string(up.place.path("cluster/logs/memory")).unwrap();
    up.in_time("the end of the lease", || log().contains("was ended: its lease is over").then_some(()));
    signal("-CONT", still);
    // So does the serving node, if the memory node stands still.
    let memory = up.process("memory");
    signal("-STOP", memory);
    let log = || fs::read_to_string(up.place.path(&format!("cluster/logs/node-{}", port + 2))).unwrap();
    let told = (0..100).any(|nth| {
        let mut command = Command::new("redis-cli");
        without_settings(&mut command);
        let given =
            ["-p", &(port + 2).to_string(), "-a", "open sesame", "set", &format!("key{nth}"), "value"];
        // It may be another node's key.
        command.args(given).output().unwrap();
        log().contains("this node has ended the link to the memory node: the log cannot be written")
    });
    signal("-CONT", memory);
    assert!(told, "{}", log());
    up.end();
}

/// The TCP ports that a process listens on.
fn listens_on(process: u32) -> Vec<u16> {
    let files = fs::read_dir(format!("/proc/{process}/fd")).unwrap().flatten();
    let links: Vec<PathBuf> = files.filter_map(|file| fs::read_link(file.path()).ok()).collect();
    let table = fs::read_to_string(format!("/proc/{process}/net/tcp")).unwrap();
    let listener = |row: &str| {
        let columns: Vec<&str> = row.split_whitespace().collect();
        let is_its = |node: &str| links.contains(&PathBuf::from(format!("socket:[{node}]")));
        let port = u16::from_str_radix(columns[1].split_once(':')?.1, 16).ok()?;
        // 0A: it listens.
        (columns[3] == "0A" && is_its(columns[9])).then_some(port)
    };
    table.lines().skip(1).filter_map(listener).collect()
}

#[test]
fn fabric_listens_on_the_ports_that_it_was_given() {
    const PORTS: u16 = 400;
    let (port, first) = (free_ports(3), free_ports(PORTS));
    let given = format!("{first}-{}", first + PORTS - 1);
    let up = Up::start_with(Place::new(), port, free_ports(1), &["--fabric-ports", &given]);
    up.put_all("value");
    let in_range = |port: &u16| (first..first + PORTS).contains(port);
    let lanes_of = |word: &str| {
        let mut ports = listens_on(up.process(word));
        // Besides, each has the port of its clients, or of the serving nodes.
        let others: Vec<u16> = ports.extract_if(.., |port| !in_range(port)).collect();
        assert_eq!(others.len(), 1, "{others:?}");
        ports
    };
    let serving: usize = (0..3).map(|nth| lanes_of(&(port + nth).to_string()).len()).sum();
    assert!(serving >= 6, "{serving}");
    assert_eq!(lanes_of("memory").len(), serving);
    // A node that comes back finds ports again.
    up.kill(&port.to_string());
    up.has_all("value");
    up.wait(is_whole);
    up.end();
}

#[test]
fn too_few_ports_of_the_fabric_are_refused() {
    let place = Place::new();
    let dir = place.path("cluster");
    let words = ["cluster", "up", "--fabric-ports", "20000-20003", "--dir", dir.to_str().unwrap()];
    let refused =
        run(words, b"").fails(2, "--fabric-ports 20000-20003 has 4 ports, and 3 serving nodes with ");
    assert!(refused.err.contains("give a wider range, or a lower --serve"), "{}", refused.err);
    assert!(!dir.exists());
    for ports in ["0-9", "9-8", "all", "1-70000"] {
        let refused = run(["cluster", "up", "--fabric-ports", ports], b"");
        refused.fails(2, "it must be a range of ports: 7200-7231");
    }
    // No port is free: the memory node says which and how many.
    let held = TcpListener::bind("127.0.0.1:0").unwrap();
    let taken = held.local_addr().unwrap().port();
    let etcd = format!("127.0.0.1:{}", free_port());
    let (key, pool) = (place.path("key"), place.path("pool"));
    write_key(&key);
    let mut command = program();
    command.args([
        "node",
        "--role",
        "memory",
        "--listen",
        "127.0.0.1:0",
        "--metrics-port",
        "0",
        "--etcd",
        &etcd,
    ]);
    command.args(["--fabric-ports", &taken.to_string(), "--size", "128mb", "--key-file"]).arg(&key);
    let done = command.arg("--pool").arg(&pool).output().unwrap();
    let why = String::from_utf8_lossy(&done.stderr).into_owned();
    assert_eq!(done.status.code(), Some(1), "{why}");
    let none = format!("none of the fabric's ports {taken}-{taken} (1 of them) is free at 127.0.0.1");
    assert!(why.contains(&none), "{why}");
    assert!(!pool.exists());
}

#[test]
fn pool_of_a_cluster_grows_at_a_start() {
    let up = Up::start_with(Place::new(), free_ports(3), free_ports(1), &["--size", "256mb"]);
    up.put_all("value");
    let place = up.end();
    let (port, etcd) = (free_ports(3), free_ports(1));
    let up = Up::start_with(place, port, etcd, &["--size", "640mb"]);
    up.has_all("value");
    let size = |up: &Up| up.redis(port, &["config", "get", "size"]).replace('\r', "");
    up.in_time("the size", || (size(&up) == format!("size\n{}", 640 << 20)).then_some(()));
    let memory = up.redis(port, &["info", "memory"]);
    assert!(memory.contains(&format!("maxmemory:{}", 640 << 20)), "{memory}");
    let told = fs::read_to_string(up.place.path("cluster/logs/memory")).unwrap();
    assert!(
        told.contains(&format!("the pool has grown from {} to {} bytes", 256 << 20, 640 << 20)),
        "{told}"
    );
    let place = up.end();
    assert_eq!(fs::metadata(place.path("cluster/pool")).unwrap().len(), 640 << 20);
    drop(place);
}

/// No memory node writes its entry without a lease: this one does not wait for its end.
#[test]
fn memory_node_starts_beside_an_entry_written_by_hand() {
    let up = Up::start(Place::new());
    let (key, text) = ("/terrace/other/memory", r#"{"address":"127.0.0.1:1","pool":"x"}"#);
    let put = Command::new("etcdctl").args(["--endpoints", &up.etcd, "put", key, text]).output().unwrap();
    assert!(put.status.success());
    let (key, pool) = (up.place.path("key"), up.place.path("other"));
    write_key(&key);
    let mut command = program();
    command.args(["node", "--role", "memory", "--listen", "127.0.0.1:0", "--size", "128mb"]);
    command.args(["--etcd", &up.etcd, "--cluster", "other", "--metrics-port", "0"]);
    command.arg("--key-file").arg(&key).arg("--pool").arg(&pool);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok);
    let is_ready = lines.any(|line| line == "ready");
    let status = || -> Value {
        let words = ["cluster", "status", "--json", "--etcd", &up.etcd, "--cluster", "other"];
        serde_json::from_str(run(words, b"").ok().text()).unwrap()
    };
    if is_ready {
        up.in_time("its own entry", || (status()["memory"]["address"] != "127.0.0.1:1").then_some(()));
    }
    signal("-TERM", child.id());
    let mut said = String::new();
    child.stderr.take().unwrap().read_to_string(&mut said).unwrap();
    assert!(is_ready && child.wait().unwrap().success(), "{said}");
    assert!(said.contains("its key has no lease"), "{said}");
    up.end();
}

/// Sends commands for keys to the nodes that serve them, and returns how many answer OK.
fn put_many(up: &Up, keys: impl Iterator<Item = String>, words: impl Fn(&str) -> Vec<String>) -> usize {
    let status = up.wait(is_whole);
    let owner = |slot: u16| {
        let has = |node: &&Value| {
            let ranges = parse_ranges(node["ranges"].as_str().unwrap()).unwrap();
            ranges.iter().any(|range| range.first <= slot && slot <= range.last)
        };
        nodes(&status).iter().find(has).unwrap()["address"].as_str().unwrap().to_owned()
    };
    let owners: Vec<String> = (0..16_384).map(owner).collect();
    let mut commands = BTreeMap::<&str, (String, usize)>::new();
    for key in keys {
        let words = words(&key);
        let (text, count) = commands.entry(&owners[usize::from(slot(key.as_bytes()))]).or_default();
        *count += 1;
        text.push_str(&format!("*{}\r\n", words.len()));
        words.iter().for_each(|word| text.push_str(&format!("${}\r\n{word}\r\n", word.len())));
    }
    let send = |(address, (text, count)): (&&str, &(String, usize))| {
        let mut stream = TcpStream::connect(*address).unwrap();
        let mut replies = stream.try_clone().unwrap();
        let count = *count;
        #[allow(clippy::disallowed_methods, reason = "replies are read while commands are sent")]
        let reader = thread::spawn(move || {
            let mut reply = vec![0; 5 * count];
            replies.read_exact(&mut reply).map(|()| reply)
        });
        stream.write_all(text.as_bytes()).unwrap();
        let replies = reader.join().unwrap().unwrap();
        replies.chunks(5).filter(|reply| *reply == b"+OK\r\n").count()
    };
    commands.iter().map(send).sum()
}

/// Slots move, and a node dies, while the copy is made and keys are written.
#[test]
fn backup_of_a_cluster_under_writes_has_every_key() {
    const KEYS: usize = 20_000;
    const EXPIRES: u64 = 4_000_000_000_000;
    let up = Up::start(Place::new());
    let with_expiry = |key: &str| key.ends_with('7');
    let put = |key: &str| {
        let mut words = vec!["SET".to_owned(), key.to_owned(), format!("value of {key}")];
        if with_expiry(key) {
            words.extend(["PXAT".to_owned(), EXPIRES.to_string()]);
        }
        words
    };
    assert_eq!(put_many(&up, (0..KEYS).map(|nth| format!("still{nth}")), put), KEYS);
    let file = up.place.path("copy.jsonl");
    let (dies, first) = (up.process(&(up.port + 1).to_string()), up.port);
    let mut hot = 0_u64;
    #[allow(clippy::disallowed_methods, reason = "all of it at one time")]
    thread::scope(|scope| {
        let etcd = &up.etcd;
        let run = move |words: &[&str]| run(["cluster"].iter().chain(words).chain(&["--etcd", etcd]), b"");
        let to = file.to_str().unwrap();
        let copies = scope.spawn(move || run(&["backup", to]).ok());
        let moves = scope.spawn(move || {
            for (slots, node) in [("0-2000", 1), ("0-2000", 2), ("9000-9500", 0)] {
                run(&["move", slots, &format!("127.0.0.1:{}", first + node)]).ok();
            }
            signal("-KILL", dies);
        });
        while !(copies.is_finished() && moves.is_finished()) {
            hot += 1;
            for nth in 0..5 {
                assert_eq!(up.redis(first, &["set", &format!("hot{nth}"), &hot.to_string()]), "OK");
            }
        }
        let copied = copies.join().unwrap();
        assert!(copied.err.contains(" of all 16384 slots to "), "{}", copied.err);
        moves.join().unwrap();
    });
    up.hears("was killed by signal 9");
    let text = fs::read_to_string(&file).unwrap();
    let mut copied: BTreeMap<String, Value> = BTreeMap::new();
    for line in text.lines() {
        let line: Value = serde_json::from_str(line).unwrap();
        let before = copied.insert(line["key"].as_str().unwrap().into(), line.clone());
        assert_eq!(before, None, "{line} is there twice");
    }
    for key in (0..KEYS).map(|nth| format!("still{nth}")) {
        let found = copied.remove(&key).unwrap_or_else(|| panic!("{key} is missing"));
        assert_eq!(found["value"], format!("value of {key}"));
        let expiry = if with_expiry(&key) { EXPIRES.into() } else { Value::Null };
        assert_eq!(found["expires_at_ms"], expiry, "{key}");
    }
    // Keys that were written meanwhile have what was acknowledged at some time.
    for (key, line) in copied {
        let value: u64 = line["value"].as_str().unwrap().parse().unwrap();
        assert!(key.starts_with("hot") && (1..=hot).contains(&value), "{line}");
    }
    // A pool gets all of it, and becomes a cluster's by --adopt.
    let pool = up.place.path("restored");
    let on_pool = |words: &[&str]| run([words, &["--pool", pool.to_str().unwrap()]].concat(), b"");
    on_pool(&["load", file.to_str().unwrap(), "--size", "256mb"]).ok();
    assert_eq!(on_pool(&["get", "still1"]).ok().text().trim(), "value of still1");
    up.cluster(&["backup", file.to_str().unwrap()]).fails(1, "cannot write");
    up.in_time("the node that was killed", || is_whole(&up.status()).then_some(()));
    up.end();
}

/// Also of keys that begin as those of other databases are stored.
#[test]
fn dump_of_a_cluster_s_pool_has_what_its_backup_has() {
    let up = Up::start(Place::new());
    let keys = (0..20).map(|byte| [b"\xfe\xa7<\xd1^\x92\x0b", &[byte][..], b"key"].concat());
    for key in keys.chain([b"plain".to_vec()]) {
        let set =
            [format!("*3\r\n$3\r\nSET\r\n${}\r\n", key.len()).as_bytes(), &key, b"\r\n$1\r\nv\r\n"].concat();
        let is_taken = |port: u16| {
            let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
            stream.write_all(&set).unwrap();
            let mut reply = [0; 5];
            stream.read_exact(&mut reply).unwrap();
            reply == *b"+OK\r\n"
        };
        up.in_time("the reply", || (0..3).any(|nth| is_taken(up.port + nth)).then_some(()));
    }
    let sorted = |text: &str| {
        let mut lines: Vec<String> = text.lines().map(Into::into).collect();
        lines.sort();
        lines
    };
    let copied = up.cluster(&["backup", "-"]).ok();
    assert!(copied.err.contains("copied 21 keys of all 16384 slots to standard output"), "{}", copied.err);
    let copied = sorted(copied.text());
    assert_eq!(copied.len(), 21);
    let place = up.end();
    let pool = place.path("cluster/pool");
    let dumped = run(["dump", "--pool", pool.to_str().unwrap(), "--output", "-"], b"").ok();
    assert_eq!(sorted(dumped.text()), copied);
    assert!(!Path::new("-").exists());
}

/// The copy has all other keys.
#[test]
fn backup_of_a_damaged_pool_says_so() {
    let up = Up::start(Place::new());
    up.put_all("value");
    assert_eq!(up.redis(up.port, &["set", "key7", "a value that is damaged"]), "OK");
    let copy = |name: &str| {
        let to = up.place.path(name);
        (up.cluster(&["backup", to.to_str().unwrap()]), to)
    };
    // By then it is in the pool.
    copy("first").0.ok();
    let pool = up.place.path("cluster/pool");
    let (text, bytes) = (b"a value that is damaged", fs::read(&pool).unwrap());
    let mut places = bytes.windows(text.len()).enumerate().filter(|(_, part)| part == text);
    let (at, _) = places.next().expect("the value");
    assert!(places.next().is_none());
    let file = fs::File::options().write(true).open(&pool).unwrap();
    file.write_all_at(b"A", at as u64).unwrap();
    let (second, to) = copy("second");
    let said = second.fails(1, "has damage, and the copy lacks 1 record").err;
    assert!(said.contains("copied 29 keys of all 16384 slots") && said.contains("terrace check"), "{said}");
    let copied = fs::read_to_string(to).unwrap();
    assert!(copied.lines().count() == 29 && !copied.contains("key7\""), "{copied}");
}

#[test]
fn serving_node_is_ready_once_it_has_a_session() {
    let up = Up::start(Place::new());
    let key = up.place.path("cluster/key");
    let mut command = program();
    command.args(["node", "--role", "serve", "--bind", "127.0.0.1", "--metrics-port", "0"]);
    command.args(["--port", &free_port().to_string(), "--etcd", &up.etcd, "--cluster", "other"]);
    command.arg("--key-file").arg(key).arg("--node-id-file").arg(up.place.path("other.id"));
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(child.stderr.take().unwrap()).lines().map_while(Result::ok);
    lines.find(|line| line.contains("there is no cluster other in etcd")).unwrap();
    lines.find(|line| line.contains("the address of the memory node is not known yet")).unwrap();
    child.kill().unwrap();
    let mut said = String::new();
    child.stdout.take().unwrap().read_to_string(&mut said).unwrap();
    child.wait().unwrap();
    assert_eq!(said, "");
    let of_node = fs::read_to_string(up.place.path(&format!("cluster/logs/node-{}", up.port))).unwrap();
    assert!(of_node.contains("\nready\n"), "{of_node}");
    up.end();
}

#[test]
fn help_of_a_node_has_no_settings_that_it_refuses() {
    let help = run(["node", "--help"], b"").ok().text().to_owned();
    for text in ["maxmemory", "lfu-", "makes it grow"] {
        assert!(!help.contains(text), "{text}");
    }
    assert!(help.contains("--size") && help.contains("--metrics-bind"), "{help}");
}

#[test]
fn etcd_that_is_missing_is_named_with_its_package() {
    let place = Place::new();
    let done = program()
        .args(["cluster", "up", "--dir"])
        .arg(place.path("cluster"))
        .env("PATH", "/nonexistent")
        .output()
        .unwrap();
    let err = String::from_utf8(done.stderr).unwrap();
    assert_eq!(done.status.code(), Some(1), "{err}");
    assert!(err.starts_with("error: cannot run etcd, which keeps the cluster's map: "), "{err}");
    assert!(err.contains("apt-get install etcd-server"), "{err}");
    assert!(!place.path("cluster").exists());
}

#[test]
fn pool_that_would_be_full_at_once_is_refused() {
    let place = Place::new();
    let dir = place.path("cluster");
    let words = ["cluster", "up", "--serve", "64", "--size", "128mb", "--dir", dir.to_str().unwrap()];
    let refused = run(words, b"").fails(2, "a pool of 128 MiB is too small for 64 serving nodes");
    assert!(refused.err.contains("give --size "), "{}", refused.err);
    assert!(!dir.exists());
}

#[test]
fn cluster_commands_without_etcd_say_so() {
    let etcd = format!("127.0.0.1:{}", free_port());
    for words in [&["status"][..], &["move", "0", "x"], &["drain", "x"]] {
        let done = run(["cluster"].iter().chain(words).chain(&["--etcd", &etcd]), b"");
        done.fails(1, &format!("etcd at {etcd} does not answer: "));
    }
    run(["cluster", "status", "--cluster", "a/b"], b"").fails(1, "is no name of a cluster");
}

#[test]
fn options_of_etcd_that_make_no_sense_are_refused() {
    let place = Place::new();
    let file = |name: &str, text: &str| {
        std::fs::write(place.path(name), text).unwrap();
        place.path(name).to_str().unwrap().to_owned()
    };
    let (empty, key, id) = (file("empty", "\n"), place.path("key"), place.path("id"));
    write_key(&key);
    let open = file("open", "a key that others can read\n");
    fs::set_permissions(&open, Permissions::from_mode(0o640)).unwrap();
    let (port, key, id) = (free_port().to_string(), key.to_str().unwrap(), id.to_str().unwrap());
    let node = ["node", "--role", "serve", "--port", &port, "--key-file", key, "--node-id-file", id];
    let cases: [(&[&str], i32, &str); 8] = [
        (&["--etcd", "shop:sesame@127.0.0.1:1"], 2, "an address of etcd has no user and no password"),
        (&["--etcd", "https://127.0.0.1:1"], 2, "https needs --etcd-ca"),
        (&["--etcd-ca", "/nonexistent"], 2, "cannot read /nonexistent"),
        (&["--etcd-ca", &empty], 2, "has no certificate"),
        (&["--etcd-cert", &empty], 2, "--etcd-key"),
        (&["--etcd-cert", &empty, "--etcd-key", &open], 1, &format!("others can read the key file {open}")),
        (&["--etcd-user", "shop"], 2, "--etcd-password-file"),
        (&["--etcd-user", "shop", "--etcd-password-file", &empty], 1, "its first line is empty"),
    ];
    for (words, code, why) in cases {
        for command in [&["cluster", "status"][..], &node] {
            let refused = run(command.iter().chain(words), b"").fails(code, why);
            assert!(!refused.err.contains("sesame"), "{}", refused.err);
        }
    }
}

#[test]
fn node_options_that_make_no_sense_are_refused() {
    let place = Place::new();
    let key = place.path("key");
    let node = |words: &[&str]| {
        let first = ["node", "--key-file", key.to_str().unwrap()];
        run(first.iter().chain(words), b"")
    };
    let memory = ["--role", "memory", "--pool", "/dev/shm/none/pool", "--listen"];
    let memory = |listen| [&memory[..], &[listen]].concat();
    node(&memory("127.0.0.1:0")).fails(1, "cannot read the key file");
    fs::write(&key, "short\n").unwrap();
    node(&memory("127.0.0.1:0")).fails(1, "fewer than 32 letters");
    write_key(&key);
    fs::set_permissions(&key, Permissions::from_mode(0o640)).unwrap();
    let refused = node(&memory("127.0.0.1:0"));
    refused.fails(1, "others can read the key file").fails(1, &format!("chmod 600 {}", key.display()));
    write_key(&key);
    node(&memory("0.0.0.0:0")).fails(2, "give --announce-host");
    let port = free_port().to_string();
    let serve = ["--role", "serve", "--metrics-port", "0", "--port", &port, "--node-id-file"];
    let id = place.path("id");
    fs::write(&id, "no id\n").unwrap();
    let refused = node(&[&serve[..], &[id.to_str().unwrap()]].concat());
    refused.fails(1, "has no id, which is 40 hexadecimal digits");
    // Another process has the id.
    fs::write(&id, "0123456789abcdef0123456789abcdef01234567\n").unwrap();
    let used = fs::File::open(&id).unwrap();
    used.lock().unwrap();
    let refused = node(&[&serve[..], &[id.to_str().unwrap()]].concat());
    refused.fails(1, "runs already").fails(1, "give another --node-id-file");
    drop(used);
    let narrow =
        [&serve[..], &[id.to_str().unwrap(), "--lanes", "5", "--fabric-ports", "7300-7303"]].concat();
    node(&narrow).fails(2, "--fabric-ports 7300-7303 has 4 ports, and this node has 5 lanes");
    assert!(!PathBuf::from("/dev/shm/none").exists());
    assert_eq!(node(&["--role", "memory", "--lease", "10ms"]).code, 2);
    assert_eq!(node(&["--role", "serve", "--lanes", "1"]).code, 2);
    assert_eq!(node(&["--role", "other"]).code, 2);
}
