//! Slots that move and drain, with a password and without, and the ports of the fabric.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use serde_json::Value;
use terrace_cluster::directory::parse_ranges;
use terrace_testkit::free_ports;

use super::up::{Up, is_whole, nodes, signal, slots};
use crate::common::{Place, metrics, without_settings};

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
    check_drains(&up, &ids[0]);
    check_refusals(&up, &ids[0]);
}

/// Drains two of three nodes, and gives them slots again.
fn check_drains(up: &Up, id: &str) {
    let address = |nth: u16| format!("127.0.0.1:{}", up.port + nth);
    let drained = up.cluster(&["drain", &id[..12]]).ok();
    assert!(drained.text().contains(" is drained: its "), "{}", drained.text());
    up.has_all("value");
    let after = up.status();
    assert_eq!((slots(&nodes(&after)[0]), &nodes(&after)[0]["drained"]), (0, &true.into()));
    up.cluster(&["move", "5", id]).fails(1, "is drained");
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
}

/// Moves and drains that name no node or no slots.
fn check_refusals(up: &Up, id: &str) {
    up.cluster(&["drain", ""]).fails(1, "there is no node");
    up.cluster(&["drain", "127.0.0.1:1"]).fails(1, "the cluster's nodes: ");
    up.cluster(&["move", "1-0", id]).fails(2, "are no slots");
    up.cluster(&["move", "16384", id]).fails(2, "are no slots");
    up.cluster(&["status", "--cluster", "other"]).fails(1, "there is no cluster other in etcd");
}

/// What `redis-cli` answers that gives the password.
fn ask(port: u16, words: &[&str]) -> String {
    let mut command = Command::new("redis-cli");
    without_settings(&mut command);
    let given = ["-p", &port.to_string(), "-a", "open sesame", "--no-auth-warning"];
    let done = command.args(given).args(words).output().unwrap();
    String::from_utf8_lossy(&done.stdout).replace('\r', "")
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
    check_metrics(metrics_port);
    assert_eq!(ask(port, &["config", "get", "size"]), format!("size\n{}\n", 512 << 20));
    assert_eq!(ask(port, &["config", "get", "maxmemory"]), format!("maxmemory\n{}\n", 512 << 20));
    let memory = ask(port, &["info", "memory"]);
    assert!(memory.contains(&format!("maxmemory:{}\n", 512 << 20)), "{memory}");
    assert!(!memory.contains("used_memory:0\n"), "{memory}");

    let node = format!("127.0.0.1:{port}");
    up.cluster(&["drain", &node, "--wait"]).fails(1, "NOAUTH").fails(1, "give --password-file");
    let copy = up.place.path("copy").to_str().unwrap().to_owned();
    let refused = up.cluster(&["backup", &copy]).fails(1, "NOAUTH");
    assert!(refused.err.contains("with --password-file FILE"), "{}", refused.err);
    assert!(!Path::new(&copy).exists());
    let copied = up.cluster(&["backup", &copy, "--format", "resp", "--password-file", &file]).ok();
    assert!(copied.err.contains("copied 0 keys of all 16384 slots to "), "{}", copied.err);
    let drained = up.cluster(&["drain", &node, "--wait", "--password-file", &file]).ok();
    assert!(drained.text().contains(" slots have gone to the others"), "{}", drained.text());
    assert!(ask(port, &["info", "cluster"]).contains("cluster_slots_served:0\n"));
    check_standing_nodes(&up);
    up.end();
}

/// The pages of a memory node and of three serving nodes, whose figures of the pool are those of
/// the memory node.
fn check_metrics(first: u16) {
    assert!(metrics(first).contains("terrace_memory_sessions_serving 3"));
    for nth in 1..=3 {
        let page = metrics(first + nth);
        assert!(page.contains("terrace_cluster_room_bytes"), "{page}");
        let size = format!("terrace_pool_bytes {}", 512 << 20);
        for line in [&size, "terrace_pool_info{path=\"\"} 1"] {
            assert!(page.lines().any(|found| found == line), "{line}: {page}");
        }
    }
}

/// A node that stands still loses its lease, and the other side logs it.
fn check_standing_nodes(up: &Up) {
    let still = up.process(&(up.port + 1).to_string());
    signal("-STOP", still);
    let log = || fs::read_to_string(up.place.path("cluster/logs/memory")).unwrap();
    up.in_time("the end of the lease", || log().contains("was ended: its lease is over").then_some(()));
    signal("-CONT", still);
    // So does the serving node, if the memory node stands still.
    let memory = up.process("memory");
    signal("-STOP", memory);
    let port = up.port + 2;
    let log = || fs::read_to_string(up.place.path(&format!("cluster/logs/node-{port}"))).unwrap();
    let told = (0..100).any(|nth| {
        // It may be another node's key.
        ask(port, &["set", &format!("key{nth}"), "value"]);
        log().contains("this node has ended the link to the memory node: the log cannot be written")
    });
    signal("-CONT", memory);
    assert!(told, "{}", log());
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
