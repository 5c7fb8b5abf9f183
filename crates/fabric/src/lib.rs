//! One-sided access to another machine's memory: reads, writes and atomics that its processor does
//! not serve.
//!
//! ```text
//!   Connection  post(batch) ───────── operations ────────▶  Endpoint   one for each peer
//!   initiator   poll() -> completions ◀── outcomes ───────  target     regions over its memory
//! ```
//! A [`Fabric`] opens endpoints and connects to them. [`Endpoint`] and [`Connection`] never block,
//! but for the end of an endpoint; so a state machine over them runs on each implementation:
//! - `Libfabric`, real networks (feature `libfabric`);
//! - [`sim`], a simulation of nodes, their network and their faults, from one seed.
//!
//! [`perform`] waits for a batch, where a thread may block.
//!
//! **The fence.** A payload that is under way to a region may still arrive after the region was
//! revoked. After [`Endpoint::close`] has returned, no byte of that peer arrives any more. So a
//! target that lets another peer take over closes the endpoint first (`docs/fabric.md`).
#![cfg_attr(not(feature = "libfabric"), forbid(unsafe_code))]
#![deny(unsafe_code)]

mod error;
#[cfg(feature = "libfabric")]
mod libfabric;
mod memory;
mod operation;
mod perform;
mod ports;
mod sides;
pub mod sim;

pub use error::Error;
#[cfg(feature = "libfabric")]
pub use libfabric::{Libfabric, LibfabricConnection, LibfabricEndpoint};
pub use memory::{Memory, Words, load_bytes, store_bytes};
pub use operation::{Completion, Failure, Operation, Output, Place, Posted, RegionKey, Until};
pub use perform::{Wait, perform};
pub use ports::Ports;
pub use sides::{Access, Connection, Endpoint, Fabric};
