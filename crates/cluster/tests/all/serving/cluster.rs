//! A cluster in this process: a memory node and some serving nodes, over TCP on loopback. The test
//! is the directory and the manager.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tempfile::TempDir;
use terrace::{Clock, ManualClock, Store};
use terrace_cluster::link::Secret;
use terrace_cluster::map::{Map, Node};
use terrace_cluster::memory::{MemoryNode, Options};
use terrace_cluster::serving::{Figures, ServingNode, Settings};
use terrace_cluster::slot::{SLOTS, SlotRange};
use terrace_fabric::Libfabric;

/// No step takes longer, unless something hangs.
const PATIENCE: Duration = Duration::from_secs(60);

/// A cluster.
pub(crate) struct Cluster {
    pub(crate) options: Options,
    pub(crate) memory: Option<MemoryNode<Libfabric>>,
    pub(crate) nodes: Vec<ServingNode>,
    pub(crate) clock: Arc<ManualClock>,
    pub(crate) map: Map,
    epoch: u64,
    cache_bytes: u64,
    shards: u16,
    pub(crate) patience: Duration,
    /// Removed at the end.
    _directory: TempDir,
}

/// Waits until something holds.
pub(crate) fn wait_until(what: &str, mut holds: impl FnMut() -> bool) {
    let began = std::time::Instant::now();
    while !holds() {
        assert!(began.elapsed() < PATIENCE, "{what} takes too long");
        std::thread::sleep(Duration::from_millis(1));
    }
}

fn secret() -> Secret {
    Secret::new("the key of the tests")
}

fn any_port() -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], 0))
}

impl Cluster {
    /// A memory node, and no other one.
    pub(crate) fn new(clock: Arc<ManualClock>) -> Self {
        // Another test may have done so.
        let _ = env_logger::try_init();
        let directory = tempfile::Builder::new().prefix("terrace-test").tempdir_in("/dev/shm").unwrap();
        let pool: PathBuf = directory.path().join("test.pool");
        let mut options = Options::new(pool, any_port(), secret(), Libfabric::TCP);
        options.pool_bytes = 256 << 20;
        // Of which no busy machine loses any.
        options.lease = Duration::from_secs(5);
        let (map, nodes) = Default::default();
        Self {
            options,
            memory: None,
            nodes,
            clock,
            map,
            epoch: 0,
            cache_bytes: 16 << 20,
            shards: 2,
            patience: Settings::PATIENCE,
            _directory: directory,
        }
    }

    /// With other settings.
    pub(crate) fn with(mut self, cache_bytes: u64, shards: u16) -> Self {
        (self.cache_bytes, self.shards) = (cache_bytes, shards);
        self
    }

    /// Starts the memory node, and serving nodes with equal shares.
    pub(crate) fn start(mut self, count: usize) -> Self {
        self.start_memory();
        (0..count).for_each(|_| self.add());
        self.spread(&(0..count).collect::<Vec<_>>());
        self
    }

    /// Starts the memory node, at the place of the one before.
    pub(crate) fn start_memory(&mut self) {
        let fabric = Libfabric::new(Libfabric::TCP, "127.0.0.1").unwrap();
        let memory = MemoryNode::start(fabric, self.options.clone(), Box::new(|_| {})).unwrap();
        let address = memory.address();
        self.memory = Some(memory);
        self.nodes.iter().for_each(|node| node.set_memory(address));
    }

    /// Stops the memory node, and starts it at the same address. Nobody tells the others.
    pub(crate) fn restart_memory(&mut self) {
        self.options.listen = self.memory.as_ref().expect("a memory node").address();
        self.stop_memory();
        let fabric = Libfabric::new(Libfabric::TCP, "127.0.0.1").unwrap();
        self.memory = Some(MemoryNode::start(fabric, self.options.clone(), Box::new(|_| {})).unwrap());
    }

    /// Stops the memory node.
    pub(crate) fn stop_memory(&mut self) {
        self.memory.take().expect("a memory node").stop().unwrap();
    }

