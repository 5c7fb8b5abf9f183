//! What the directory says, and how it is written: JSON, so that an operator can read it.

use super::{Entries, Revision, Written};
use crate::map::{Map, Node};
use crate::slot::{SLOTS, SlotRange};
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use std::collections::{BTreeMap, BTreeSet};

/// Where the memory node listens.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Memory {
    /// Host and port of its control channel.
    pub address: String,
    /// Tells the file of its pool from all others, also from copies; empty if it is not known.
    #[serde(default)]
    pub pool: String,
}

impl Memory {
    /// Whether it has a pool, and not this one: then both must not serve. A memory node with this
    /// pool open is a successor of the others that had it.
    pub fn is_rival_of(&self, pool: &str) -> bool {
        !self.pool.is_empty() && self.pool != pool
    }
}

/// A serving node that lives.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Member {
    /// The host that clients are told.
    pub host: String,
    /// Its port.
    pub port: u16,
    /// The version of the messages that it speaks.
    pub wire: u32,
}

impl Member {
    /// As it stands in the directory.
    pub fn text(&self) -> String {
        text(self)
    }
}

/// The nodes that the memory node serves.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sessions {
    /// The number of this life of the memory node: no other life has it.
    pub boot: u64,
    /// The nodes.
    pub nodes: BTreeSet<String>,
}

impl Sessions {
    /// As it stands in the directory.
    pub fn text(&self) -> String {
        text(self)
    }
}

/// The manager that may write the map.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Leader {
    /// The node that it runs in: a serving node's id, or `memory`.
    pub name: String,
    /// The revision of its claim.
    pub revision: Revision,
}

/// Slots that the operator wants at a node, until it goes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Moves {
    /// The revision of what was read.
    pub revision: Revision,
    /// The slots of each node.
    pub of: BTreeMap<String, Vec<SlotRange>>,
}

impl Moves {
    /// The same, with these slots at a node.
    pub fn with(&self, ranges: &[SlotRange], node: &str) -> Self {
        let slots = |ranges: &[SlotRange]| -> BTreeSet<u16> {
            ranges.iter().flat_map(|range| range.slots()).collect()
        };
        let moved = slots(ranges);
        let mut of = BTreeMap::new();
        for (other, ranges) in &self.of {
            of.insert(other.clone(), slots(ranges).difference(&moved).copied().collect::<BTreeSet<_>>());
        }
        of.entry(node.to_owned()).or_default().extend(moved);
        of.retain(|_, slots| !slots.is_empty());
        let of = of.into_iter().map(|(node, slots)| (node, SlotRange::of(slots))).collect();
        Self { revision: self.revision, of }
    }

    /// As it stands in the directory.
    pub(super) fn text(&self) -> String {
        text(&by_node(&self.of))
    }
}

/// All that the directory says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct State {
    /// When it said so.
    pub revision: Revision,
    /// The cluster's id.
    pub id: Option<String>,
    /// The revision of its key; 0 if there is none.
    pub id_at: Revision,
    /// The memory node, if it lives.
    pub memory: Option<Memory>,
    /// The revision of what the directory says of it; 0 for nothing.
    pub memory_at: Revision,
    /// Whether a process keeps that. A memory node does; what was written by hand stays for ever.
    pub memory_is_kept: bool,
    /// The serving nodes that live, by id.
    pub members: BTreeMap<String, Member>,
    /// What the memory node says, if it lives.
    pub sessions: Option<Sessions>,
    /// The map; without nodes if there is none yet.
    pub map: Map,
    /// Its epoch: 0 if there is none yet.
    pub epoch: Revision,
    /// What the watch adds to epochs: the last one before each time that it has seen the directory
    /// lose its data.
    pub lost: Revision,
    /// The manager.
    pub leader: Option<Leader>,
    /// Nodes that shall have no slots.
    pub drained: BTreeSet<String>,
    /// What the operator wants elsewhere.
    pub moves: Moves,
    /// Keys whose texts make no sense.
    pub damaged: Vec<String>,
}

impl State {
    /// The epoch of the map for those that a watch tells it: it grows with each map, whatever the
    /// directory has lost. 0 if there is no map.
    pub fn told_epoch(&self) -> u64 {
        if self.epoch == 0 { 0 } else { self.lost + self.epoch }
    }

