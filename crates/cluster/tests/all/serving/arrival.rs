//! A memory node that is stopped: nothing arrives, and nothing is acknowledged.

use super::wait_until;
use crate::memory::client::directory;
use crate::memory::restart::node;
use std::sync::Arc;
use tempfile::TempDir;
use terrace::{ManualClock, Store};
use terrace_cluster::link::Secret;
use terrace_cluster::map::{Map, Node};
use terrace_cluster::serving::{ServingNode, Settings};
use terrace_cluster::slot::SLOTS;
use terrace_testkit::process::Victim;

/// A memory node in a process of its own, and a serving node with all slots.
fn nodes(directory: &TempDir) -> (Victim, ServingNode, Store) {
    let (victim, address) = node("node", directory.path());
    let id = format!("{:040x}", 1);
    let me = Node { id: id.clone(), host: "127.0.0.1".into(), port: 7000 };
    let clock = Arc::new(ManualClock::at(0));
    let settings = Settings {
        id,
        shards: 1,
        lanes: 2,
        cache_bytes: 1 << 20,
        host: "127.0.0.1".into(),
        fabric_ports: None,
        patience: Settings::PATIENCE,
        clock,
    };
    let serving = ServingNode::start(settings, me.clone(), Secret::new("key")).unwrap();
    serving.set_memory(address);
    serving.set_map(1, &Map::spread(vec![me]));
    wait_until("the grant of the slots", || serving.slots() == usize::from(SLOTS));
    let store = Store::over(serving.engine()).unwrap();
    (victim, serving, store)
}

#[test]
fn write_is_not_acknowledged_before_it_has_arrived() {
    let directory = directory();
    let (victim, serving, store) = nodes(&directory);
    store.put(b"before", b"value").unwrap();
    victim.stop().unwrap();
    store.deferring().put(b"later", b"value").unwrap();
    let (ticket, writes) = (store.ticket(), serving.figures().log_writes);
    std::thread::scope(|scope| {
        // It takes the other entry along.
        let writer = scope.spawn(|| store.put(b"now", b"value"));
        wait_until("the write of the log", || serving.figures().log_writes > writes);
        assert!(store.settle(ticket).is_err(), "nobody knows whether it has arrived");
        assert!(writer.join().unwrap().is_err());
    });
    victim.kill();
}

/// The memory node dies with a write that has not arrived, and another one is there before the
/// writer asks whether its write is durable.
#[test]
fn write_that_was_lost_is_not_settled() {
    let directory = directory();
    let (victim, serving, store) = nodes(&directory);
    let since = store.ticket();
    victim.stop().unwrap();
    store.deferring().put(b"later", b"value").unwrap();
    victim.kill();
    wait_until("the end of the session", || serving.slots() == 0);
    assert!(store.settle_since(since).is_err(), "it is lost, without another session");
    let (victim, address) = node("node", directory.path());
    serving.set_memory(address);
    wait_until("another session", || serving.slots() == usize::from(SLOTS));
    assert_eq!(store.get(b"later").unwrap(), None);
    assert!(store.settle_since(since).is_err(), "it is lost, with another session");
    assert!(store.settle_since(store.ticket()).is_ok(), "nothing is lost that began later");
    victim.kill();
}