    /// Adds a serving node without slots.
    pub(crate) fn add(&mut self) {
        self.add_at(self.memory.as_ref().map(MemoryNode::address));
    }

    /// As [`Cluster::add`]. The node finds the memory node there.
    pub(crate) fn add_at(&mut self, memory: Option<SocketAddr>) {
        self.add_with(memory, 4);
    }

    /// As [`Cluster::add_at`], with so many connections. The memory node refuses more than 64.
    pub(crate) fn add_with(&mut self, memory: Option<SocketAddr>, lanes: u16) {
        let nth = self.nodes.len();
        let id = format!("{nth:040x}");
        let me = Node { id: id.clone(), host: "127.0.0.1".into(), port: 7000 + nth as u16 };
        let clock = Arc::clone(&self.clock) as Arc<dyn Clock>;
        let host = "127.0.0.1".into();
        let Self { shards, cache_bytes, .. } = *self;
        let settings = Settings {
            id,
            shards,
            lanes,
            cache_bytes,
            host,
            fabric_ports: None,
            patience: self.patience,
            clock,
        };
        let node = ServingNode::start(settings, me.clone(), secret()).unwrap();
        memory.iter().for_each(|memory| node.set_memory(*memory));
        self.map.nodes.push(me);
        self.nodes.push(node);
    }

    /// Gives each of these nodes an equal share, one range.
    pub(crate) fn spread(&mut self, nodes: &[usize]) {
        let each = usize::from(SLOTS).div_ceil(nodes.len());
        self.map.slots.clear();
        for (share, node) in nodes.iter().enumerate() {
            let (first, last) = (share * each, ((share + 1) * each).min(SLOTS.into()) - 1);
            let range = SlotRange::new(first as u16, last as u16).unwrap();
            self.map.slots.insert(self.map.nodes[*node].id.clone(), vec![range]);
        }
        self.publish();
        self.wait_for_slots(nodes, each);
    }

    /// Gives all slots to this node. The others do not hear of it.
    pub(crate) fn give(&mut self, to: usize) {
        let all = SlotRange::new(0, SLOTS - 1).expect("all slots");
        self.map.slots = [(self.map.nodes[to].id.clone(), vec![all])].into();
        self.epoch += 1;
        self.nodes[to].set_map(self.epoch, &self.map);
        wait_until("the takeover", || self.nodes[to].slots() == usize::from(SLOTS));
    }

    /// Tells all nodes the map.
    pub(crate) fn publish(&mut self) {
        self.epoch += 1;
        self.nodes.iter().for_each(|node| node.set_map(self.epoch, &self.map));
    }

    fn wait_for_slots(&self, nodes: &[usize], each: usize) {
        for node in nodes {
            let least = each.min(usize::from(SLOTS) - each * (nodes.len() - 1));
            wait_until("the grant of the slots", || self.nodes[*node].slots() >= least);
        }
        let all = || self.nodes.iter().map(ServingNode::slots).sum::<usize>() == usize::from(SLOTS);
        wait_until("the grant of all slots", all);
    }

    /// Waits until the nodes serve all slots again.
    pub(crate) fn wait_for_all(&self) {
        let all = || self.nodes.iter().map(ServingNode::slots).sum::<usize>() == usize::from(SLOTS);
        wait_until("the grant of all slots", all);
    }

    /// The store of a node.
    pub(crate) fn store(&self, nth: usize) -> Store {
        Store::over(self.nodes[nth].engine()).unwrap()
    }

    /// What a node has done.
    pub(crate) fn figures(&self, nth: usize) -> Figures {
        self.nodes[nth].figures()
    }

    /// Waits until the memory node has all that this node has written.
    pub(crate) fn wait_for_merges(&self, nth: usize) {
        wait_until("the merge", || self.figures(nth).unmerged == 0);
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        // Those that need it first.
        self.nodes.clear();
    }
}
