//! Two managers and their directory: they decide about the map, one at a time or both.

use super::shared::{SERVING, SLOTS, World};
use std::collections::BTreeSet;
use std::time::Duration;
use terrace_cluster::directory::memory::{MemoryDirectory, Service};
use terrace_cluster::directory::{Claim, Directory, Kept, Member, Sessions, State};
use terrace_cluster::manager::Decider;
use terrace_cluster::message::WIRE;
use terrace_cluster::slot::SlotRange;
use terrace_fabric::sim::Random;

struct Manager {
    directory: MemoryDirectory,
    decider: Decider,
    claim: Option<Claim>,
    /// What it has read last.
    state: State,
}

pub(super) struct Managers {
    directory: MemoryDirectory,
    managers: [Manager; 2],
    _members: Vec<Kept>,
    told: Option<(Kept, BTreeSet<usize>, u64)>,
    epoch: u64,
}

fn id(nth: usize) -> String {
    format!("{nth:040x}")
}

impl Managers {
    pub(super) fn new(nodes: usize) -> Self {
        let service = Service::default();
        let directory = service.connect();
        let member = |nth: usize| Member { host: "localhost".into(), port: nth as u16 + 1, wire: WIRE };
        let members = (0..nodes).map(|nth| directory.register(&id(nth), &member(nth))).collect();
        let manager = || Manager {
            directory: service.connect(),
            decider: Decider::default(),
            claim: None,
            state: State::default(),
        };
        let managers = [manager(), manager()];
        Self { directory, managers, _members: members, told: None, epoch: 0 }
    }

    /// The operator wants something else.
    pub(super) fn wish(&mut self, random: &mut Random) {
        let seen = self.directory.read().expect("it answers");
        let node = random.below(SERVING as u64) as usize;
        let slot = SLOTS[random.below(SLOTS.len() as u64) as usize];
        match random.below(4) {
            0 => self.directory.drain(&id(node), true).expect("it answers"),
            1 => self.directory.drain(&id(node), false).expect("it answers"),
            _ => {
                let moves = seen.moves.with(&[SlotRange { first: slot, last: slot }], &id(node));
                self.directory.put_moves(&seen.moves, &moves).expect("it answers");
            }
        }
    }

    /// Lets each manager do something, or not, with what it knows, which may be old.
    pub(super) fn work(&mut self, world: &World, now: Duration, random: &mut Random) {
        self.tell(world);
        for nth in 0..self.managers.len() {
            let manager = &mut self.managers[nth];
            if !random.one_in(3) {
                manager.state = manager.directory.read().expect("it answers");
            }
            // It takes the lead from the other one, also while that one works.
            if manager.claim.is_none() || random.one_in(8) {
                let leader = manager.state.leader.as_ref();
                if let Some(claim) = manager.directory.lead(&format!("{nth}"), leader).expect("it answers") {
                    manager.claim = Some(claim);
                }
            }
            let Some(claim) = &manager.claim else { continue };
            let Some(decision) = manager.decider.decide(&manager.state, now) else { continue };
            let (map, moves) = (&decision.map, decision.moves.as_ref());
            let before = manager.directory.read().expect("it answers");
            let written = manager.directory.put_map(claim, &manager.state, map, moves).expect("it answers");
            if written.is_some() {
                let seen = &manager.state;
                let seen = (seen.epoch, seen.moves.revision, Some(claim.revision));
                let leader = before.leader.map(|leader| leader.revision);
                if seen != (before.epoch, before.moves.revision, leader) {
                    world.fail(format!("manager {nth} has written a map over {seen:?}, which was old"));
                }
            }
            manager.state = manager.directory.read().expect("it answers");
        }
        self.show(world);
    }

    /// The memory node tells which nodes it serves.
    fn tell(&mut self, world: &World) {
        let shared = world.get();
        let (nodes, boot) = (shared.sessions.clone(), shared.boots);
        drop(shared);
        if self.told.as_ref().is_some_and(|(_, told, of)| (told, *of) == (&nodes, boot)) {
            return;
        }
        let sessions = Sessions { boot, nodes: nodes.iter().map(|nth| id(*nth)).collect() };
        match &mut self.told {
            Some((kept, told, of)) => {
                kept.set(sessions.text());
                (*told, *of) = (nodes, boot);
            }
            None => self.told = Some((self.directory.publish(&sessions), nodes, boot)),
        }
    }

    /// Nodes hear of a new map.
    fn show(&mut self, world: &World) {
        let state = self.directory.read().expect("it answers");
        if state.epoch == self.epoch {
            return;
        }
        if state.epoch < self.epoch {
            world.fail(format!("map {} follows map {}", state.epoch, self.epoch));
        }
        self.epoch = state.epoch;
        let owners = state.map.owners();
        let owner = |slot: u16| {
            let owner = owners[usize::from(slot)].map(|node| usize::from(node.port) - 1);
            owner.expect("a map with nodes has owners")
        };
        let map = SLOTS.map(owner);
        let mut shared = world.get();
        (shared.epoch, shared.map) = (state.epoch, map);
        drop(shared);
        world.trace(|| format!("map {}: {map:?}", state.epoch));
    }
}
