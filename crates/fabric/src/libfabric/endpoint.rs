//! Endpoints of a target.

use super::address::Address;
use super::port::Port;
use crate::{Access, Endpoint, Error, Memory, RegionKey, Words};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

/// An endpoint of [`Libfabric`](super::Libfabric).
pub struct LibfabricEndpoint {
    port: Port,
    address: Vec<u8>,
}

impl LibfabricEndpoint {
    pub(super) fn new(mut port: Port, provider: &str) -> Result<Self, Error> {
        let pulse = random()?;
        let memory = Words::new(1);
        memory.words()[0].store(pulse, Relaxed);
        let region = port.register(Arc::new(memory), 0..8, Access::Read, random()?)?;
        let name = port.name()?;
        let address = Address { region, pulse, name: &name }.encode(provider);
        Ok(Self { port, address })
    }
}

impl Endpoint for LibfabricEndpoint {
    fn address(&self) -> &[u8] {
        &self.address
    }

    fn register(
        &mut self,
        memory: Arc<dyn Memory>,
        bytes: Range<usize>,
        access: Access,
    ) -> Result<RegionKey, Error> {
        self.port.register(memory, bytes, access, random()?)
    }

    fn revoke(&mut self, region: RegionKey) -> Result<(), Error> {
        self.port.revoke(region)
    }

    fn close(mut self) -> Result<(), Error> {
        self.port.close()
    }
}

#[allow(clippy::disallowed_methods, reason = "a key that a peer must not guess")]
fn random() -> Result<u64, Error> {
    getrandom::u64().map_err(|error| Error::Library {
        call: "draw a random key",
        reason: error.to_string(),
        advice: "the system has no source of randomness".into(),
    })
}
