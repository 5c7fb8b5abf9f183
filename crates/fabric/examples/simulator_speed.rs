//! Prints how many events a second the simulator does on one core: five nodes that post batches to
//! each other's memory, send messages and set timers.
//!
//! `cargo run --release -p terrace-fabric --example simulator_speed`
#![allow(clippy::print_stdout, clippy::disallowed_methods, reason = "a program that measures")]

use std::sync::Arc;
use std::time::{Duration, Instant};
use terrace_fabric::sim::{Event, Host, Node, NodeId, Options, SimConnection, SimEndpoint, Simulation};
use terrace_fabric::{
    Access, Completion, Connection, Endpoint, Fabric, Operation, Place, Posted, RegionKey, Until, Words,
};

const NODES: usize = 5;
const EVENTS: u64 = 5_000_000;
const WORDS: u64 = 1024;
const BATCH: u64 = 4;

struct Peer {
    host: Host,
    _endpoint: SimEndpoint,
    /// To the next node.
    way: Option<(SimConnection, RegionKey)>,
    completions: Vec<Completion>,
    under_way: u64,
}

impl Peer {
    fn new(host: Host) -> Self {
        let mut endpoint = host.open().expect("an endpoint");
        let memory = Arc::new(Words::new(WORDS as usize));
        let region = endpoint.register(memory, 0..8 * WORDS as usize, Access::ReadWrite).expect("a region");
        let introduction = [&region.to_bytes()[..], endpoint.address()].concat();
        host.send(NodeId((host.id().0 + 1) % NODES), introduction);
        Self { host, _endpoint: endpoint, way: None, completions: Vec::new(), under_way: 0 }
    }

    fn post(&mut self) {
        let Some((connection, region)) = &mut self.way else { return };
        let operation = |random: u64| {
            let place = Place { region: *region, offset: random % (WORDS - 16) * 8 };
            match random >> 62 {
                0 => Operation::Read { from: place, into: vec![0; 64] },
                1 => Operation::Write { bytes: vec![1; 100], to: place, until: Until::Arrived },
                2 => Operation::FetchAdd { at: place, add: 1 },
                _ => Operation::CompareAndSwap { at: place, expected: 0, new: random },
            }
        };
        let posted = |number| Posted { number, operation: operation(self.host.random()) };
        connection.post((0..BATCH).map(posted).collect()).expect("posted");
        self.under_way = BATCH;
    }
}

impl Node for Peer {
    fn handle(&mut self, event: Event) {
        match event {
            Event::Message { bytes, .. } if self.way.is_none() => {
                let (region, address) = bytes.split_first_chunk().expect("an introduction");
                let connection = self.host.connect(address).expect("a connection");
                self.way = Some((connection, RegionKey::from_bytes(*region)));
                self.post();
            }
            Event::Completed { .. } => {
                let (connection, _) = self.way.as_mut().expect("a connection");
                connection.poll(&mut self.completions);
                self.under_way -= self.completions.drain(..).count() as u64;
                if self.under_way == 0 {
                    self.host.set_timer(Duration::from_micros(5), 0);
                }
            }
            Event::Timer(_) => {
                self.host.send(NodeId((self.host.id().0 + 1) % NODES), vec![0; 32]);
                self.post();
            }
            Event::Message { .. } => {}
        }
    }
}

/// Becomes a peer with its first timer, when all nodes are there.
struct Starter(Host, Option<Peer>);

impl Node for Starter {
    fn handle(&mut self, event: Event) {
        match &mut self.1 {
            Some(peer) => peer.handle(event),
            None => self.1 = Some(Peer::new(self.0.clone())),
        }
    }
}

fn main() {
    let mut simulation = Simulation::new(1, Options::default());
    for _ in 0..NODES {
        simulation.add(|host: Host, _| {
            host.set_timer(Duration::from_micros(1), 0);
            Starter(host, None)
        });
    }
    let began = Instant::now();
    while simulation.events() < EVENTS && simulation.step() {}
    let (events, seconds) = (simulation.events(), began.elapsed().as_secs_f64());
    println!("{events} events in {seconds:.2} s: {:.0} a second", events as f64 / seconds);
    println!("{:?} of virtual time", simulation.now());
}
