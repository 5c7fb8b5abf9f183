//! The manager: what it decides, and which one of several does.

use crate::directory::{Etcd, World, wait};
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;
use terrace_cluster::directory::memory::Service;
use terrace_cluster::directory::{Directory, Kept, Member, Moves, Sessions, State};
use terrace_cluster::manager::{Decider, Decision, MEMORY, Manager, RETURN};
use terrace_cluster::slot::{SLOTS, SlotRange};

fn id(nth: u16) -> String {
    format!("{:040x}", u64::from(nth) * 77 + 1)
}

fn member(nth: u16) -> Member {
    Member { host: "localhost".into(), port: 7000 + nth, wire: 1 }
}

fn range(first: u16, last: u16) -> SlotRange {
    SlotRange::new(first, last).unwrap()
}

/// A cluster, its manager and its clock.
#[derive(Clone, Debug)]
struct Cluster {
    state: State,
    decider: Decider,
    now: Duration,
}

impl Cluster {
    /// With these nodes, which have sessions since long.
    fn of(nodes: &[u16]) -> Self {
        let mut cluster = Self { state: State::default(), decider: Decider::default(), now: Duration::ZERO };
        cluster.state.sessions = Some(Sessions { boot: 1, nodes: BTreeSet::new() });
        nodes.iter().for_each(|nth| cluster.join(*nth));
        cluster.decide();
        cluster.now += RETURN;
        cluster
    }

    fn sessions(&mut self) -> &mut Sessions {
        self.state.sessions.as_mut().unwrap()
    }

    fn join(&mut self, nth: u16) {
        self.state.members.insert(id(nth), member(nth));
        self.sessions().nodes.insert(id(nth));
    }

    fn restart_memory(&mut self) {
        let sessions = self.sessions();
        *sessions = Sessions { boot: sessions.boot + 1, nodes: BTreeSet::new() };
    }

    /// Decides, and writes what was decided. Tells why.
    fn decide(&mut self) -> Option<String> {
        let Decision { map, moves, why } = self.decider.decide(&self.state, self.now)?;
        self.state.revision += 1;
        (self.state.map, self.state.epoch) = (map, self.state.revision);
        if let Some(moves) = moves {
            self.state.moves = Moves { revision: self.state.revision, ..moves };
        }
        Some(why)
    }

    fn set_moves(&mut self, moves: Moves) {
        self.state.revision += 1;
        self.state.moves = Moves { revision: self.state.revision, ..moves };
    }

    fn owners(&self) -> Vec<Option<String>> {
        self.state.map.owners().into_iter().map(|owner| owner.map(|node| node.id.clone())).collect()
    }

    /// The nodes that own slots.
    fn owning(&self) -> BTreeSet<String> {
        self.owners().into_iter().map(|owner| owner.expect("each slot has an owner")).collect()
    }
}

fn ids(nodes: &[u16]) -> BTreeSet<String> {
    nodes.iter().map(|nth| id(*nth)).collect()
}

#[test]
fn first_map_has_all_nodes_that_are_there() {
    // Before the memory node has said anything, and just after it has.
    for sessions in [None, Some(Sessions { boot: 1, nodes: BTreeSet::new() })] {
        let mut cluster = Cluster::of(&[]);
        cluster.state.sessions = sessions;
        cluster.decider = Decider::default();
        assert_eq!(cluster.decide(), None);
        cluster.state.members = [1, 2].map(|nth| (id(nth), member(nth))).into();
        let why = cluster.decide().unwrap();
        assert!(why.contains("(localhost:7001) is there"), "{why}");
        assert_eq!(cluster.owning(), ids(&[1, 2]));
        // They stay while they connect.
        assert_eq!(cluster.decide(), None);
    }
}

