//! The driver: nodes, their life, and time.

use super::event::{Event, NodeId};
use super::host::Host;
use super::options::Options;
use super::queue::Happening;
use super::random::Random;
use super::state::{Condition, World, nanos};
use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

/// A state machine. It does everything through the [`Host`] that it was made with.
pub trait Node {
    /// Something happens.
    fn handle(&mut self, event: Event);
}

impl<F: FnMut(Event)> Node for F {
    fn handle(&mut self, event: Event) {
        self(event);
    }
}

/// How a node comes to life.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Birth {
    /// For the first time.
    First,
    /// After a death of its process: its memory is as it was.
    MemoryKept,
    /// After a failure that lost its memory.
    MemoryLost,
}

/// How a node dies.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Death {
    /// Its process: the kernel closes its connections.
    Process,
    /// Its machine: peers hear nothing.
    Machine,
}

type Maker = Box<dyn FnMut(Host, Birth) -> Box<dyn Node>>;

struct Slot {
    maker: Maker,
    node: Option<Box<dyn Node>>,
}

/// Nodes and what happens to them.
pub struct Simulation {
    world: Rc<RefCell<World>>,
    slots: Vec<Slot>,
    events: u64,
}

impl Simulation {
    /// An empty world.
    pub fn new(seed: u64, options: Options) -> Self {
        Self { world: Rc::new(RefCell::new(World::new(seed, options))), slots: Vec::new(), events: 0 }
    }

    /// Adds a node. `maker` is called now, and for each restart. It keeps the node's memory, and
    /// makes it anew after [`Birth::MemoryLost`].
    pub fn add<N: Node + 'static>(&mut self, mut maker: impl FnMut(Host, Birth) -> N + 'static) -> NodeId {
        let node = self.world.borrow_mut().add_node();
        let maker: Maker = Box::new(move |host, birth| Box::new(maker(host, birth)));
        self.slots.push(Slot { maker, node: None });
        self.bear(node, Birth::First);
        NodeId(node)
    }

    fn bear(&mut self, node: usize, birth: Birth) {
        let life = self.world.borrow().nodes[node].life;
        let host = Host { world: Rc::clone(&self.world), node, life };
        let made = (self.slots[node].maker)(host, birth);
        self.slots[node].node = Some(made);
    }

    /// Lets one thing happen. Returns whether there was one.
    pub fn step(&mut self) -> bool {
        let mut world = self.world.borrow_mut();
        let Some((at, happening)) = world.queue.next() else { return false };
        world.now = at;
        let heard = world.happen(happening);
        drop(world);
        self.events += 1;
        if let Some((node, event)) = heard
            && let Some(node) = &mut self.slots[node].node
        {
            node.handle(event);
        }
        true
    }

    /// Lets everything happen until this much time has passed.
    pub fn run_for(&mut self, time: Duration) {
        let end = self.world.borrow().now + nanos(time);
        while self.world.borrow().queue.next_at().is_some_and(|at| at <= end) {
            self.step();
        }
        self.world.borrow_mut().now = end;
    }

    /// Number of things that have happened.
    pub fn events(&self) -> u64 {
        self.events
    }

    /// Time since the beginning, which no node knows.
    pub fn now(&self) -> Duration {
        Duration::from_nanos(self.world.borrow().now)
    }

    /// Random numbers for the choice of faults.
    pub fn random(&self) -> Random {
        Random::new(self.world.borrow_mut().random.any())
    }

    /// Whether a node is alive; it may be stopped.
    pub fn is_alive(&self, node: NodeId) -> bool {
        self.world.borrow().is_alive(node.0)
    }

    /// Stops a node, as by SIGSTOP. Its clock goes on.
    pub fn stop(&mut self, node: NodeId) {
        let mut world = self.world.borrow_mut();
        if world.is_running(node.0) {
            world.nodes[node.0].condition = Condition::Stopped;
        }
    }

    /// Lets a node go on that was stopped. All that has waited for it happens at once, in order.
    pub fn go_on(&mut self, node: NodeId) {
        let mut world = self.world.borrow_mut();
        let state = &mut world.nodes[node.0];
        if state.condition == Condition::Stopped {
            state.condition = Condition::Running;
            for happening in std::mem::take(&mut state.inbox) {
                world.after(0, happening);
            }
        }
    }

    /// Ends a node.
    pub fn kill(&mut self, node: NodeId, death: Death) {
        if !self.is_alive(node) {
            return;
        }
        self.world.borrow_mut().die(node.0, death);
        // Outside of the borrow: its endpoints and connections go with it.
        drop(self.slots[node.0].node.take());
    }

    /// Starts a dead node again.
    ///
    /// # Panics
    /// If it is alive, or the birth is the first.
    pub fn restart(&mut self, node: NodeId, birth: Birth) {
        assert!(!self.is_alive(node) && birth != Birth::First, "a restart is for the dead");
        self.world.borrow_mut().nodes[node.0].condition = Condition::Running;
        self.bear(node.0, birth);
    }

    /// Keeps everything back that a node sends to another one. Cut both ways for a partition.
    pub fn cut(&mut self, from: NodeId, to: NodeId) {
        let mut world = self.world.borrow_mut();
        if !world.is_cut(from.0, to.0) {
            world.cut.push((from.0, to.0));
        }
    }

    /// Lets a node reach another one again. What was kept back arrives.
    pub fn heal(&mut self, from: NodeId, to: NodeId) {
        let mut world = self.world.borrow_mut();
        let (pair, kept) = ((from.0, to.0), std::mem::take(&mut world.behind_cut));
        world.cut.retain(|cut| *cut != pair);
        for (from, to, happening) in kept {
            if (from, to) == pair {
                world.after(0, happening);
            } else {
                world.behind_cut.push((from, to, happening));
            }
        }
    }

    /// Loses the connections from a node to another one.
    pub fn lose_connections(&mut self, from: NodeId, to: NodeId) {
        self.world.borrow_mut().lose_connections(from.0, to.0);
    }
}

impl World {
    fn die(&mut self, node: usize, death: Death) {
        let state = &mut self.nodes[node];
        state.condition = if death == Death::Process { Condition::Dead } else { Condition::Gone };
        state.life += 1;
        for happening in std::mem::take(&mut state.inbox) {
            self.bury(node, happening);
        }
        for endpoint in 0..self.endpoints.len() {
            if self.endpoints[endpoint].node == node && std::mem::take(&mut self.endpoints[endpoint].open) {
                self.endpoints[endpoint].regions.clear();
                if death == Death::Process {
                    self.break_connections_to(endpoint);
                }
            }
        }
    }

    /// What waited in a process that died: its own pieces are lost, those to it find it closed.
    fn bury(&mut self, node: usize, happening: Happening) {
        if let Happening::Piece { operation, .. } = happening {
            let connection = self.operations[operation].connection;
            if self.connections[connection].node == node {
                self.lose_piece(operation);
            } else {
                self.after(0, happening);
            }
        }
    }

    fn lose_connections(&mut self, from: usize, to: usize) {
        for connection in 0..self.connections.len() {
            let state = &self.connections[connection];
            let target = state.endpoint.map(|endpoint| self.endpoints[endpoint].node);
            if state.node == from && target == Some(to) {
                self.break_connection(connection, crate::Failure::Lost);
            }
        }
    }
}
