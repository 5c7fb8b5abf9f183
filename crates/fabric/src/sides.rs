//! The two sides of a fabric: endpoints of a target, and connections of its peers.

use crate::{Completion, Error, Memory, Posted, RegionKey};
use std::ops::Range;
use std::sync::Arc;

/// A way to reach other nodes' memory, and to be reached.
pub trait Fabric {
    /// The target's side.
    type Endpoint: Endpoint;
    /// The initiator's side.
    type Connection: Connection;

    /// Opens an endpoint, for one peer.
    ///
    /// # Errors
    /// If the fabric has no room or no such network.
    fn open(&self) -> Result<Self::Endpoint, Error>;

    /// Begins to connect to the endpoint of a peer at this address. Operations can be posted at
    /// once; if nobody answers, they never complete.
    ///
    /// # Errors
    /// If this is no address of such a fabric, or it has no room.
    fn connect(&self, address: &[u8]) -> Result<Self::Connection, Error>;
}

/// What a peer may do in a region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Read.
    Read,
    /// Write.
    Write,
    /// Read, write, and change by atomic operations.
    ReadWrite,
}

impl Access {
    /// Whether reads are permitted.
    pub fn reads(self) -> bool {
        self != Self::Write
    }

    /// Whether writes are permitted.
    pub fn writes(self) -> bool {
        self != Self::Read
    }
}

/// Where one peer reaches a target. Its regions are for this peer only. To drop it is to close it,
/// but an error is not heard of: a target that fences a peer off calls [`Endpoint::close`].
pub trait Endpoint {
    /// The address to hand to the peer.
    fn address(&self) -> &[u8];

    /// Lets the peer into bytes of a memory, under a new key. Regions may overlap.
    ///
    /// # Errors
    /// If the range is not made of words of the memory, or the fabric cannot register it.
    fn register(
        &mut self,
        memory: Arc<dyn Memory>,
        bytes: Range<usize>,
        access: Access,
    ) -> Result<RegionKey, Error>;

    /// Refuses the operations on a region that arrive from now on. **A payload of which a part has
    /// arrived goes on to arrive**, until the endpoint is closed.
    ///
    /// # Errors
    /// If there is no such region, or the fabric could not do it.
    fn revoke(&mut self, region: RegionKey) -> Result<(), Error>;

    /// Ends this peer: waits until no byte of any of its operations can arrive any more. Its
    /// regions go, too.
    ///
    /// # Errors
    /// If the fabric could not do it. Then bytes may still arrive, as long as the process lives.
    fn close(self) -> Result<(), Error>;
}

/// The way to an endpoint. To drop it is to close it; what is under way may still be done then.
pub trait Connection {
    /// Whether it knows when a write is persistent. If not, it refuses to post
    /// [`Until::Persistent`](crate::Until).
    fn persists(&self) -> bool;

    /// Posts operations, which may be done in any order.
    ///
    /// # Errors
    /// If the batch has an operation that makes no sense. Then none is posted.
    fn post(&mut self, batch: Vec<Posted>) -> Result<(), Error>;

    /// Adds the completions since the last call, in any order. Without such calls nothing goes on.
    /// Each posted operation completes once, but only if the target answers.
    fn poll(&mut self, completions: &mut Vec<Completion>);

    /// Counts the target as lost, as after a deadline: all that is under way completes as
    /// [`Failure::Lost`](crate::Failure) with the next call of [`Connection::poll`], and so does
    /// what is posted later.
    fn give_up(&mut self);
}