#[test]
fn node_without_a_session_waits_for_it() {
    let mut cluster = Cluster::of(&[1]);
    cluster.state.members.insert(id(2), member(2));
    assert_eq!(cluster.decide(), None);
    cluster.join(2);
    let why = cluster.decide().unwrap();
    assert_eq!(why, format!("node {} (localhost:7002) has joined and takes its share", &id(2)[..8]));
    assert_eq!(cluster.owning(), ids(&[1, 2]));
}

#[test]
fn node_whose_session_has_ended_is_taken_out_at_once() {
    let mut cluster = Cluster::of(&[1, 2, 3]);
    cluster.sessions().nodes.remove(&id(2));
    let why = cluster.decide().unwrap();
    let name = format!("node {} (localhost:7002)", &id(2)[..8]);
    assert_eq!(why, format!("{name} has no session any more and leaves its slots to the others"));
    assert_eq!(cluster.owning(), ids(&[1, 3]));
}

#[test]
fn nodes_have_time_to_return_to_a_restarted_memory_node() {
    let mut cluster = Cluster::of(&[1, 2, 3]);
    cluster.restart_memory();
    assert_eq!(cluster.decide(), None);
    cluster.sessions().nodes = ids(&[1, 3]);
    cluster.now += RETURN - Duration::from_millis(1);
    assert_eq!(cluster.decide(), None);
    assert_eq!(cluster.owning(), ids(&[1, 2, 3]));
    cluster.now += Duration::from_millis(1);
    assert!(cluster.decide().unwrap().contains("(localhost:7002) has no session"));
    assert_eq!(cluster.owning(), ids(&[1, 3]));
}

#[test]
fn node_that_has_returned_and_dies_is_taken_out_at_once() {
    let mut cluster = Cluster::of(&[1, 2, 3]);
    cluster.restart_memory();
    cluster.sessions().nodes = ids(&[1, 2]);
    assert_eq!(cluster.decide(), None);
    cluster.sessions().nodes.remove(&id(2));
    assert!(cluster.decide().unwrap().contains("(localhost:7002) has no session"));
    assert_eq!(cluster.owning(), ids(&[1, 3]), "the third one may return");
}

#[test]
fn nodes_stay_while_the_memory_node_is_away() {
    let mut cluster = Cluster::of(&[1, 2]);
    let boot = cluster.state.sessions.take();
    cluster.now += RETURN * 10;
    assert_eq!(cluster.decide(), None);
    // The same life of it: etcd was away. What it says counts at once.
    cluster.state.sessions = boot;
    cluster.sessions().nodes.remove(&id(1));
    cluster.decide().unwrap();
    assert_eq!(cluster.owning(), ids(&[2]));
}

#[test]
fn node_that_lost_its_entry_but_has_a_session_stays() {
    let mut cluster = Cluster::of(&[1, 2]);
    cluster.state.members.clear();
    cluster.now += RETURN * 10;
    assert_eq!(cluster.decide(), None);
    cluster.state.members.insert(id(1), member(1));
    assert_eq!(cluster.decide(), None);
}

#[test]
fn node_that_has_moved_is_told_by_its_new_address() {
    let mut cluster = Cluster::of(&[1, 2]);
    let before = cluster.owners();
    cluster.state.members.insert(id(1), Member { host: "elsewhere".into(), ..member(9) });
    let why = cluster.decide().unwrap();
    assert_eq!(why, format!("node {} (elsewhere:7009) was at localhost:7001", &id(1)[..8]));
    assert_eq!(cluster.owners(), before);
}

#[test]
fn map_remains_if_no_node_is_left() {
    let mut cluster = Cluster::of(&[1, 2]);
    cluster.sessions().nodes.clear();
    assert_eq!(cluster.decide(), None);
    cluster.state.members.clear();
    cluster.restart_memory();
    cluster.decide();
    cluster.now += RETURN;
    assert_eq!(cluster.decide(), None);
    assert_eq!(cluster.owning(), ids(&[1, 2]));
}

