//! The processes of a cluster, and the file from which they learn the map.

use crate::random::Random;
use serde::{Deserialize, Serialize};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tempfile::TempDir;
use terrace::{Store, SystemClock};
use terrace_cluster::link::Secret;
use terrace_cluster::map::{Map, Node};
use terrace_cluster::memory::{MemoryNode, Options};
use terrace_cluster::serving::{ServingNode, Settings};
use terrace_cluster::slot::{SLOTS, SlotRange};
use terrace_fabric::Libfabric;
use terrace_server::{config::Config, net::Listeners, server::Server, shared::Shared};
use terrace_testkit::process::Victim;

/// The lease. Short, so that many deaths fit into the time of a test.
pub(crate) const LEASE: Duration = Duration::from_millis(200);

/// What happens to a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    KillServing,
    StopServing,
    KillMemory,
}

#[derive(Serialize, Deserialize)]
struct Known {
    epoch: u64,
    map: Map,
    memory: Option<SocketAddr>,
}

/// The children of a test.
pub(crate) struct Children {
    directory: TempDir,
    memory: Option<Victim>,
    serving: Vec<Option<Victim>>,
    nodes: Vec<Node>,
    epoch: u64,
}

fn write(path: &Path, text: &str) {
    let new = path.with_extension("new");
    std::fs::write(&new, text).unwrap();
    std::fs::rename(&new, path).unwrap();
}

fn victim(task: &str) -> Victim {
    Victim::of_test("kills::process_of_a_cluster", task, &[]).unwrap()
}

impl Children {
    /// A memory node and so many serving nodes, all of which have slots.
    pub(crate) fn start(count: usize) -> Self {
        let directory = tempfile::Builder::new().prefix("terrace-test").tempdir_in("/dev/shm").unwrap();
        let port = || terrace_testkit::free_ports(1);
        let node = |nth: usize| Node { id: format!("{nth:040x}"), host: "127.0.0.1".into(), port: port() };
        let nodes: Vec<Node> = (0..count).map(node).collect();
        let mut children = Self { directory, memory: None, serving: Vec::new(), nodes, epoch: 0 };
        children.publish(&(0..count).collect::<Vec<_>>());
        children.memory = Some(children.start_memory());
        children.serving = (0..count).map(|nth| Some(children.start_serving(nth))).collect();
        children
    }

    pub(crate) fn ports(&self) -> Vec<u16> {
        self.nodes.iter().map(|node| node.port).collect()
    }

    fn start_memory(&self) -> Victim {
        victim(&format!("memory {}", self.directory.path().display()))
    }

    fn start_serving(&self, nth: usize) -> Victim {
        let port = self.nodes[nth].port;
        victim(&format!("serve {} {nth} {port}", self.directory.path().display()))
    }

    /// Spreads the slots over these nodes.
    fn publish(&mut self, owners: &[usize]) {
        self.epoch += 1;
        let mut map = Map { nodes: self.nodes.clone(), ..Map::default() };
        let mut shares = vec![Vec::new(); owners.len()];
        (0..SLOTS).for_each(|slot| shares[usize::from(slot) % owners.len()].push(slot));
        for (owner, share) in owners.iter().zip(shares) {
            map.slots.insert(self.nodes[*owner].id.clone(), SlotRange::of(share));
        }
        let known = Known { epoch: self.epoch, map, memory: None };
        write(&self.directory.path().join("map"), &serde_json::to_string(&known).unwrap());
    }

    /// Does this to a process, lets others take over, and has it back.
    pub(crate) fn strike(&mut self, kind: Kind, random: &mut Random) {
        if kind == Kind::KillMemory {
            self.memory.take().expect("a memory node").kill();
            self.memory = Some(self.start_memory());
            return;
        }
        let nth = random.below(self.nodes.len() as u64) as usize;
        let others: Vec<usize> = (0..self.nodes.len()).filter(|other| *other != nth).collect();
        match kind {
            Kind::StopServing => {
                let victim = self.serving[nth].as_ref().expect("a serving node");
                victim.stop().unwrap();
                self.publish(&others);
                // Past the lease, and past the takeover.
                std::thread::sleep(LEASE * 2);
                let victim = self.serving[nth].as_ref().expect("a serving node");
                victim.resume().unwrap();
            }
            _ => {
                self.serving[nth].take().expect("a serving node").kill();
                self.publish(&others);
                self.serving[nth] = Some(self.start_serving(nth));
            }
        }
        // It comes back while the others are still busy with its slots.
        std::thread::sleep(random.micros(0..200_000));
        self.publish(&(0..self.nodes.len()).collect::<Vec<_>>());
    }
}

/// The work of a child.
#[allow(clippy::disallowed_methods, reason = "a process of its own")]
pub(crate) fn work(task: &str) {
    let words: Vec<&str> = task.split(' ').collect();
    match words[..] {
        ["memory", directory] => remember(Path::new(directory)),
        ["serve", directory, nth, port] => serve(Path::new(directory), nth.parse().unwrap(), port),
        _ => panic!("{task:?} is no task"),
    }
}

fn secret() -> Secret {
    Secret::new("the key of the tests")
}

#[allow(clippy::disallowed_methods, reason = "a process of its own")]
fn remember(directory: &Path) {
    let fabric = Libfabric::new(Libfabric::TCP, "127.0.0.1").unwrap();
    let listen = SocketAddr::from(([127, 0, 0, 1], 0));
    let mut options = Options::new(directory.join("pool"), listen, secret(), Libfabric::TCP);
    options.lease = LEASE;
    options.pool_bytes = 256 << 20;
    options.segment_bytes = 5 << 20;
    let memory = MemoryNode::start(fabric, options, Box::new(|_| {})).unwrap();
    write(&directory.join("memory"), &memory.address().to_string());
    loop {
        std::thread::sleep(Duration::from_secs(1));
    }
}

#[allow(clippy::disallowed_methods, reason = "a process of its own")]
fn serve(directory: &Path, nth: usize, port: &str) {
    let id = format!("{nth:040x}");
    let me = Node { id: id.clone(), host: "127.0.0.1".into(), port: port.parse().unwrap() };
    let (host, clock) = ("127.0.0.1".into(), Arc::new(SystemClock));
    let settings = Settings {
        id,
        shards: 2,
        lanes: 3,
        cache_bytes: 1 << 20,
        host,
        fabric_ports: None,
        patience: Settings::PATIENCE,
        clock,
    };
    let node = ServingNode::start(settings, me, secret()).unwrap();
    let store = Store::over(node.engine()).unwrap();
    let config = Config::default();
    [("port", port), ("bind", "127.0.0.1"), ("metrics-port", "0")]
        .iter()
        .for_each(|(name, value)| config.assign(name, value).unwrap());
    let listeners = loop {
        if let Ok(listeners) = Listeners::bind(&config) {
            break listeners;
        }
        std::thread::sleep(Duration::from_millis(2));
    };
    let shared = Arc::new(Shared::of_node(store, config, node.routing()));
    let _server = Server::start(shared, listeners).unwrap();
    let (map, memory) = (directory.join("map"), directory.join("memory"));
    loop {
        if let Some(known) = read::<Known>(&map) {
            node.set_map(known.epoch, &known.map);
        }
        if let Ok(address) = std::fs::read_to_string(&memory) {
            node.set_memory(address.parse().unwrap());
        }
        std::thread::sleep(Duration::from_millis(2));
    }
}

fn read<T: for<'de> Deserialize<'de>>(path: &PathBuf) -> Option<T> {
    serde_json::from_str(&std::fs::read_to_string(path).ok()?).ok()
}
