//! What a node's state machine may do.

use super::event::{Event, NodeId};
use super::queue::Happening;
use super::state::{ConnectionState, EndpointState, Registered, World};
use crate::{Access, Completion, Connection, Endpoint, Error, Fabric, Failure, Memory, Posted, RegionKey};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::ops::Range;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

/// A node's machine: its clock, timers, messages, random numbers and fabric.
#[derive(Clone)]
pub struct Host {
    pub(super) world: Rc<RefCell<World>>,
    pub(super) node: usize,
    pub(super) life: u64,
}

impl Host {
    /// The node.
    pub fn id(&self) -> NodeId {
        NodeId(self.node)
    }

    /// What the node's clock shows. It never goes back, but stands for nothing elsewhere.
    pub fn now(&self) -> Duration {
        let world = self.world.borrow();
        world.nodes[self.node].clock(world.now)
    }

    /// Calls the node with this token after a time of its clock.
    pub fn set_timer(&self, after: Duration, token: u64) {
        let mut world = self.world.borrow_mut();
        let delay = world.nodes[self.node].takes(after);
        let (from, to, life, event) = (self.node, self.node, self.life, Event::Timer(token));
        world.after(delay, Happening::Heard { from, to, life, event });
    }

    /// Sends bytes to a node. They may be lost, and are if it is dead or dies before they arrive.
    pub fn send(&self, to: NodeId, bytes: Vec<u8>) {
        self.world.borrow_mut().send(self.node, to.0, bytes);
    }

    /// A random number.
    pub fn random(&self) -> u64 {
        self.world.borrow_mut().random.any()
    }
}

impl Fabric for Host {
    type Endpoint = SimEndpoint;
    type Connection = SimConnection;

    fn open(&self) -> Result<SimEndpoint, Error> {
        let mut world = self.world.borrow_mut();
        let (id, nonce) = (world.endpoints.len(), world.random.any());
        world.endpoints.push(EndpointState {
            node: self.node,
            nonce,
            open: true,
            regions: BTreeMap::new(),
            connections: Vec::new(),
        });
        let address = [(id as u64).to_le_bytes(), nonce.to_le_bytes()].concat();
        Ok(SimEndpoint { world: Rc::clone(&self.world), id, address })
    }

    fn connect(&self, address: &[u8]) -> Result<SimConnection, Error> {
        let address = address.try_into().map_err(|_| Error::Address("is of another fabric"))?;
        let RegionKey { key: id, base: nonce } = RegionKey::from_bytes(address);
        let mut world = self.world.borrow_mut();
        let (endpoint, id) = (usize::try_from(id).ok(), world.connections.len());
        let endpoint =
            endpoint.filter(|id| world.endpoints.get(*id).is_some_and(|found| found.nonce == nonce));
        if let Some(endpoint) = endpoint {
            world.endpoints[endpoint].connections.push(id);
        }
        world.connections.push(ConnectionState {
            node: self.node,
            life: self.life,
            endpoint,
            broken: None,
            ended: None,
            under_way: Vec::new(),
            completions: Vec::new(),
            waking: false,
            dropped: false,
            last_piece: 0,
        });
        Ok(SimConnection { world: Rc::clone(&self.world), id })
    }
}

/// An endpoint of a simulated node.
pub struct SimEndpoint {
    world: Rc<RefCell<World>>,
    id: usize,
    address: Vec<u8>,
}

impl Endpoint for SimEndpoint {
    fn address(&self) -> &[u8] {
        &self.address
    }

    fn register(
        &mut self,
        memory: Arc<dyn Memory>,
        bytes: Range<usize>,
        access: Access,
    ) -> Result<RegionKey, Error> {
        let whole_words = bytes.start.is_multiple_of(8) && bytes.end.is_multiple_of(8);
        if !whole_words || bytes.is_empty() || bytes.end > memory.words().len() * 8 {
            return Err(Error::Range);
        }
        let mut world = self.world.borrow_mut();
        let key = RegionKey { key: world.random.any(), base: 0 };
        let region = Registered { memory, begin: bytes.start, len: bytes.len(), access };
        world.endpoints[self.id].regions.insert(key, region);
        Ok(key)
    }

    fn revoke(&mut self, region: RegionKey) -> Result<(), Error> {
        let removed = self.world.borrow_mut().endpoints[self.id].regions.remove(&region);
        removed.map(drop).ok_or(Error::NoRegion)
    }

    fn close(self) -> Result<(), Error> {
        Ok(())
    }
}

impl Drop for SimEndpoint {
    fn drop(&mut self) {
        self.world.borrow_mut().close_endpoint(self.id);
    }
}

/// A connection of a simulated node.
pub struct SimConnection {
    world: Rc<RefCell<World>>,
    id: usize,
}

impl SimConnection {
    /// What [`Event::Completed`](super::Event) calls it.
    pub fn id(&self) -> u64 {
        self.id as u64
    }
}

impl Connection for SimConnection {
    fn persists(&self) -> bool {
        self.world.borrow().options.persists
    }

    fn post(&mut self, batch: Vec<Posted>) -> Result<(), Error> {
        let persists = self.persists();
        batch.iter().try_for_each(|posted| posted.operation.check(persists))?;
        self.world.borrow_mut().post(self.id, batch);
        Ok(())
    }

    fn poll(&mut self, completions: &mut Vec<Completion>) {
        completions.append(&mut self.world.borrow_mut().connections[self.id].completions);
    }

    fn give_up(&mut self) {
        self.world.borrow_mut().give_up(self.id);
    }
}

impl Drop for SimConnection {
    fn drop(&mut self) {
        let mut world = self.world.borrow_mut();
        world.connections[self.id].dropped = true;
        world.give_up(self.id);
        world.connections[self.id].completions = Vec::new();
    }
}

impl World {
    pub(super) fn close_endpoint(&mut self, id: usize) {
        let endpoint = &mut self.endpoints[id];
        endpoint.open = false;
        endpoint.regions.clear();
        if self.is_alive(self.endpoints[id].node) {
            self.break_connections_to(id);
        }
    }

    /// The machine of an endpoint that is closed tells its peer.
    pub(super) fn break_connections_to(&mut self, endpoint: usize) {
        for connection in std::mem::take(&mut self.endpoints[endpoint].connections) {
            self.break_connection(connection, Failure::Lost);
        }
    }

    fn give_up(&mut self, connection: usize) {
        self.tell_end(connection, Failure::Lost);
    }
}