    /// Whether the directory, which has said this before, has lost its data since: a map is never
    /// removed, nor written by an earlier change.
    pub(super) fn is_lost_in(&self, now: &Self) -> bool {
        now.revision < self.revision
            || now.epoch < self.epoch
            || now.epoch == self.epoch && now.map != self.map
    }

    /// Reads it. A text that makes no sense counts as absent, and its key is told.
    pub(super) fn read(revision: Revision, entries: &Entries) -> Self {
        let mut state = Self { revision, ..Self::default() };
        for (key, written) in entries {
            if state.take(key, written).is_none() {
                state.damaged.push(key.clone());
            }
        }
        state
    }

    fn take(&mut self, key: &str, written: &Written) -> Option<()> {
        let Written { ref text, revision, is_kept } = *written;
        match key.split_once('/').unwrap_or((key, "")) {
            ("id", "") => {
                self.id_at = revision;
                self.id = Some(is_id(text).then(|| text.into())?);
            }
            ("memory", "") => {
                (self.memory_at, self.memory_is_kept) = (revision, is_kept);
                self.memory = Some(value(text)?);
            }
            ("members", id) => _ = self.members.insert(id.into(), value(text)?),
            ("sessions", "") => self.sessions = Some(value(text)?),
            ("map", "") => {
                self.epoch = revision;
                self.map = read_map(text)?;
            }
            ("leader", "") => self.leader = Some(Leader { name: text.into(), revision }),
            ("drained", id) => _ = self.drained.insert(id.into()),
            ("moves", "") => {
                self.moves.revision = revision;
                self.moves.of = from_texts(value(text)?)?;
            }
            // Of a later release.
            _ => {}
        }
        Some(())
    }
}

/// The map as it stands in the directory. Ranges are texts: there are thousands.
#[derive(Serialize, Deserialize)]
struct WrittenMap {
    nodes: Vec<Node>,
    slots: BTreeMap<String, String>,
}

pub(super) fn map_text(map: &Map) -> String {
    text(&WrittenMap { nodes: map.nodes.clone(), slots: by_node(&map.slots) })
}

fn read_map(text: &str) -> Option<Map> {
    let written: WrittenMap = value(text)?;
    Some(Map { nodes: written.nodes, slots: from_texts(written.slots)? })
}

fn by_node(slots: &BTreeMap<String, Vec<SlotRange>>) -> BTreeMap<String, String> {
    slots.iter().map(|(node, ranges)| (node.clone(), ranges_text(ranges))).collect()
}

fn from_texts(texts: BTreeMap<String, String>) -> Option<BTreeMap<String, Vec<SlotRange>>> {
    texts.into_iter().map(|(node, text)| Some((node, parse_ranges(&text)?))).collect()
}

/// Whether a text is an id: 40 hexadecimal digits.
pub fn is_id(text: &str) -> bool {
    text.len() == 40 && text.bytes().all(|digit| matches!(digit, b'0'..=b'9' | b'a'..=b'f'))
}

fn value<T: DeserializeOwned>(text: &str) -> Option<T> {
    serde_json::from_str(text).ok()
}

pub(super) fn text<T: Serialize>(value: &T) -> String {
    serde_json::to_string(value).expect("names are texts, and nothing else can fail")
}

/// Ranges as a text: `0-99 200`.
pub fn ranges_text(ranges: &[SlotRange]) -> String {
    let one = |range: &SlotRange| match range.first == range.last {
        true => range.first.to_string(),
        false => format!("{}-{}", range.first, range.last),
    };
    ranges.iter().map(one).collect::<Vec<_>>().join(" ")
}

/// The ranges of a text: `0-99 200`, or with commas. In order, and joined.
pub fn parse_ranges(text: &str) -> Option<Vec<SlotRange>> {
    let mut has = vec![false; SLOTS.into()];
    let parts: Vec<&str> = text.split(',').map(str::trim).collect();
    if parts.len() > 1 && parts.contains(&"") {
        return None;
    }
    for part in parts.into_iter().flat_map(str::split_whitespace) {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let range = SlotRange::new(first.parse().ok()?, last.parse().ok()?)?;
        range.slots().for_each(|slot| has[usize::from(slot)] = true);
    }
    Some(SlotRange::of((0..SLOTS).filter(|slot| has[usize::from(*slot)])))
}
