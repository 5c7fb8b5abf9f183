//! Nodes beside a cluster: their readiness, their metrics and their rivals.

use std::{
    fs,
    io::{BufRead, BufReader, Read},
    net::{TcpListener, TcpStream},
    os::unix::net::UnixDatagram,
    path::Path,
    process::{Command, Stdio},
    thread,
    time::Duration,
};

use serde_json::Value;

use super::up::{PATIENCE, Up, errors, memory_node, signal, write_key};
use crate::common::{Place, free_port, metrics, program, run};

#[test]
fn memory_node_shows_metrics() {
    let up = Up::start(Place::new());
    // A process that was killed may have the port for a moment yet.
    let held = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = held.local_addr().unwrap().to_string();
    let metrics_port = address.rsplit(':').next().unwrap();
    let (key, pool) = (up.place.path("key"), up.place.path("other"));
    write_key(&key);
    let more = ["--size", "128mb", "--cluster", "other", "--metrics-port", metrics_port];
    let mut command = memory_node(&up.etcd, &key, &pool, &more);
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
    check_memory_page(&metrics(metrics_port.parse().unwrap()));
    check_port_is_refused(&up, &key, metrics_port);
    signal("-TERM", child.id());
    assert!(child.wait().unwrap().success());
    assert!(TcpStream::connect(&address).is_err());
    up.end();
}

/// The page of a memory node without sessions, whose pool has 128 MiB.
fn check_memory_page(page: &str) {
    // Without what is kept for the logs.
    let room = page.lines().find_map(|line| line.strip_prefix("terrace_memory_room_bytes ")).unwrap();
    assert!((1 << 20..126 << 20).contains(&room.parse::<u64>().unwrap()), "{room}");
    for line in ["terrace_memory_sessions 0", "terrace_memory_pool_bytes 134217728", "# EOF"] {
        assert!(page.lines().any(|found| found == line), "{line}: {page}");
    }
}

/// A port that another process has is refused before anything is made.
fn check_port_is_refused(up: &Up, key: &Path, metrics_port: &str) {
    let mut command = program();
    command.args(["node", "--role", "memory", "--etcd", &up.etcd, "--metrics-port", metrics_port]);
    let third = up.place.path("third");
    let done = command.arg("--key-file").arg(key).arg("--pool").arg(&third).output().unwrap();
    assert_eq!(done.status.code(), Some(1));
    assert!(errors(&done).contains("to use another port: --metrics-port PORT"));
    assert!(!third.exists());
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
    let (key, pool) = (from.join("key"), to.join("pool"));
    let done = memory_node(&up.etcd, &key, &pool, &["--metrics-port", "0"]).output().unwrap();
    let why = errors(&done);
    assert_eq!(done.status.code(), Some(1), "{why}");
    assert!(why.contains("has a memory node at") && why.contains("stop that memory node first"), "{why}");
    assert_eq!(up.status()["memory"], before);
    up.end();
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
    let more = ["--size", "128mb", "--cluster", "other", "--metrics-port", "0"];
    let mut command = memory_node(&up.etcd, &key, &pool, &more);
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
