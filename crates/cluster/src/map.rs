//! The map: which node should own which slot. It is one value in etcd; its revision is the epoch.
//!
//! Slots are spread by consistent hashing with virtual nodes (DINOMO, section 4.4.1): a node that
//! comes takes its share from all others, and one that goes leaves its share to all others.

use crate::slot::{SLOTS, SlotRange};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use xxhash_rust::xxh3::xxh3_64;

/// Points of a node on the ring. With so many, the shares of a few nodes differ by some percent.
const POINTS: u32 = 1024;

/// Neighbouring slots that go together, so that clients are told a thousand ranges, and not
/// ten thousand.
const BLOCK: u16 = 8;

/// A serving node, as clients reach it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Node {
    /// Its name: 40 hexadecimal digits, the same through all restarts.
    pub id: String,
    /// The host that clients are told.
    pub host: String,
    /// Its port.
    pub port: u16,
}

/// Nodes and their slots.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Map {
    /// The nodes.
    pub nodes: Vec<Node>,
    /// The slots of each.
    pub slots: BTreeMap<String, Vec<SlotRange>>,
}

impl Map {
    /// Spreads all slots over these nodes.
    pub fn spread(nodes: Vec<Node>) -> Self {
        let mut ring: Vec<(u64, usize)> = Vec::new();
        for (place, node) in nodes.iter().enumerate() {
            ring.extend((0..POINTS).map(|point| (xxh3_64(format!("{} {point}", node.id).as_bytes()), place)));
        }
        ring.sort_unstable();
        let owner = |slot: u16| {
            let at = xxh3_64(format!("slot {}", slot / BLOCK).as_bytes());
            let next = ring.partition_point(|(point, _)| *point < at);
            ring.get(next).or(ring.first()).map(|(_, node)| *node)
        };
        let mut slots: BTreeMap<String, Vec<u16>> = BTreeMap::new();
        for slot in 0..SLOTS {
            if let Some(node) = owner(slot) {
                slots.entry(nodes[node].id.clone()).or_default().push(slot);
            }
        }
        let slots = slots.into_iter().map(|(node, slots)| (node, SlotRange::of(slots))).collect();
        Self { nodes, slots }
    }

    /// The slots of a node.
    pub fn slots_of(&self, node: &str) -> &[SlotRange] {
        self.slots.get(node).map_or(&[], Vec::as_slice)
    }

    /// The owner of each slot.
    pub fn owners(&self) -> Vec<Option<&Node>> {
        let mut owners = vec![None; SLOTS.into()];
        for node in &self.nodes {
            for slot in self.slots_of(&node.id).iter().flat_map(|range| range.slots()) {
                owners[usize::from(slot)] = Some(node);
            }
        }
        owners
    }
}