#[test]
fn drained_node_has_no_slots_until_it_is_undrained() {
    let mut cluster = Cluster::of(&[1, 2, 3]);
    let before = cluster.owners();
    cluster.state.drained.insert(id(2));
    assert!(cluster.decide().unwrap().contains("shall be drained"));
    assert_eq!(cluster.owning(), ids(&[1, 3]));
    cluster.restart_memory();
    assert_eq!(cluster.decide(), None);
    cluster.state.drained.clear();
    cluster.sessions().nodes = ids(&[1, 2, 3]);
    cluster.decide().unwrap();
    assert_eq!(cluster.owners(), before);
}

#[test]
fn moved_slots_stay_until_their_node_goes() {
    let mut cluster = Cluster::of(&[1, 2, 3]);
    let spread = cluster.owners();
    let moves = Moves::default().with(&[range(0, 99)], &id(2)).with(&[range(50, 59)], &id(3));
    cluster.set_moves(moves);
    assert_eq!(cluster.decide().unwrap(), "slots go where the operator wants them");
    let owner = |slot: usize| if (50..60).contains(&slot) { id(3) } else { id(2) };
    let owners = cluster.owners();
    (0..100).for_each(|slot| assert_eq!(owners[slot], Some(owner(slot)), "{slot}"));
    assert_eq!(owners[100..], spread[100..]);
    // They survive a join.
    cluster.join(4);
    cluster.decide().unwrap();
    let owners = cluster.owners();
    (0..100).for_each(|slot| assert_eq!(owners[slot], Some(owner(slot)), "{slot}"));
    // Node 2 goes and comes: it has its share, and no more.
    cluster.sessions().nodes.remove(&id(2));
    cluster.decide().unwrap();
    assert_eq!(cluster.state.moves.of, BTreeMap::from([(id(3), vec![range(50, 59)])]));
    cluster.join(2);
    cluster.decide().unwrap();
    let owners = cluster.owners();
    (50..60).for_each(|slot| assert_eq!(owners[slot], Some(id(3)), "{slot}"));
    for nth in 1..=4 {
        let share = owners.iter().filter(|owner| **owner == Some(id(nth))).count();
        assert!((3800..=4400).contains(&share), "node {nth} has {share} slots");
    }
    let ranges: usize = cluster.state.map.slots.values().map(Vec::len).sum();
    assert!(ranges <= 12, "{ranges} ranges");
}

#[test]
fn later_move_of_a_slot_counts() {
    let moves = Moves::default().with(&[range(0, 9)], "a").with(&[range(5, 14)], "b");
    assert_eq!(moves.of, BTreeMap::from([("a".into(), vec![range(0, 4)]), ("b".into(), vec![range(5, 14)])]));
    let moves = moves.with(&[range(0, 4), range(20, 20)], "b");
    assert_eq!(moves.of, BTreeMap::from([("b".into(), vec![range(0, 14), range(20, 20)])]));
}

/// What happens to a cluster.
#[derive(Clone, Debug)]
enum Event {
    Register(u16),
    Unregister(u16),
    Begin(u16),
    End(u16),
    RestartMemory,
    LoseMemory,
    Drain(u16, bool),
    Move(u16, u16, u16),
    Wait(u64),
}

fn events() -> impl Strategy<Value = Vec<Event>> {
    let node = 0u16..5;
    let event = prop_oneof![
        4 => node.clone().prop_map(Event::Register),
        2 => node.clone().prop_map(Event::Unregister),
        6 => node.clone().prop_map(Event::Begin),
        2 => node.clone().prop_map(Event::End),
        1 => Just(Event::RestartMemory),
        1 => Just(Event::LoseMemory),
        1 => (node.clone(), any::<bool>()).prop_map(|(nth, is_drained)| Event::Drain(nth, is_drained)),
        1 => (node, 0..SLOTS, 0..SLOTS).prop_map(|(nth, a, b)| Event::Move(nth, a.min(b), a.max(b))),
        2 => (0..3000u64).prop_map(Event::Wait),
    ];
    proptest::collection::vec(event, 1..40)
}

