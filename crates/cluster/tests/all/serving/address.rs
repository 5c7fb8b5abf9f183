//! Where the memory node is: the directory says so, and may be wrong.

use super::Cluster;
use std::net::{SocketAddr, TcpListener};
use std::sync::{Arc, mpsc};
use std::time::Duration;
use terrace::ManualClock;
use terrace_conformance::Site;

fn cluster() -> Cluster {
    Cluster::new(Arc::new(ManualClock::at(Site::STARTED))).start(1)
}

/// An address at which nobody answers.
fn nowhere() -> SocketAddr {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap()
}

#[test]
fn link_that_works_outlives_a_wrong_address() {
    let cluster = cluster();
    let store = cluster.store(0);
    cluster.nodes[0].set_memory(nowhere());
    (0..500).for_each(|nth| store.put(format!("key {nth}"), b"value").unwrap());
    let figures = cluster.nodes[0].routing().figures();
    let lost = figures.iter().find(|figure| figure.name == "sessions_lost").expect("a figure");
    assert_eq!(lost.value, 0);
}

#[test]
fn memory_node_is_found_where_it_was() {
    let mut cluster = cluster();
    let store = cluster.store(0);
    store.put(b"key", b"value").unwrap();
    cluster.nodes[0].set_memory(nowhere());
    cluster.restart_memory();
    cluster.wait_for_all();
    assert!(store.get(b"key").unwrap().unwrap() == b"value");
}

/// A node tells clients of itself only while it has, or may have, a session.
#[test]
fn node_hears_of_its_sessions_and_refusals() {
    let mut cluster = cluster();
    cluster.add_with(cluster.memory.as_ref().map(|memory| memory.address()), 65);
    let listen = |node: usize| {
        let (give, told) = mpsc::channel();
        cluster.nodes[node].on_session(Box::new(move |has_session| _ = give.send(has_session)));
        told
    };
    // What has happened before is told as well.
    let (served, refused) = (listen(0), listen(1));
    let next = |told: &mpsc::Receiver<bool>| told.recv_timeout(Duration::from_secs(60)).unwrap();
    assert!(next(&served) && !next(&refused));
    // It is refused each time that it tries, and the other one begins a session anew.
    assert!(!next(&refused));
    cluster.restart_memory();
    // A try in between may be refused.
    while !next(&served) {}
}
