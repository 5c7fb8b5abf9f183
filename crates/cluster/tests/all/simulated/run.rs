//! A run: nodes, faults, and the check of the histories.

use super::client::Client;
use super::managers::Managers;
use super::memory::{Durable, Memory};
use super::serving::Serving;
use super::shared::{CLIENTS, MEMORY, Mistake, OBJECTS, SERVING, SLOTS, Shared, World, serving_node};
use crate::history::Call;
use std::time::Duration;
use terrace_fabric::sim::{Birth, Death, NodeId, Options, Random, Simulation};
use terrace_testkit::linearizability::{Interval, final_states};

/// Faults of a run.
const FAULTS: u64 = 40;
/// One run in so many has managers that decide about the map; the others have random maps.
const MANAGED: u64 = 16;
/// How long nodes have to serve everything again, when nothing fails any more.
const CALM: Duration = Duration::from_secs(4);

/// What a run has met.
#[derive(Default)]
pub(super) struct Outcome {
    pub(super) wrong: Option<String>,
    pub(super) trace: Vec<String>,
    pub(super) events: u64,
    pub(super) answered: u64,
    pub(super) unknown: u64,
    pub(super) faults: u64,
}

impl Outcome {
    pub(super) fn add(&mut self, other: &Self) {
        self.events += other.events;
        self.answered += other.answered;
        self.unknown += other.unknown;
        self.faults += other.faults;
    }
}

struct Run {
    simulation: Simulation,
    world: World,
    random: Random,
    managers: Option<Managers>,
    /// Ways that are cut.
    cut: Vec<(NodeId, NodeId)>,
}

fn options() -> Options {
    Options {
        latency: Duration::from_micros(5)..Duration::from_micros(250),
        // So that many a node stops or dies amid a write.
        piece_gap: Duration::from_micros(800),
        pieces_max: 6,
        clock_drift_max_ppm: super::memory::DRIFT_PPM / 2,
        ..Options::default()
    }
}

/// A run from this seed.
pub(super) fn run(seed: u64, mistake: Option<Mistake>, is_traced: bool) -> Outcome {
    let world = World::new(mistake, is_traced);
    let mut simulation = Simulation::new(seed, options());
    let (durable, of_memory) = (Durable::new(), world.clone());
    simulation.add(move |host, _| Memory::new(host, of_memory.clone(), durable.clone()));
    for nth in 0..SERVING {
        let of_node = world.clone();
        simulation.add(move |host, _| Serving::new(host, of_node.clone(), nth));
    }
    for nth in 0..CLIENTS {
        let of_client = world.clone();
        simulation.add(move |host, _| Client::new(host, of_client.clone(), nth));
    }
    let random = simulation.random();
    let managers = seed.is_multiple_of(MANAGED).then(|| Managers::new(SERVING));
    let mut run = Run { simulation, world, random, managers, cut: Vec::new() };
    run.new_map();
    run.all(seed)
}

impl Run {
    fn all(mut self, seed: u64) -> Outcome {
        let mut faults = 0;
        while faults < FAULTS {
            let time = Duration::from_micros(500 + self.random.below(60_000));
            if !self.go_on_for(time) {
                break;
            }
            self.fault();
            faults += 1;
        }
        self.mend();
        self.trace("nothing fails any more");
        self.world.get().is_final = true;
        let late = self.simulation.now() + CALM;
        while self.goes_on() && self.simulation.now() < late && !self.is_over() {
            self.go_on_for(Duration::from_millis(10));
        }
        self.check(seed);
        let mut shared = self.world.get();
        Outcome {
            wrong: shared.wrong.take(),
            trace: shared.trace.take().unwrap_or_default(),
            events: self.simulation.events(),
            answered: shared.answered,
            unknown: shared.unknown,
            faults,
        }
    }

    fn goes_on(&self) -> bool {
        self.world.get().wrong.is_none()
    }

    fn is_over(&self) -> bool {
        self.world.get().is_read == [true; OBJECTS]
    }

    /// Lets time pass; `false` once something is wrong.
    fn go_on_for(&mut self, time: Duration) -> bool {
        let end = self.simulation.now() + time;
        while self.goes_on() && self.simulation.now() < end && self.simulation.step() {}
        // To the end of the instant: what waits must not be overtaken when it goes on.
        self.simulation.run_for(Duration::ZERO);
        if let Some(managers) = &mut self.managers {
            managers.work(&self.world, self.simulation.now(), &mut self.random);
        }
        self.goes_on()
    }

    fn trace(&self, what: &str) {
        let now = self.simulation.now();
        self.world.trace(|| format!("{now:>12.1?} {what}"));
    }

    fn new_map(&mut self) {
        if let Some(managers) = &mut self.managers {
            return managers.wish(&mut self.random);
        }
        let map = std::array::from_fn(|_| self.random.below(SERVING as u64) as usize);
        let mut shared = self.world.get();
        (shared.epoch, shared.map) = (shared.epoch + 1, map);
        drop(shared);
        self.trace(&format!("map {map:?}"));
    }

