//! The fabrics under test.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;
use terrace_fabric::sim::{Death, Event, Host, NodeId, Options, Simulation};
use terrace_fabric::{
    Access, Completion, Connection, Endpoint, Fabric, Failure, Memory, Operation, Output, Place, Posted,
    RegionKey, Until, Words,
};

pub(crate) type Outcome = Result<Output, Failure>;
pub(crate) type ConnectionOf<S> = <<S as Subject>::Fabric as Fabric>::Connection;
pub(crate) type EndpointOf<S> = <<S as Subject>::Fabric as Fabric>::Endpoint;

/// Long enough for anything that will happen at all.
pub(crate) const LONG: Duration = Duration::from_secs(60);
/// Long enough to see that nothing happens.
pub(crate) const SHORT: Duration = Duration::from_millis(300);

/// A fabric with a target and an initiator.
pub(crate) trait Subject: Sized {
    type Fabric: Fabric;

    fn new() -> Self;
    fn target(&self) -> &Self::Fabric;
    fn initiator(&self) -> &Self::Fabric;

    /// Posts operations and waits for all of them, while `beside` runs again and again on the
    /// target. After the time, the connection counts as lost.
    fn perform_beside(
        &mut self,
        connection: &mut ConnectionOf<Self>,
        operations: Vec<Operation>,
        at_most: Duration,
        beside: &(dyn Fn() + Sync),
    ) -> Vec<Outcome>;

    /// An endpoint on another target, and a region of 64 words there.
    fn victim(&mut self) -> (Vec<u8>, RegionKey);
    /// Kills that target.
    fn kill_victim(&mut self);

    fn perform(&mut self, connection: &mut ConnectionOf<Self>, operations: Vec<Operation>) -> Vec<Outcome> {
        self.perform_beside(connection, operations, LONG, &|| ())
    }

    fn perform_one(&mut self, connection: &mut ConnectionOf<Self>, operation: Operation) -> Outcome {
        let mut outcomes = self.perform(connection, vec![operation]);
        assert_eq!(outcomes.len(), 1);
        outcomes.pop().expect("one outcome")
    }

    fn within_short(&mut self, connection: &mut ConnectionOf<Self>, operation: Operation) -> Outcome {
        let mut outcomes = self.perform_beside(connection, vec![operation], SHORT, &|| ());
        outcomes.pop().expect("one outcome")
    }

    /// Memory of so many words with an endpoint, a region over all of it, and a connection.
    fn served(&mut self, words: usize, access: Access) -> Served<Self> {
        let memory = Arc::new(Words::new(words));
        let mut endpoint = self.target().open().expect("an endpoint");
        let region = endpoint.register(memory.clone(), 0..words * 8, access).expect("a region");
        let connection = self.initiator().connect(endpoint.address()).expect("a connection");
        Served { memory, endpoint, region, connection }
    }
}

pub(crate) struct Served<S: Subject> {
    pub(crate) memory: Arc<Words>,
    pub(crate) endpoint: EndpointOf<S>,
    pub(crate) region: RegionKey,
    pub(crate) connection: ConnectionOf<S>,
}

impl<S: Subject> Served<S> {
    pub(crate) fn bytes(&self, at: usize, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        terrace_fabric::load_bytes(self.memory.words(), at, &mut bytes);
        bytes
    }
}

pub(crate) fn read(region: RegionKey, offset: u64, len: usize) -> Operation {
    Operation::Read { from: Place { region, offset }, into: vec![0; len] }
}

pub(crate) fn write(region: RegionKey, offset: u64, bytes: &[u8]) -> Operation {
    Operation::Write { bytes: bytes.to_vec(), to: Place { region, offset }, until: Until::Arrived }
}

pub(crate) fn swap(region: RegionKey, offset: u64, expected: u64, new: u64) -> Operation {
    Operation::CompareAndSwap { at: Place { region, offset }, expected, new }
}

pub(crate) fn add(region: RegionKey, offset: u64, add: u64) -> Operation {
    Operation::FetchAdd { at: Place { region, offset }, add }
}

pub(crate) fn bytes(len: usize, seed: u64) -> Vec<u8> {
    let mut random = terrace_fabric::sim::Random::new(seed);
    (0..len).map(|_| random.any() as u8).collect()
}