impl Cluster {
    fn happen(&mut self, event: &Event) {
        let none = || Sessions { boot: 1, nodes: BTreeSet::new() };
        match *event {
            Event::Register(nth) => _ = self.state.members.insert(id(nth), member(nth)),
            Event::Unregister(nth) => _ = self.state.members.remove(&id(nth)),
            Event::Begin(nth) => _ = self.state.sessions.get_or_insert_with(none).nodes.insert(id(nth)),
            Event::End(nth) => {
                let sessions = &mut self.state.sessions;
                sessions.iter_mut().for_each(|sessions| _ = sessions.nodes.remove(&id(nth)));
            }
            Event::RestartMemory => {
                self.state.sessions.get_or_insert_with(none);
                self.restart_memory();
            }
            Event::LoseMemory => self.state.sessions = None,
            Event::Drain(nth, true) => _ = self.state.drained.insert(id(nth)),
            Event::Drain(nth, false) => _ = self.state.drained.remove(&id(nth)),
            Event::Move(nth, first, last) => {
                let moves = self.state.moves.with(&[range(first, last)], &id(nth));
                self.set_moves(moves);
            }
            Event::Wait(ms) => self.now += Duration::from_millis(ms),
        }
    }

    /// Nodes with a session whose address is known, but for those that shall be drained.
    fn able(&self) -> BTreeSet<String> {
        let known = |id: &&String| {
            self.state.members.contains_key(*id) || self.state.map.nodes.iter().any(|node| node.id == **id)
        };
        let with_session = self.state.sessions.iter().flat_map(|sessions| &sessions.nodes);
        with_session.filter(known).filter(|id| !self.state.drained.contains(*id)).cloned().collect()
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 20, ..ProptestConfig::default() })]

    #[test]
    fn decisions_are_sound(events in events()) {
        let mut cluster = Cluster::of(&[]);
        for event in &events {
            cluster.happen(event);
            let before = cluster.clone();
            let has_changed = cluster.decide().is_some();
            // Once is enough.
            prop_assert_eq!(cluster.decide(), None);
            if !has_changed {
                continue;
            }
            let owning = cluster.owning();
            let able = before.able();
            // Of the nodes without a session only those remain that may return, or are the first.
            let in_map: BTreeSet<String> = before.state.map.nodes.iter().map(|node| node.id.clone()).collect();
            for node in owning.difference(&able) {
                prop_assert!(in_map.contains(node) || in_map.is_empty());
                prop_assert!(!cluster.state.drained.contains(node));
            }
            // A map that only has one node more gives slots to it alone; one node less, from it
            // alone.
            let (old, new) = (before.owners(), cluster.owners());
            let nodes: BTreeSet<String> = cluster.state.map.nodes.iter().map(|node| node.id.clone()).collect();
            let (came, went): (Vec<_>, Vec<_>) =
                (nodes.difference(&in_map).collect(), in_map.difference(&nodes).collect());
            let same_wishes = before.state.moves.revision <= before.state.epoch;
            if in_map.is_empty() || !same_wishes {
                continue;
            }
            for (old, new) in old.iter().zip(&new).filter(|(old, new)| old != new) {
                let (old, new) = (old.as_ref().unwrap(), new.as_ref().unwrap());
                prop_assert!(came.contains(&new) || went.contains(&old), "from {} to {}", old, new);
            }
        }
        // At last, when all time to return is over.
        cluster.now += RETURN;
        cluster.decide();
        let able = cluster.able();
        if cluster.state.sessions.is_some() && !able.is_empty() {
            prop_assert_eq!(cluster.owning(), able);
        }
    }
}

/// A process of a cluster with a manager.
struct Process {
    directory: Arc<dyn Directory>,
    _manager: Manager,
    _registered: Option<Kept>,
}

