//! Round trips of gets without a cache while the index grows, and writes of the fabric for puts. A
//! memory node and a serving node in this process, over TCP on loopback.

use super::{Outcome, row};
use crate::plan::Plan;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use terrace::{Store, SystemClock};
use terrace_bench::{Bound, Section};
use terrace_cluster::link::Secret;
use terrace_cluster::map::{Map, Node};
use terrace_cluster::memory::{MemoryNode, Options};
use terrace_cluster::serving::{Figures, ServingNode, Settings};
use terrace_fabric::Libfabric;

/// Keys that are added between two looks.
const STEP: u64 = 2_000;
/// Gets of a look.
const GETS: u64 = 1_000;

struct Cluster {
    node: ServingNode,
    store: Store,
    memory: MemoryNode<Libfabric>,
    _directory: tempfile::TempDir,
}

impl Cluster {
    fn start() -> Outcome<Self> {
        let directory = tempfile::tempdir_in("/dev/shm")?;
        let secret = Secret::new("the key of a measurement");
        let any = SocketAddr::from(([127, 0, 0, 1], 0));
        let mut options = Options::new(directory.path().join("pool"), any, secret.clone(), Libfabric::TCP);
        options.lease = Duration::from_millis(300);
        let memory =
            MemoryNode::start(Libfabric::new(Libfabric::TCP, "127.0.0.1")?, options, Box::new(|_| {}))?;
        let me = Node { id: "0".repeat(40), host: "127.0.0.1".into(), port: 7000 };
        let (id, host, clock) = (me.id.clone(), "127.0.0.1".into(), Arc::new(SystemClock));
        let settings = Settings {
            id,
            shards: 2,
            lanes: 4,
            cache_bytes: 1,
            host,
            fabric_ports: None,
            patience: Settings::PATIENCE,
            clock,
        };
        let node = ServingNode::start(settings, me.clone(), secret)?;
        node.set_memory(memory.address());
        node.set_map(1, &Map::spread(vec![me]));
        while node.slots() == 0 {
            std::thread::sleep(Duration::from_millis(1));
        }
        let store = Store::over(node.engine())?;
        Ok(Self { node, store, memory, _directory: directory })
    }

    fn figures(&self) -> Figures {
        self.node.figures()
    }

    fn wait_for_merges(&self) {
        while self.figures().unmerged > 0 {
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    fn put(&self, keys: std::ops::Range<u64>) -> Outcome<()> {
        let later = self.store.deferring();
        for key in keys {
            later.put(key.to_le_bytes(), [7; 64])?;
        }
        Ok(self.store.settle(self.store.ticket())?)
    }

    /// Round trips a get, over gets of present keys.
    fn look(&self, keys: u64, round: u64) -> Outcome<f64> {
        let before = self.figures();
        for nth in 0..GETS {
            let key = (nth * 7919 + round) % keys;
            self.store.get(key.to_le_bytes())?.ok_or("a key is missing")?;
        }
        let after = self.figures();
        Ok((after.read_rounds - before.read_rounds + after.asked - before.asked) as f64 / GETS as f64)
    }
}

pub(super) fn section(plan: &Plan) -> Outcome<Section> {
    let cluster = Cluster::start()?;
    let keys = plan.count(200_000).max(20_000);
    let (mut rested, mut moving) = (Vec::new(), Vec::new());
    for round in 0..keys / STEP {
        let present = (round + 1) * STEP;
        cluster.put(round * STEP..present)?;
        // While the index may grow; then at rest.
        moving.push(cluster.look(round.max(1) * STEP, round)?);
        cluster.wait_for_merges();
        let began = std::time::Instant::now();
        while cluster.memory.stats().is_resizing && began.elapsed() < Duration::from_secs(5) {
            moving.push(cluster.look(present, round)?);
        }
        // Until all reads know the new root: that comes with the next pin.
        std::thread::sleep(Duration::from_millis(500));
        let look = cluster.look(present, round)?;
        // A resize goes on with the puts, and may rest amid its way.
        let looks = if cluster.memory.stats().is_resizing { &mut moving } else { &mut rested };
        looks.push(look);
    }
    let most = |looks: &[f64]| looks.iter().copied().fold(0.0, f64::max);
    let mean = rested.iter().sum::<f64>() / rested.len() as f64;
    let title = format!(
        "Round trips of an operation: gets without a cache, {GETS} after each {STEP} keys of {keys}; puts together"
    );
    let mut section = Section::new(&title, "round trips", &[]);
    section.rows.push(row("get, mean over the index's growth", mean).judged(Bound::AtMost(2.08)));
    section.rows.push(row("get, at the fullest", most(&rested)).judged(Bound::AtMost(2.15)));
    section.rows.push(row("get, beside puts and growth", most(&moving)).judged(Bound::AtMost(3.15)));
    for together in [1, 16] {
        let before = cluster.figures();
        for round in 0..200 {
            cluster.put(round * together..(round + 1) * together)?;
        }
        let writes = cluster.figures().log_writes - before.log_writes;
        let each = writes as f64 / (200 * together) as f64;
        let bound = if together == 1 { 1.0 } else { 0.1 };
        section.rows.push(row(format!("put, {together} together"), each).judged(Bound::AtMost(bound)));
    }
    Ok(section)
}
