//! The map: which node should own which slot. It is one value in etcd; its revision is the epoch.
//!
//! Each node has one range of slots, as far as that can be. A node that comes takes its share from
//! those that have most, and one that goes leaves its share to those that have least: no other slot
//! moves. Ranges are cut at their ends, next to what moves as well, so that few come of it.

use crate::slot::{SLOTS, SlotRange};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Ranges a node, above which all slots are dealt anew.
const RANGES_MOST: usize = 8;
/// A range that is shorter than this part of a share goes as a whole, or stays.
const CRUMB: usize = 16;

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
    /// Spreads all slots over these nodes, one range each.
    pub fn spread(nodes: Vec<Node>) -> Self {
        Self::default().spread_anew(nodes, &BTreeMap::new())
    }

    /// Spreads the slots over these nodes instead, and moves few. Those of `wished` go to their
    /// nodes, if these are there; the others are spread without them.
    #[must_use]
    pub fn spread_anew(&self, nodes: Vec<Node>, wished: &BTreeMap<String, Vec<SlotRange>>) -> Self {
        let place = |id: &String| nodes.iter().position(|node| node.id == *id);
        let mut owners: Vec<Option<usize>> = vec![None; SLOTS.into()];
        let mut is_wished = vec![false; SLOTS.into()];
        let set = |of: &BTreeMap<String, Vec<SlotRange>>, set: &mut dyn FnMut(usize, usize)| {
            for (node, ranges) in of.iter().filter_map(|(id, ranges)| Some((place(id)?, ranges))) {
                let slots = ranges.iter().flat_map(|range| range.slots());
                slots.for_each(|slot| set(usize::from(slot), node));
            }
        };
        set(&self.slots, &mut |slot, node| owners[slot] = Some(node));
        set(wished, &mut |slot, node| (owners[slot], is_wished[slot]) = (Some(node), true));
        // The others, as if there were no more.
        let rest: Vec<usize> = (0..owners.len()).filter(|slot| !is_wished[*slot]).collect();
        let knows = |node: &Node| self.nodes.iter().any(|known| known.id == node.id);
        let is_new = nodes.iter().map(|node| rest.len() == owners.len() || !knows(node)).collect();
        let owners_of_rest = rest.iter().map(|slot| owners[*slot]).collect();
        let mut deal = Deal { owners: owners_of_rest, nodes: nodes.len(), is_new };
        deal.run();
        assert!(deal.owners.len() == rest.len(), "slots are dealt, not made");
        debug_assert!(nodes.is_empty() || deal.owners.iter().all(Option::is_some), "each slot has a node");
        rest.iter().zip(deal.owners).for_each(|(slot, owner)| owners[*slot] = owner);
        let slots_of =
            |node: usize| SlotRange::of((0..SLOTS).filter(|slot| owners[usize::from(*slot)] == Some(node)));
        let all = nodes.iter().enumerate().map(|(nth, node)| (node.id.clone(), slots_of(nth)));
        let slots = all.filter(|(_, slots)| !slots.is_empty()).collect();
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

/// Slots in a row, without those that are where the operator wants them, and the nodes that have
/// them: at the end each one has a node, if there is any.
struct Deal {
    owners: Vec<Option<usize>>,
    nodes: usize,
    /// Nodes that others give slots to, if they have none.
    is_new: Vec<bool>,
}

/// Places in a row.
type Run = std::ops::Range<usize>;

impl Deal {
    fn run(&mut self) {
        if self.nodes == 0 || self.owners.is_empty() {
            return;
        }
        let has_none = self.owners.iter().all(Option::is_none);
        if has_none || self.runs().len() > RANGES_MOST * self.nodes {
            let count = self.owners.len();
            for (slot, owner) in self.owners.iter_mut().enumerate() {
                *owner = Some(slot * self.nodes / count);
            }
            return;
        }
        let (gives, takes) = self.balance();
        gives.into_iter().enumerate().for_each(|(node, count)| self.give(node, count));
        self.take(takes);
    }

    /// A share.
    fn share(&self) -> usize {
        self.owners.len() / self.nodes
    }

    /// How many slots each node gives to those that have none, and how many each node takes.
    fn balance(&self) -> (Vec<usize>, Vec<usize>) {
        let mut counts = vec![0_usize; self.nodes];
        self.owners.iter().flatten().for_each(|node| counts[*node] += 1);
        let (mut gives, mut takes) = (vec![0; self.nodes], vec![0; self.nodes]);
        let is_new = |node: &usize| self.is_new[*node];
        let new: Vec<usize> = (0..self.nodes).filter(is_new).filter(|node| counts[*node] == 0).collect();
        for _ in self.owners.iter().filter(|owner| owner.is_none()) {
            let least = (0..self.nodes).min_by_key(|node| counts[*node]).expect("a node");
            (counts[least], takes[least]) = (counts[least] + 1, takes[least] + 1);
        }
        for new in new {
            while counts[new] < self.share() {
                // The last of those that have most.
                let most = (0..self.nodes).max_by_key(|node| counts[*node]).expect("a node");
                (counts[most], gives[most]) = (counts[most] - 1, gives[most] + 1);
                (counts[new], takes[new]) = (counts[new] + 1, takes[new] + 1);
            }
        }
        (gives, takes)
    }

    /// The runs with one owner each.
    fn runs(&self) -> Vec<Run> {
        let mut runs: Vec<Run> = Vec::new();
        for (at, owner) in self.owners.iter().enumerate() {
            match runs.last_mut() {
                Some(run) if self.owners[run.start] == *owner => run.end = at + 1,
                _ => runs.push(at..at + 1),
            }
        }
        runs
    }

    fn owner(&self, run: &Run) -> Option<usize> {
        self.owners[run.start]
    }

    fn set(&mut self, run: Run, owner: Option<usize>) {
        self.owners[run].fill(owner);
    }

    /// Frees about so many slots of a node: its shortest runs, and then the end of one that is next
    /// to free slots.
    fn give(&mut self, node: usize, count: usize) {
        let mut left = count;
        let mut own: Vec<Run> = self.runs().into_iter().filter(|run| self.owner(run) == Some(node)).collect();
        own.sort_by_key(Run::len);
        // It keeps the longest one.
        let longest = own.pop();
        for run in own {
            if left == 0 || run.len() > left + self.share() / CRUMB {
                break;
            }
            left = left.saturating_sub(run.len());
            self.set(run, None);
        }
        let Some(run) = longest.filter(|_| left > 0) else { return };
        let is_free = |at: Option<usize>| at.and_then(|at| self.owners.get(at)).is_some_and(Option::is_none);
        let begins_free = is_free(run.start.checked_sub(1));
        // Else at the end, where the next node may free some, too.
        let at_begin = begins_free && !is_free(Some(run.end)) || run.end == self.owners.len();
        let left = left.min(run.len());
        let freed = if at_begin { run.start..run.start + left } else { run.end - left..run.end };
        self.set(freed, None);
    }

    /// Gives the free slots away, about so many to each node: first to those beside them.
    fn take(&mut self, mut takes: Vec<usize>) {
        let free = |deal: &Self| -> Vec<Run> {
            deal.runs().into_iter().filter(|run| deal.owner(run).is_none()).collect()
        };
        for mut run in free(self) {
            let before = run.start.checked_sub(1).and_then(|at| self.owners[at]);
            let behind = self.owners.get(run.end).copied().flatten();
            if let Some(node) = before {
                let count = self.fitting(takes[node], run.len());
                self.set(run.start..run.start + count, before);
                (run.start, takes[node]) = (run.start + count, takes[node].saturating_sub(count));
            }
            if let Some(node) = behind {
                let count = self.fitting(takes[node], run.len());
                self.set(run.end - count..run.end, behind);
                takes[node] = takes[node].saturating_sub(count);
            }
        }
        for mut run in free(self) {
            while !run.is_empty() {
                let fits = |node: &usize| (takes[*node] < run.len(), takes[*node].abs_diff(run.len()));
                let node = (0..self.nodes).min_by_key(fits).expect("a node");
                let most = (0..self.nodes).max_by_key(|node| takes[*node]).expect("a node");
                let node = if takes[node] < run.len() { most } else { node };
                let count = self.fitting(takes[node], run.len()).max(1);
                self.set(run.start..run.start + count, Some(node));
                (run.start, takes[node]) = (run.start + count, takes[node].saturating_sub(count));
            }
        }
    }

    /// How many of a run go to a node that takes so many: all, if a crumb were left.
    fn fitting(&self, takes: usize, run: usize) -> usize {
        if takes > 0 && run <= takes + self.share() / CRUMB { run } else { takes.min(run) }
    }
}
