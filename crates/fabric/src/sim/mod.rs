//! A deterministic simulation: nodes with memory, their fabric, plain messages, clocks and faults,
//! from one seed. The same seed and calls give the same run.
//!
//! ```text
//!   Simulation ── Event ──▶ Node (a state machine) ── Host: timers, messages, Fabric ──▶ network
//!        one queue of what happens next, in virtual time; one thread
//! ```
//! What happens to an operation:
//! 1. It is cut into pieces, which arrive one after another or in any order. A reader of the
//!    target's memory sees those that have arrived; a read sees bytes of several moments.
//! 2. The piece that arrives first shows the region's key, **once**. Later pieces are not checked:
//!    a payload goes on to arrive after its region was revoked. They are lost once the endpoint is
//!    closed, or its node has died.
//! 3. While its initiator is stopped, some of its pieces wait in that process, and arrive when it
//!    goes on. Others are in the network already.
//! 4. A connection that ends, by a refusal or a fault, loses some pieces that are under way. Others
//!    still arrive, though the initiator was told that the operation failed.
//!
//! A handler of an event takes no virtual time. A process that is stopped in the middle of one is
//! simulated by messages and pieces that leave late.

mod event;
mod host;
mod network;
mod options;
mod queue;
mod random;
mod simulation;
mod state;

pub use event::{Event, NodeId};
pub use host::{Host, SimConnection, SimEndpoint};
pub use options::Options;
pub use random::Random;
pub use simulation::{Birth, Death, Node, Simulation};
