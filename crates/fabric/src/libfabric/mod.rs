//! [`Fabric`] over libfabric: TCP, InfiniBand, and what else it has a provider for.
//!
//! An endpoint and a connection is a *port* each: a domain, an endpoint, a completion queue and a
//! list of one peer. Nothing is shared between ports, so the key of one peer's region means nothing
//! at the endpoint of another, and on RDMA hardware its protection domain keeps peers apart.
//!
//! - A target's port makes progress by itself, on a thread of the library. Its process need not
//!   call anything.
//! - A connection's port makes progress while it is polled, so that no second thread competes for
//!   each completion.
//!
//! The C library is opened when a program first wants a fabric. No program is linked with it.
//!
//! The only `unsafe` code is in `port`.

mod address;
mod connection;
mod endpoint;
#[allow(unsafe_code)]
mod port;

pub use connection::LibfabricConnection;
pub use endpoint::LibfabricEndpoint;

use crate::{Error, Fabric, Ports};
use port::{Info, Port, Progress, load};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

/// One-sided access by a provider of libfabric.
///
/// Peers are expected to be honest: the providers for TCP neither encrypt nor authenticate. The
/// keys of regions are random, so a peer that has none reaches no memory; but another program in
/// the network may read them, and may crash a target by sending nonsense.
#[derive(Clone)]
pub struct Libfabric {
    provider: Arc<str>,
    target: Arc<Info>,
    initiator: Arc<Info>,
    persists: bool,
    ports: Option<Ports>,
    /// How often a port of the range was tried.
    tried: Arc<AtomicU32>,
}

impl Libfabric {
    /// The provider for any network.
    pub const TCP: &'static str = "tcp;ofi_rxm";

    /// Opens libfabric, as [`Libfabric::new`] does: a program can say early that it is not there.
    ///
    /// # Errors
    /// If this machine has no libfabric 1.17 or later.
    pub fn load() -> Result<(), Error> {
        load()
    }

    /// The fabric of a provider, on the network interface with this address: `tcp;ofi_rxm`, or
    /// `verbs;ofi_rxm` and `efa`, which nobody has tried with this. A provider that makes no
    /// progress by itself, as `shm`, is not found.
    ///
    /// # Errors
    /// If the machine has no libfabric, or no such provider or address.
    pub fn new(provider: &str, host: &str) -> Result<Self, Error> {
        Self::on_ports(provider, host, None)
    }

    /// As [`Libfabric::new`], but endpoints and connections listen on free ports of the range, if
    /// one is given.
    ///
    /// # Errors
    /// As [`Libfabric::new`], and if no port of the range is free.
    pub fn on_ports(provider: &str, host: &str, ports: Option<Ports>) -> Result<Self, Error> {
        let info = |progress, persistent| Info::new(provider, host, progress, persistent);
        let persistent = info(Progress::OfTheCaller, true).ok().zip(info(Progress::OfTheLibrary, true).ok());
        let persists = persistent.is_some();
        let (initiator, target) = match persistent {
            Some(both) => both,
            None => (info(Progress::OfTheCaller, false)?, info(Progress::OfTheLibrary, false)?),
        };
        let (target, initiator, tried) = (Arc::new(target), initiator.into(), Arc::default());
        let this = Self { provider: provider.into(), target, initiator, persists, ports, tried };
        // An address of another machine is found, but cannot be listened at.
        drop(this.port(&this.target)?);
        Ok(this)
    }

    /// A port of this kind. Connections listen, too, though none comes.
    fn port(&self, info: &Arc<Info>) -> Result<Port, Error> {
        let Some(ports) = self.ports else { return Port::open(info) };
        for _ in 0..ports.count() {
            // ORDER: Relaxed: the system tells whether a port is free.
            let nth = self.tried.fetch_add(1, Relaxed);
            match Port::open(&Arc::new(info.at_port(ports.nth(nth))?)) {
                Err(Error::PortTaken { .. }) => {}
                opened => return opened,
            }
        }
        Err(Error::NoPort { ports, host: info.host().into() })
    }
}

impl Fabric for Libfabric {
    type Endpoint = LibfabricEndpoint;
    type Connection = LibfabricConnection;

    fn open(&self) -> Result<LibfabricEndpoint, Error> {
        LibfabricEndpoint::new(self.port(&self.target)?, &self.provider)
    }

    fn connect(&self, address: &[u8]) -> Result<LibfabricConnection, Error> {
        let address = address::Address::parse(address, &self.provider)?;
        LibfabricConnection::new(self.port(&self.initiator)?, &address, self.persists)
    }
}