pub(crate) struct SimSubject {
    simulation: Simulation,
    target: Host,
    initiator: Host,
    victim: Option<NodeId>,
    of_victim: Vec<<Host as Fabric>::Endpoint>,
}

/// A node that does nothing; a test uses its host.
pub(crate) fn idle(simulation: &mut Simulation) -> Host {
    let host = Rc::new(RefCell::new(None));
    let given = Rc::clone(&host);
    simulation.add(move |host, _| {
        given.replace(Some(host));
        |_: Event| ()
    });
    host.take().expect("a host")
}

impl Subject for SimSubject {
    type Fabric = Host;

    fn new() -> Self {
        let mut simulation = Simulation::new(7, Options::default());
        let (target, initiator) = (idle(&mut simulation), idle(&mut simulation));
        Self { simulation, target, initiator, victim: None, of_victim: Vec::new() }
    }

    fn target(&self) -> &Host {
        &self.target
    }

    fn initiator(&self) -> &Host {
        &self.initiator
    }

    fn perform_beside(
        &mut self,
        connection: &mut ConnectionOf<Self>,
        operations: Vec<Operation>,
        at_most: Duration,
        beside: &(dyn Fn() + Sync),
    ) -> Vec<Outcome> {
        let mut outcomes: Vec<Option<Outcome>> = operations.iter().map(|_| None).collect();
        let numbered = (0..).zip(operations).map(|(number, operation)| Posted { number, operation });
        connection.post(numbered.collect()).expect("operations that make sense");
        let deadline = self.simulation.now() + at_most;
        let mut completions = Vec::new();
        while outcomes.iter().any(Option::is_none) {
            beside();
            if !self.simulation.step() || self.simulation.now() > deadline {
                connection.give_up();
            }
            connection.poll(&mut completions);
            for Completion { number, outcome } in completions.drain(..) {
                assert!(outcomes[number as usize].replace(outcome).is_none(), "completed twice");
            }
        }
        outcomes.into_iter().flatten().collect()
    }

    fn victim(&mut self) -> (Vec<u8>, RegionKey) {
        let host = idle(&mut self.simulation);
        let mut endpoint = host.open().expect("an endpoint");
        let region =
            endpoint.register(Arc::new(Words::new(64)), 0..512, Access::ReadWrite).expect("a region");
        let address = endpoint.address().to_vec();
        self.victim = Some(host.id());
        self.of_victim.push(endpoint);
        (address, region)
    }

    fn kill_victim(&mut self) {
        self.simulation.kill(self.victim.take().expect("a victim"), Death::Process);
    }
}

#[cfg(feature = "libfabric")]
pub(crate) use real::RealSubject;

#[cfg(feature = "libfabric")]
mod real {
    use super::{ConnectionOf, Outcome, Subject};
    use crate::half::Child;
    use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
    use std::time::Duration;
    use terrace_fabric::{Libfabric, Operation, RegionKey, perform};

    pub(crate) struct RealSubject {
        fabric: Libfabric,
        victim: Option<Child>,
    }

    impl Subject for RealSubject {
        type Fabric = Libfabric;

        fn new() -> Self {
            Self { fabric: crate::libfabric::fabric(), victim: None }
        }

        fn target(&self) -> &Libfabric {
            &self.fabric
        }

        fn initiator(&self) -> &Libfabric {
            &self.fabric
        }

        fn perform_beside(
            &mut self,
            connection: &mut ConnectionOf<Self>,
            operations: Vec<Operation>,
            at_most: Duration,
            beside: &(dyn Fn() + Sync),
        ) -> Vec<Outcome> {
            let done = AtomicBool::new(false);
            std::thread::scope(|scope| {
                scope.spawn(|| {
                    while !done.load(Relaxed) {
                        beside();
                        std::thread::yield_now();
                    }
                });
                let outcomes = perform(connection, operations, at_most);
                done.store(true, Relaxed);
                outcomes.expect("operations that make sense")
            })
        }

        fn victim(&mut self) -> (Vec<u8>, RegionKey) {
            let (child, address, region) = crate::libfabric::target_process();
            self.victim = Some(child);
            (address, region)
        }

        fn kill_victim(&mut self) {
            drop(self.victim.take().expect("a victim"));
        }
    }
}
