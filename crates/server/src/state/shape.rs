//! The nodes of a cluster, and the slots that each serves.

use std::{
    net::IpAddr,
    ops::RangeInclusive,
    sync::{Arc, OnceLock},
};

use terrace_protocol::Reply;

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
    encoded_slots: [OnceLock<EncodedSlots>; 2],
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

    /// The reply to CLUSTER SLOTS, encoded once for each version of RESP.
    pub(crate) fn encoded_slots(&self, resp3: bool) -> &EncodedSlots {
        self.encoded_slots[usize::from(resp3)].get_or_init(|| EncodedSlots::new(self, resp3))
    }
}

/// The encoded ranges of CLUSTER SLOTS. Each client gets them from another node's first range on:
/// many clients connect to the first node that they find.
#[derive(Debug)]
pub(crate) struct EncodedSlots {
    ranges: usize,
    bytes: Vec<u8>,
    /// Where the first range of each node begins.
    starts: Vec<usize>,
}

impl EncodedSlots {
    fn new(shape: &Shape, resp3: bool) -> EncodedSlots {
        let mut ranges: Vec<(&RangeInclusive<u16>, &Arc<Node>)> = Vec::new();
        for node in shape.nodes() {
            ranges.extend(node.slots.iter().map(|range| (range, node)));
        }
        ranges.sort_unstable_by_key(|(range, _)| *range.start());
        let mut bytes = Vec::new();
        let (mut starts, mut reply) = (Vec::new(), Reply::new(&mut bytes, resp3));
        for (range, node) in &ranges {
            if node.slots.first() == Some(range) {
                starts.push(reply.mark());
            }
            reply.array(3);
            reply.integer((*range.start()).into());
            reply.integer((*range.end()).into());
            describe(&mut reply, node);
        }
        EncodedSlots { ranges: ranges.len(), bytes, starts }
    }

    /// Writes the reply for the client of this number.
    pub(crate) fn write(&self, reply: &mut Reply<'_>, client: u64) {
        let nth = client.checked_rem(self.starts.len() as u64).unwrap_or(0) as usize;
        let (last, first) = self.bytes.split_at(self.starts.get(nth).copied().unwrap_or(0));
        reply.array(self.ranges);
        reply.raw(first);
        reply.raw(last);
    }
}

/// A node in CLUSTER SLOTS: what to connect to, and what else is known.
fn describe(reply: &mut Reply<'_>, node: &Node) {
    reply.array(4);
    reply.bulk(node.endpoint().as_bytes());
    reply.integer(node.port.into());
    reply.bulk(node.id.as_bytes());
    reply.map(usize::from(node.host.is_some()));
    if node.host.is_some() {
        reply.bulk(b"ip");
        reply.bulk(node.address.to_string().as_bytes());
    }
}
