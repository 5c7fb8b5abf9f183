//! The state of a simulated world.

use super::options::Options;
use super::queue::{Happening, Queue};
use super::random::Random;
use crate::{Access, Completion, Failure, Memory, Operation, RegionKey};
use slab::Slab;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

pub(super) struct World {
    pub(super) now: u64,
    pub(super) random: Random,
    pub(super) options: Options,
    pub(super) queue: Queue,
    pub(super) nodes: Vec<NodeState>,
    pub(super) endpoints: Vec<EndpointState>,
    pub(super) connections: Vec<ConnectionState>,
    pub(super) operations: Slab<Under>,
    /// Which node's bytes do not reach which other one.
    pub(super) cut: Vec<(usize, usize)>,
    /// What waits for the network to heal.
    pub(super) behind_cut: Vec<(usize, usize, Happening)>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Condition {
    Running,
    Stopped,
    /// Its process has died; the machine tells its peers.
    Dead,
    /// The machine is gone, and tells nobody.
    Gone,
}

pub(super) struct NodeState {
    pub(super) condition: Condition,
    /// Counts deaths. What belongs to a former life is dropped.
    pub(super) life: u64,
    /// What waits until the node goes on.
    pub(super) inbox: Vec<Happening>,
    clock_offset: u64,
    clock_drift_ppm: i64,
    /// When the last message from each node arrives at the earliest.
    pub(super) last_message: BTreeMap<usize, u64>,
}

impl NodeState {
    /// What its clock shows at this instant.
    pub(super) fn clock(&self, now: u64) -> Duration {
        let drift = i128::from(now) * i128::from(self.clock_drift_ppm) / 1_000_000;
        let shown = i128::from(self.clock_offset) + i128::from(now) + drift;
        Duration::from_nanos(u64::try_from(shown).expect("a clock that does not run backwards"))
    }

    /// How long a time of its clock takes.
    pub(super) fn takes(&self, by_clock: Duration) -> u64 {
        let rate = 1_000_000 + self.clock_drift_ppm;
        let taken = nanos(by_clock) as i128 * 1_000_000 / i128::from(rate);
        u64::try_from(taken).expect("a time that fits")
    }
}

pub(super) struct EndpointState {
    pub(super) node: usize,
    /// The random half of its address.
    pub(super) nonce: u64,
    pub(super) open: bool,
    pub(super) regions: BTreeMap<RegionKey, Registered>,
    pub(super) connections: Vec<usize>,
}

pub(super) struct Registered {
    pub(super) memory: Arc<dyn Memory>,
    pub(super) begin: usize,
    pub(super) len: usize,
    pub(super) access: Access,
}

pub(super) struct ConnectionState {
    /// The initiator, and its life.
    pub(super) node: usize,
    pub(super) life: u64,
    /// The target; none answers at a wrong address.
    pub(super) endpoint: Option<usize>,
    /// It is over, and this is what the initiator learns.
    pub(super) broken: Option<Failure>,
    /// The initiator knows.
    pub(super) ended: Option<Failure>,
    /// Operations that it has not heard of yet, with their numbers.
    pub(super) under_way: Vec<(usize, u64)>,
    pub(super) completions: Vec<Completion>,
    /// The node will hear that there are completions.
    pub(super) waking: bool,
    /// The node has closed it.
    pub(super) dropped: bool,
    /// When its last piece arrives, if operations do not overtake each other.
    pub(super) last_piece: u64,
}

impl ConnectionState {
    pub(super) fn is_over(&self) -> bool {
        self.broken.is_some() || self.ended.is_some()
    }
}

/// An operation under way.
pub(super) struct Under {
    pub(super) connection: usize,
    pub(super) number: u64,
    pub(super) operation: Operation,
    /// Where its bytes go, once its key was checked.
    pub(super) checked: Option<(Arc<dyn Memory>, usize)>,
    pub(super) pieces: u32,
    /// Where its pieces end, by chance.
    pub(super) chance: u64,
    /// Pieces that have neither arrived nor been lost.
    pub(super) left: u32,
    /// A piece was lost.
    pub(super) incomplete: bool,
    /// The word before an atomic operation.
    pub(super) before: u64,
}

impl World {
    pub(super) fn new(seed: u64, options: Options) -> Self {
        Self {
            now: 0,
            random: Random::new(seed),
            options,
            queue: Queue::default(),
            nodes: Vec::new(),
            endpoints: Vec::new(),
            connections: Vec::new(),
            operations: Slab::new(),
            cut: Vec::new(),
            behind_cut: Vec::new(),
        }
    }

    pub(super) fn add_node(&mut self) -> usize {
        let drift_max = u64::from(self.options.clock_drift_max_ppm);
        let drift = self.random.below(2 * drift_max + 1) as i64 - drift_max as i64;
        self.nodes.push(NodeState {
            condition: Condition::Running,
            life: 0,
            inbox: Vec::new(),
            clock_offset: self.random.below(nanos(self.options.clock_offset_max) + 1),
            clock_drift_ppm: drift,
            last_message: BTreeMap::new(),
        });
        self.nodes.len() - 1
    }

    pub(super) fn after(&mut self, delay: u64, happening: Happening) {
        self.queue.add(self.now + delay, happening);
    }

    pub(super) fn latency(&mut self) -> u64 {
        let range = nanos(self.options.latency.start)..nanos(self.options.latency.end);
        self.random.within(&range)
    }

    pub(super) fn is_cut(&self, from: usize, to: usize) -> bool {
        !self.cut.is_empty() && self.cut.contains(&(from, to))
    }

    pub(super) fn is_running(&self, node: usize) -> bool {
        self.nodes[node].condition == Condition::Running
    }

    pub(super) fn is_alive(&self, node: usize) -> bool {
        matches!(self.nodes[node].condition, Condition::Running | Condition::Stopped)
    }
}

pub(super) fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).expect("less than centuries")
}
