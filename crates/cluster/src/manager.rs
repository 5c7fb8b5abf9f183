//! The manager: decides which node should own which slot, and writes that to the directory.
//!
//! Each node has one, and the directory says which of them writes. It is needed for changes, not
//! for safety. The memory node's manager takes the lead whenever it can: without the memory node
//! there is nothing to decide, and the death of a serving node then costs no election.

use crate::directory::{Claim, Directory, Follower, Heard, Leader, Moves, Revision, State};
use crate::map::{Map, Node};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The manager of the memory node.
pub const MEMORY: &str = "memory";
/// How long nodes have to come back after a restart of the memory node.
pub const RETURN: Duration = Duration::from_secs(2);
/// How long a manager that has lost the lead leaves it to the other one: at first, and at most. Two
/// memory nodes would take it from each other for ever.
const LEAVE: Duration = Duration::from_secs(1);
const LEAVE_MOST: Duration = Duration::from_secs(64);
/// How often the manager looks at the clock.
const TICK: Duration = Duration::from_millis(100);

/// A map that should be written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Decision {
    /// The map.
    pub map: Map,
    /// What is left of the operator's wishes, if some are over.
    pub moves: Option<Moves>,
    /// A sentence for the log.
    pub why: String,
}

/// Decides. It has no clock, threads or I/O.
#[derive(Clone, Debug, Default)]
pub struct Decider {
    /// The last boot of the memory node, and when it was first seen.
    boot: Option<(u64, Duration)>,
    /// Nodes that have had a session since then: those without one are dead.
    returned: BTreeSet<String>,
    /// What needed no change.
    settled: Option<(Vec<Node>, Revision, Revision)>,
}

impl Decider {
    /// The map that should be written over that of a state, if it should.
    ///
    /// Slots go to nodes with a session, which are not drained. While the memory node has not said
    /// which they are, or has begun anew and they have time to return, nodes of the map remain that
    /// were not there since. The first map has all nodes that are there. Without a node, the map
    /// remains.
    pub fn decide(&mut self, state: &State, now: Duration) -> Option<Decision> {
        let live = self.live(state, now);
        let inputs = (live, state.moves.revision, state.epoch);
        if inputs.0.is_empty() || self.settled.as_ref() == Some(&inputs) {
            return None;
        }
        let map = state.map.spread_anew(inputs.0.clone(), &state.moves.of);
        if map == state.map {
            self.settled = Some(inputs);
            return None;
        }
        let lives = |node: &String| inputs.0.iter().any(|live| live.id == *node);
        let mut moves = state.moves.clone();
        moves.of.retain(|node, _| lives(node));
        let why = reason(state, &map);
        Some(Decision { map, moves: (moves != state.moves).then_some(moves), why })
    }

    /// The nodes that should have slots, in the order of their ids.
    fn live(&mut self, state: &State, now: Duration) -> Vec<Node> {
        let boot = state.sessions.as_ref().map(|sessions| sessions.boot);
        if boot.is_some() && self.boot.map(|(boot, _)| boot) != boot {
            self.boot = boot.map(|boot| (boot, now));
            self.returned.clear();
        }
        self.returned.extend(state.sessions.iter().flat_map(|sessions| sessions.nodes.iter().cloned()));
        let begins = |(_, since)| now < since + RETURN;
        let is_patient = boot.is_none() || self.boot.is_some_and(begins);
        let has_session =
            |id: &str| state.sessions.as_ref().is_some_and(|sessions| sessions.nodes.contains(id));
        let lives = |(id, (_, is_in_map)): &(&str, (Node, bool))| {
            let may_return = is_patient && !self.returned.contains(*id);
            let may_stay = may_return && (*is_in_map || state.map.nodes.is_empty());
            !state.drained.contains(*id) && (has_session(id) || may_stay)
        };
        known(state).into_iter().filter(lives).map(|(_, (node, _))| node).collect()
    }
}

/// All nodes whose address is known, and whether they are in the map. A node tells its address
/// itself; if it does not (etcd was away, say), the map has it.
fn known(state: &State) -> BTreeMap<&str, (Node, bool)> {
    let mut known: BTreeMap<&str, (Node, bool)> = BTreeMap::new();
    for node in &state.map.nodes {
        known.insert(&node.id, (node.clone(), true));
    }
    for (id, member) in &state.members {
        let node = Node { id: id.clone(), host: member.host.clone(), port: member.port };
        let is_in_map = known.contains_key(id.as_str());
        known.insert(id, (node, is_in_map));
    }
    known
}

