//! The hash slots of a cluster, and the nodes that serve them.
//!
//! A server with a [`Routing`] speaks the Redis Cluster protocol: it answers for the slots that it
//! serves, and sends clients elsewhere for others. Without one, it serves every key.

use std::{
    net::IpAddr,
    ops::RangeInclusive,
    sync::{Arc, OnceLock},
};

use crate::command::EncodedSlots;

/// What a server knows about the cluster that it belongs to. Called for each command, so neither
/// function may block.
pub trait Routing: Send + Sync {
    /// Where a slot is served now. `asking`: the client has sent ASKING, because another node has
    /// sent it here with [`Place::Ask`].
    ///
    /// The store has the last word: a command that it refuses with `NotOwner` is sent where this
    /// function says then.
    fn place(&self, slot: u16, asking: bool) -> Place;

    /// How many slots have come to this node so far. A slot is counted before it is served.
    fn arrivals(&self) -> u64;

    /// The cluster as this node knows it: the same `Arc` until that changes.
    fn shape(&self) -> Arc<Shape>;

    /// What INFO and the metrics tell of this node's part in the cluster.
    fn figures(&self) -> Vec<Figure> {
        Vec::new()
    }
}

/// A number about this node of a cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Figure {
    /// Its name, behind `cluster_` in INFO and the metrics.
    pub name: &'static str,
    /// A phrase about it.
    pub about: &'static str,
    /// Whether it only grows.
    pub is_total: bool,
    /// The number.
    pub value: u64,
}

impl Figure {
    /// A number that only grows.
    pub fn total(name: &'static str, about: &'static str, value: u64) -> Figure {
        Figure { name, about, is_total: true, value }
    }

    /// A number as it is now.
    pub fn now(name: &'static str, about: &'static str, value: u64) -> Figure {
        Figure { name, about, is_total: false, value }
    }
}

/// Where a slot is served.
#[derive(Clone, Debug)]
pub enum Place {
    /// By this node.
    Here,
    /// By another node: MOVED.
    There(Arc<Node>),
    /// By another node, for the next command alone: ASK.
    Ask(Arc<Node>),
    /// By no node for a moment: the slot is being moved. The command waits, at most
    /// [`HELD_MOST_MS`].
    Held,
    /// By no node: CLUSTERDOWN.
    Nowhere,
}

/// Milliseconds that a command waits for a slot that is being moved. Then it fails with TRYAGAIN.
pub const HELD_MOST_MS: u64 = 2000;

/// A node of the cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Node {
    /// Forty hexadecimal digits.
    pub id: String,
    /// Its name, if one is configured: clients are then told this, and not the address.
    pub host: Option<String>,
    /// Its address.
    pub address: IpAddr,
    /// The port of its clients.
    pub port: u16,
    /// The slots that it serves.
    pub slots: Vec<RangeInclusive<u16>>,
    /// Whether it is known to work.
    pub is_online: bool,
}

impl Node {
    /// What clients connect to: the name if there is one, or else the address.
    pub fn endpoint(&self) -> String {
        self.host.clone().unwrap_or_else(|| self.address.to_string())
    }

    /// Number of slots that it serves.
    pub fn slot_count(&self) -> usize {
        self.slots.iter().map(|range| range.len()).sum()
    }

    /// Sorts the ranges, and joins those without a gap between them.
    fn join_ranges(&mut self) {
        self.slots.sort_unstable_by_key(|range| *range.start());
        let mut joined: Vec<RangeInclusive<u16>> = Vec::new();
        for range in self.slots.drain(..).filter(|range| !range.is_empty()) {
            match joined.last_mut() {
                Some(last) if u32::from(*range.start()) <= u32::from(*last.end()) + 1 => {
                    *last = *last.start()..=*last.end().max(range.end());
                }
                _ => joined.push(range),
            }
        }
        self.slots = joined;
    }
}

/// The cluster as a node knows it.
#[derive(Debug)]
pub struct Shape {
    epoch: u64,
    /// This node is the first one.
    nodes: Vec<Arc<Node>>,
    /// The replies to CLUSTER SLOTS in RESP2 and RESP3, once a client has asked for them.
    pub(crate) encoded_slots: [OnceLock<EncodedSlots>; 2],
}

impl Shape {
    /// A cluster of the node `me` and some others. `epoch` grows with each change of it.
    pub fn new(epoch: u64, me: Node, others: Vec<Node>) -> Shape {
        let mut nodes: Vec<Node> = std::iter::once(me).chain(others).collect();
        nodes.iter_mut().for_each(Node::join_ranges);
        Shape { epoch, nodes: nodes.into_iter().map(Arc::new).collect(), encoded_slots: Default::default() }
    }

    /// The number of this state of the cluster.
    pub fn epoch(&self) -> u64 {
        self.epoch
    }

    /// This node.
    pub fn me(&self) -> &Arc<Node> {
        &self.nodes[0]
    }

    /// All nodes, this one first. Their slots are sorted, without two ranges that touch.
    pub fn nodes(&self) -> &[Arc<Node>] {
        &self.nodes
    }
}