    fn fault(&mut self) {
        let nth = self.random.below(SERVING as u64) as usize;
        let node = serving_node(nth);
        let is_alive = self.simulation.is_alive(node);
        match self.random.below(18) {
            0..3 if is_alive => {
                self.wait_for(|shared| shared.writes[nth]);
                self.trace(&format!("node {nth} is stopped"));
                self.simulation.stop(node);
            }
            3..5 if is_alive => self.kill(nth),
            5 => self.restart_memory(),
            6 => {
                self.trace("the memory node is stopped for a while");
                self.simulation.stop(MEMORY);
                let time = Duration::from_micros(self.random.below(100_000));
                self.go_on_for(time);
                self.simulation.go_on(MEMORY);
            }
            7..9 => {
                self.wait_for(|shared| shared.writes[nth]);
                self.world.get().is_deaf[nth] = self.random.one_in(2);
                self.cut(node);
            }
            9 => {
                self.trace(&format!("node {nth} loses its connections"));
                self.simulation.lose_connections(node, MEMORY);
            }
            10..14 => self.mend(),
            _ => self.new_map(),
        }
    }

    /// Often waits a while for a moment at which a fault matters.
    fn wait_for(&mut self, is_it: impl Fn(&Shared) -> bool) {
        let late = self.simulation.now() + Duration::from_millis(5);
        if self.random.one_in(3) {
            return;
        }
        while self.simulation.now() < late && !is_it(&self.world.get()) && self.simulation.step() {}
        self.go_on_for(Duration::ZERO);
    }

    fn kill(&mut self, nth: usize) {
        self.wait_for(|shared| shared.writes[nth]);
        let (node, death) = (serving_node(nth), self.death());
        self.trace(&format!("node {nth} dies: {death:?}"));
        self.simulation.kill(node, death);
        let mut shared = self.world.get();
        shared.views[nth] = None;
        let link = shared.links[nth];
        if death == Death::Process {
            shared.dead_links.insert(link);
        }
    }

    fn death(&mut self) -> Death {
        if self.random.one_in(2) { Death::Machine } else { Death::Process }
    }

    fn restart_memory(&mut self) {
        self.wait_for(|shared| shared.merges);
        let death = self.death();
        self.trace(&format!("the memory node dies: {death:?}, and starts"));
        self.simulation.kill(MEMORY, death);
        if death == Death::Process {
            let mut shared = self.world.get();
            let links = shared.links;
            shared.dead_links.extend(links);
        }
        let away = Duration::from_micros(self.random.below(40_000));
        self.go_on_for(away);
        self.simulation.restart(MEMORY, Birth::MemoryKept);
    }

    /// Cuts a node off from the memory node, in one direction or both.
    fn cut(&mut self, node: NodeId) {
        self.trace(&format!("{node:?} is cut off"));
        for way in [(node, MEMORY), (MEMORY, node)] {
            if !self.random.one_in(4) {
                self.simulation.cut(way.0, way.1);
                self.cut.push(way);
            }
        }
    }

    fn heal(&mut self) {
        for (from, to) in std::mem::take(&mut self.cut) {
            self.simulation.heal(from, to);
        }
    }

    /// All nodes go on or start.
    fn mend(&mut self) {
        self.trace("all nodes go on or start");
        for nth in 0..SERVING {
            let node = serving_node(nth);
            match self.simulation.is_alive(node) {
                true => self.simulation.go_on(node),
                false => self.simulation.restart(node, Birth::MemoryLost),
            }
        }
        self.world.get().is_deaf = [false; SERVING];
        // After that: what has waited in a node came before what has waited in the network.
        self.heal();
    }

    /// Whether everything is served, and each history has an order.
    fn check(&self, seed: u64) {
        let mut shared = self.world.get();
        if shared.wrong.is_some() {
            return;
        }
        if shared.is_read != [true; OBJECTS] {
            let (map, sessions, views) = (shared.map, &shared.sessions, &shared.views);
            let served: Vec<_> = views.iter().map(|view| view.as_ref().map(super::serving::served)).collect();
            let what = format!("not all is served: map {map:?}, sessions {sessions:?}, slots {served:?}");
            shared.wrong = Some(what);
            return;
        }
        for object in 0..OBJECTS {
            let is_known = |called: &&super::shared::Called| {
                !matches!((called.call, called.interval.returned), (Call::Get(_), None))
            };
            let (intervals, calls): (Vec<Interval>, Vec<Call>) = shared.histories[object]
                .iter()
                .filter(is_known)
                .map(|called| (called.interval, called.call))
                .unzip();
            if final_states(None, &intervals, |nth, state| calls[nth].apply(*state)).is_empty() {
                let what = format!(
                    "no order explains object {object} (seed {seed}, {} slots):\n{}",
                    SLOTS.len(),
                    listed(&intervals, &calls)
                );
                shared.wrong = Some(what);
                return;
            }
        }
    }
}

/// Calls, a line each.
fn listed(intervals: &[Interval], calls: &[Call]) -> String {
    let line = |(it, call): (&Interval, &Call)| {
        let returned = it.returned.map_or("-".into(), |at| at.to_string());
        format!("{:>6} {returned:>6} {call:x?}", it.called)
    };
    intervals.iter().zip(calls).map(line).collect::<Vec<_>>().join("\n")
}
