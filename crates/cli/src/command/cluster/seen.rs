//! The serving nodes that the directory speaks of.

use terrace_cluster::{directory::State, map::Node};

use crate::failure::Failure;

/// A serving node as the directory knows it.
#[derive(Debug)]
pub(super) struct Seen {
    pub(super) id: String,
    /// Its host and port, if they are known.
    pub(super) node: Option<Node>,
    pub(super) is_registered: bool,
    pub(super) has_session: bool,
    pub(super) is_drained: bool,
    pub(super) slots: usize,
}

impl Seen {
    pub(super) fn address(&self) -> String {
        self.node.as_ref().map_or_else(|| "?".into(), |node| format!("{}:{}", node.host, node.port))
    }

    /// What a person is told: the begin of the id, and the address.
    pub(super) fn name(&self) -> String {
        format!("{} ({})", short(&self.id), self.address())
    }

    /// Whether it can have slots.
    pub(super) fn is_live(&self) -> bool {
        self.has_session && !self.is_drained
    }
}

/// The begin of an id.
pub(super) fn short(id: &str) -> &str {
    id.get(..8).unwrap_or(id)
}

/// All serving nodes that the directory speaks of, in the order of their addresses.
pub(super) fn seen(state: &State) -> Vec<Seen> {
    let sessions = state.sessions.iter().flat_map(|sessions| &sessions.nodes);
    let in_map = state.map.nodes.iter().map(|node| &node.id);
    let ids: std::collections::BTreeSet<&String> =
        state.members.keys().chain(&state.drained).chain(sessions).chain(in_map).collect();
    let one = |id: &String| Seen {
        id: id.clone(),
        node: node(state, id),
        is_registered: state.members.contains_key(id),
        has_session: state.sessions.as_ref().is_some_and(|sessions| sessions.nodes.contains(id)),
        is_drained: state.drained.contains(id),
        slots: state.map.slots_of(id).iter().map(|range| range.slots().count()).sum(),
    };
    let mut all: Vec<Seen> = ids.into_iter().map(one).collect();
    all.sort_by_key(|seen| (seen.node.as_ref().map(|node| (node.host.clone(), node.port)), seen.id.clone()));
    all
}

fn node(state: &State, id: &str) -> Option<Node> {
    if let Some(member) = state.members.get(id) {
        return Some(Node { id: id.into(), host: member.host.clone(), port: member.port });
    }
    state.map.nodes.iter().find(|node| node.id == id).cloned()
}

/// The node that a person means.
pub(super) fn find(state: &State, wanted: &str) -> Result<Seen, Failure> {
    let is_it = |seen: &Seen| seen.address() == wanted || !wanted.is_empty() && seen.id.starts_with(wanted);
    let (mut found, others): (Vec<Seen>, Vec<Seen>) = seen(state).into_iter().partition(is_it);
    match found.len() {
        1 => Ok(found.remove(0)),
        0 => {
            let known: Vec<String> = others.iter().map(Seen::name).collect();
            let known = if known.is_empty() { "none".into() } else { known.join(", ") };
            Err(Failure::new(format!("there is no node {wanted}"))
                .hint(format!("the cluster's nodes: {known}")))
        }
        _ => {
            let several: Vec<String> = found.iter().map(Seen::name).collect();
            Err(Failure::new(format!("{wanted} stands for several nodes: {}", several.join(", ")))
                .hint("give more of the id"))
        }
    }
}
