//! Stock clients of a cluster of real processes: redis-benchmark, redis-py, go-redis, Jedis.
//!
//! Each uses all kinds of commands. Then all increment counters at once, while a process of each role
//! is killed and slots move: no increment that was acknowledged may be lost.

use std::{
    io::{BufRead, BufReader},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
};

use crate::{
    clients::{have, output},
    cluster::{Up, is_whole},
    common::{Place, without_settings},
};

/// Increments of a benchmark.
const INCREMENTS: &str = "10000";
/// The variable with the class path of Jedis and what it needs.
const JEDIS: &str = "TERRACE_JEDIS";

/// A client that runs.
struct Client {
    child: Child,
    lines: BufReader<std::process::ChildStdout>,
}

impl Client {
    /// Starts a client, and waits until it has used all kinds of commands.
    fn start(command: &mut Command, port: u16) -> Client {
        without_settings(command);
        let command = command.arg(port.to_string()).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap());
        let mut client = Client { child, lines };
        assert_eq!(client.line(), "ready");
        client
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.lines.read_line(&mut line).unwrap();
        line.trim_end().into()
    }

    /// Ends the client, which looks whether something is lost.
    #[allow(clippy::print_stdout, reason = "what a client says of itself")]
    fn end(mut self) {
        drop(self.child.stdin.take());
        loop {
            match &*self.line() {
                "passed" => break,
                "" => panic!("a client has failed: {}", self.child.wait().unwrap()),
                line => println!("{line}"),
            }
        }
        assert!(self.child.wait().unwrap().success());
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        // It may have ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn scripts() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/clients")
}

fn redis_py() -> Option<Command> {
    have("python3", &["-c", "import redis.cluster"]).then(|| {
        let mut command = Command::new("python3");
        command.arg(scripts().join("cluster.py"));
        command
    })
}

fn go_redis(place: &Place) -> Option<Command> {
    let (module, program) = (scripts().join("go"), place.path("go-redis"));
    let build = ["-C", module.to_str().unwrap(), "build", "-o", program.to_str().unwrap(), "./cluster"];
    have("go", &build).then(|| Command::new(program))
}

/// Jedis is not in Debian: a variable says where its jars are.
fn jedis(place: &Place) -> Option<Command> {
    let jars = std::env::var(JEDIS).unwrap_or_default();
    let (source, program) = (scripts().join("java/Cluster.java"), place.path("jedis"));
    let (source, program) = (source.to_str().unwrap(), program.to_str().unwrap());
    have("javac", &["-cp", &jars, "-d", program, source]).then(|| {
        let mut command = Command::new("java");
        command.args(["-cp", &format!("{jars}:{program}"), "Cluster"]);
        command
    })
}

fn benchmark(port: u16, tests: &str) -> String {
    let mut command = Command::new("redis-benchmark");
    command.args(["--cluster", "-p", &port.to_string(), "-n", INCREMENTS, "-r", "100", "-c", "8", "-P", "4"]);
    output(command.args(["-t", tests, "--csv"]), "")
}

/// The sum of the counters that redis-benchmark increments.
fn counted(up: &Up) -> u64 {
    let counters = |port: u16| -> u64 {
        let cli = || {
            let mut command = Command::new("redis-cli");
            command.args(["-p", &port.to_string()]);
            command
        };
        let keys = output(cli().args(["--scan", "--pattern", "counter:*"]), "");
        let gets: String = keys.lines().map(|key| format!("GET {key}\n")).collect();
        output(&mut cli(), &gets).lines().map(|count| count.parse::<u64>().unwrap()).sum()
    };
    (0..3).map(|nth| counters(up.port + nth)).sum()
}

#[test]
fn stock_clients_lose_nothing_whatever_dies() {
    let up = Up::start(Place::new());
    let shown = benchmark(up.port, "set,get,incr,mset");
    for test in ["SET", "GET", "INCR", "MSET (10 keys)"] {
        assert!(shown.contains(&format!("\"{test}\"")), "{shown}");
    }
    assert_eq!(counted(&up).to_string(), INCREMENTS);

    let place = Place::new();
    let commands = [redis_py(), go_redis(&place), jedis(&place)];
    let clients = commands.into_iter().flatten().map(|mut command| Client::start(&mut command, up.port));
    let clients: Vec<Client> = clients.collect();
    up.kill(&(up.port + 1).to_string());
    up.put_all("after the death of a serving node");
    up.wait(is_whole);
    for nth in [0, 1, 2, 0] {
        up.cluster(&["move", "0-1999", &format!("127.0.0.1:{}", up.port + nth)]).ok();
        benchmark(up.port, "set,get");
    }
    up.kill("memory");
    up.put_all("after the death of the memory node");
    up.wait(is_whole);
    up.kill("etcd");
    up.put_all("without etcd");
    up.in_time("etcd", || (up.cluster(&["status"]).code == 0).then_some(()));
    up.wait(is_whole);
    clients.into_iter().for_each(Client::end);
    up.has_all("without etcd");
    up.end();
}
