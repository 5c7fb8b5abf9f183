//! Deaths, restarts and growth of a cluster, and what etcd knows of it.

use std::{
    fs,
    io::{BufRead, BufReader},
    os::unix::fs::PermissionsExt,
    process::{Command, Stdio},
};

use serde_json::Value;
use terrace_testkit::free_ports;

use super::up::{Up, errors, is_whole, memory_node, nodes, signal, write_key};
use crate::common::{Place, free_port, run};

/// The ids of the nodes, in the order of their ports, as each table shows them.
fn check_table(up: &Up, status: &Value) -> Vec<String> {
    let ids: Vec<String> = nodes(status).iter().map(|node| node["id"].as_str().unwrap().into()).collect();
    let table = up.cluster(&["status"]).ok().text().to_owned();
    for (nth, id) in ids.iter().enumerate() {
        let row = table.lines().find(|line| line.starts_with(&id[..8])).unwrap();
        assert!(row.contains(&format!("127.0.0.1:{}", usize::from(up.port) + nth)), "{table}");
        assert!(row.contains("serve") && row.contains("yes") && row.contains("no"), "{table}");
    }
    ids
}

/// Waits until etcd answers again.
fn wait_for_etcd(up: &Up) {
    up.in_time("etcd", || (up.cluster(&["status"]).code == 0).then_some(()));
}

/// Waits until the node at a port has the first slot, by the word of both.
fn wait_for_owner_of_first_slot(up: &Up, port: &str) {
    let served = up.redis(up.port + 1, &["cluster", "myid"]);
    let owner = up.in_time("the slot's owner", || {
        let shards = up.redis(up.port, &["cluster", "nodes"]);
        let row = shards.lines().find(|row| row.split(' ').skip(8).any(|range| range.starts_with("0-")))?;
        (row.split(' ').next() == Some(served.trim())).then(|| row.to_owned())
    });
    assert!(owner.contains(&format!(":{port}@")), "{owner}");
}

#[test]
fn cluster_serves_through_the_death_of_each_process() {
    let up = Up::start(Place::new());
    up.put_all("first");
    up.has_all("first");
    let status = up.wait(is_whole);
    assert_eq!((&status["leader"], &status["cluster"]), (&"memory".into(), &"terrace".into()));
    let ids = check_table(&up, &status);
    let told = up.redis(up.port, &["info", "cluster"]);
    assert!(told.contains("cluster_enabled:1") && told.contains("cluster_session:1"), "{told}");

    let port = (up.port + 1).to_string();
    let line = up.kill(&port);
    assert!(line.starts_with(&format!("the serving node at {port} was killed")), "{line}");
    up.has_all("first");
    up.put_all("second");
    // The same node comes back.
    let status = up.wait(is_whole);
    assert!(nodes(&status).iter().map(|node| node["id"].as_str().unwrap()).eq(ids));

    assert!(up.kill("memory").starts_with("the memory node was killed"));
    up.has_all("second");
    up.wait(is_whole);
    check_death_of_etcd(&up, &port, &status["id"]);
}

/// Nodes and managers go on after etcd has died, without its data as well.
fn check_death_of_etcd(up: &Up, port: &str, id: &Value) {
    assert!(up.kill("etcd").starts_with("etcd was killed"));
    up.has_all("second");
    up.put_all("third");
    wait_for_etcd(up);
    up.wait(is_whole);
    // The manager goes on, too.
    up.kill(port);
    up.has_all("third");
    up.wait(is_whole);

    // Without its data, etcd hears all anew, and its maps are followed.
    fs::remove_dir_all(up.place.path("cluster/etcd/member")).unwrap();
    up.kill("etcd");
    up.has_all("third");
    up.put_all("fourth");
    wait_for_etcd(up);
    up.wait(|now| is_whole(now) && now["id"] == *id);
    up.kill(port);
    up.has_all("fourth");
    up.wait(is_whole);
    up.cluster(&["move", "0-999", &format!("127.0.0.1:{port}")]).ok();
    up.has_all("fourth");
    wait_for_owner_of_first_slot(up, port);
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
    let (key, second) = (up.place.path("cluster/key"), up.place.path("second"));
    let refused = memory_node(&up.etcd, &key, &second, &["--size", "64mb"]).output().unwrap();
    let why = errors(&refused);
    assert_eq!(refused.status.code(), Some(1), "{why}");
    assert!(why.contains("is not that of the cluster terrace in etcd at"), "{why}");
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
    let etcd = format!("127.0.0.1:{}", free_port());
    let mut command = memory_node(&etcd, &key, &pool, &["--size", "128mb", "--metrics-port", "0"]);
    let mut child = command.stderr(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(child.stderr.take().unwrap()).lines().map_while(Result::ok);
    lines.find(|line| line.contains("does not answer")).expect("a line about etcd");
    signal("-TERM", child.id());
    // The rest of its words, to its end.
    assert!(lines.any(|line| line.contains("nothing was opened")));
    assert!(child.wait().unwrap().success());
    assert!(!pool.exists());
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