fn serving(world: &dyn World, nth: u16) -> Process {
    let directory = world.connect();
    let registered = Some(directory.register(&id(nth), &member(nth)));
    let manager = Manager::start(Arc::clone(&directory), &id(nth)).unwrap();
    Process { directory, _manager: manager, _registered: registered }
}

fn memory(world: &dyn World) -> Process {
    let directory = world.connect();
    let manager = Manager::start(Arc::clone(&directory), MEMORY).unwrap();
    Process { directory, _manager: manager, _registered: None }
}

/// Whether these nodes own all slots.
fn own_all(state: &State, nodes: &[u16]) -> bool {
    let owners = state.map.owners();
    let owning: BTreeSet<String> = owners.into_iter().flatten().map(|node| node.id.clone()).collect();
    owning == ids(nodes)
}

fn managers_follow_the_cluster(world: &dyn World) {
    let eye = world.connect();
    let one = serving(world, 1);
    wait(&*eye, |state| {
        own_all(state, &[1]) && state.leader.as_ref().is_some_and(|leader| leader.name == id(1))
    });
    let two = serving(world, 2);
    let memory = memory(world);
    // Its manager takes the lead.
    wait(&*eye, |state| state.leader.as_ref().is_some_and(|leader| leader.name == MEMORY));
    let sessions = |nodes: &[u16]| Sessions { boot: 1, nodes: ids(nodes) };
    let published = memory.directory.publish(&sessions(&[1, 2]));
    wait(&*eye, |state| own_all(state, &[1, 2]));
    drop(one);
    // It has a session yet.
    wait(&*eye, |state| state.members.len() == 1 && own_all(state, &[1, 2]));
    published.set(sessions(&[2]).text());
    wait(&*eye, |state| own_all(state, &[2]));
    // With the memory node's manager goes the lead, to the only one that is left.
    drop((published, memory));
    wait(&*eye, |state| state.leader.as_ref().is_some_and(|leader| leader.name == id(2)));
    assert!(own_all(&eye.read().unwrap(), &[2]));
    drop(two);
    wait(&*eye, |state| state.leader.is_none());
    assert!(own_all(&eye.read().unwrap(), &[2]));
}

#[test]
fn managers_follow_a_cluster_in_memory() {
    managers_follow_the_cluster(&Service::default());
}

#[test]
fn managers_follow_a_cluster_in_etcd() {
    managers_follow_the_cluster(&Etcd::start());
}

#[test]
fn manager_goes_on_after_the_directory_was_away() {
    let etcd = Etcd::start();
    let (eye, _one) = (etcd.connect(), serving(&etcd, 1));
    wait(&*eye, |state| own_all(state, &[1]));
    etcd.set_away(true);
    let memory = etcd.connect();
    let published = memory.publish(&Sessions { boot: 1, nodes: ids(&[1, 2]) });
    let _two = serving(&etcd, 2);
    etcd.set_away(false);
    wait(&*eye, |state| own_all(state, &[1, 2]));
    etcd.end_leases();
    // The leader has lost the lead, and one leads again.
    wait(&*eye, |state| state.leader.is_some() && state.members.len() == 2 && state.sessions.is_some());
    published.set(Sessions { boot: 1, nodes: ids(&[2]) }.text());
    wait(&*eye, |state| own_all(state, &[2]));
}

#[test]
fn node_takes_its_own_lead_again_after_a_restart() {
    let service = Service::default();
    let eye = World::connect(&service);
    // A process that was killed: its lease is not over.
    let killed = World::connect(&service);
    std::mem::forget(killed.lead(&id(1), None).unwrap().unwrap());
    let _other = serving(&service, 2);
    let _again = serving(&service, 1);
    wait(&*eye, |state| state.epoch > 0);
    assert_eq!(eye.read().unwrap().leader.unwrap().name, id(1));
}