/// Why the map of a state should become this one.
fn reason(state: &State, map: &Map) -> String {
    let (before, after) = (by_id(&state.map), by_id(map));
    let mut parts = Vec::new();
    for (id, node) in &after {
        match before.get(id) {
            None if before.is_empty() => parts.push(format!("{} is there", name(node))),
            None => parts.push(format!("{} has joined and takes its share", name(node))),
            Some(was) if was != node => {
                parts.push(format!("{} was at {}:{}", name(node), was.host, was.port))
            }
            Some(_) => {}
        }
    }
    for (id, node) in before.iter().filter(|(id, _)| !after.contains_key(*id)) {
        let why = if state.drained.contains(*id) { "shall be drained" } else { "has no session any more" };
        parts.push(format!("{} {why} and leaves its slots to the others", name(node)));
    }
    if parts.is_empty() {
        parts.push("slots go where the operator wants them".into());
    }
    parts.join("; ")
}

fn by_id(map: &Map) -> BTreeMap<&str, &Node> {
    map.nodes.iter().map(|node| (node.id.as_str(), node)).collect()
}

/// A node as a person knows it.
fn name(node: &Node) -> String {
    let short = node.id.get(..8).unwrap_or(&node.id);
    format!("node {short} ({}:{})", node.host, node.port)
}

/// A thread that leads if it may, and decides while it leads.
pub struct Manager(#[expect(dead_code, reason = "its drop ends the thread")] Follower);

impl Manager {
    /// Starts the manager of a node: its id, or [`MEMORY`].
    ///
    /// # Errors
    /// If no thread can be started.
    pub fn start(directory: Arc<dyn Directory>, name: &str) -> std::io::Result<Self> {
        let mut worker = Worker::new(Arc::clone(&directory), name);
        Ok(Self(Follower::start("manager", directory, move |heard| worker.run(heard))?))
    }
}

/// A manager in its thread.
pub(crate) struct Worker {
    pub(crate) directory: Arc<dyn Directory>,
    name: String,
    pub(crate) claim: Option<Claim>,
    decider: Decider,
    /// How long it leaves the next lead that it loses to the other one, and until when it does now.
    leave: Duration,
    leaves_until: Duration,
}

impl Worker {
    pub(crate) fn new(directory: Arc<dyn Directory>, name: &str) -> Self {
        let (claim, decider, leaves_until) = Default::default();
        Self { directory, name: name.into(), claim, decider, leave: LEAVE, leaves_until }
    }

    #[allow(clippy::disallowed_methods, reason = "the driver of a state machine without a clock")]
    fn run(&mut self, heard: &Heard) {
        let begin = Instant::now();
        let mut state: Option<State> = None;
        while let ControlFlow::Continue(heard) = heard.next(TICK) {
            match heard {
                // It is from before a change of this manager, or etcd has lost its data.
                Some(heard) if state.as_ref().is_some_and(|state| state.revision > heard.revision) => {
                    state = self.directory.read().ok().or(state);
                }
                Some(heard) => state = Some(heard),
                None => {}
            }
            if let Some(state) = &mut state {
                self.lead(state, begin.elapsed());
                self.decide(state, begin.elapsed());
            }
        }
    }

    /// Becomes the leader if it may, or notes that it is not any more.
    pub(crate) fn lead(&mut self, state: &mut State, now: Duration) {
        let leads =
            |claim: &Claim| state.leader.as_ref().is_some_and(|leader| leader.revision == claim.revision);
        if self.claim.as_ref().is_some_and(|claim| !leads(claim)) {
            log::info!("the manager of {} does not lead any more", self.name);
            self.claim = None;
            self.leaves_until = now + self.leave;
            self.leave = (self.leave * 2).min(LEAVE_MOST);
        }
        let may =
            |leader: &Leader| (leader.name == self.name || self.name == MEMORY) && now >= self.leaves_until;
        if self.claim.is_some() || !state.leader.as_ref().is_none_or(may) {
            return;
        }
        // An error was logged by the directory; the next tick tries again.
        if let Ok(Some(claim)) = self.directory.lead(&self.name, state.leader.as_ref()) {
            log::info!("the manager of {} leads", self.name);
            state.revision = claim.revision;
            state.leader = Some(Leader { name: self.name.clone(), revision: claim.revision });
            self.claim = Some(claim);
        } else if let Ok(read) = self.directory.read() {
            *state = read;
        }
    }

    fn decide(&mut self, state: &mut State, now: Duration) {
        let Some(claim) = &self.claim else { return };
        let Some(Decision { map, moves, why }) = self.decider.decide(state, now) else { return };
        match self.directory.put_map(claim, state, &map, moves.as_ref()) {
            Ok(Some(revision)) => {
                log::info!("map {revision}: {why}");
                (state.revision, state.epoch, state.map) = (revision, revision, map);
                if let Some(moves) = moves {
                    state.moves = Moves { revision, ..moves };
                }
            }
            // Something has changed: what, the directory says.
            Ok(None) => *state = self.directory.read().unwrap_or_else(|_| state.clone()),
            Err(error) => log::debug!("the map waits: {error}"),
        }
    }
}
