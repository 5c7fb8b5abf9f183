//! The hash slots of a cluster, and the nodes that serve them.
//!
//! A server with a [`Routing`] speaks the Redis Cluster protocol: it answers for the slots that it
//! serves, and sends clients elsewhere for others. Without one, it serves every key.

use std::sync::Arc;

pub use super::shape::{Node, Shape};

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
