//! The endpoints of sessions: one for the logs, and one for each read at a time.

use super::base::Base;
use super::threads::die;
use crate::message::Access;
use std::sync::Arc;
use terrace_fabric::{Access as Right, Endpoint, Error, Fabric, Memory};

/// What opens endpoints. Below stand the pool and the fabric.
pub(crate) struct Opener<F> {
    pub(crate) fabric: F,
    /// The fabric's provider, as nodes are told.
    pub(crate) provider: String,
    pub(crate) base: Arc<Base>,
}

/// The endpoints of a session, and what its node has to know.
pub(crate) struct Opened<E> {
    pub(crate) endpoints: Vec<E>,
    pub(crate) access: Vec<u8>,
}

impl<F: Fabric> Opener<F> {
    /// Opens the endpoints of a session. Takes a while.
    pub(crate) fn open(&self, lanes: u16) -> Result<Opened<F::Endpoint>, String> {
        let failed = |error: Error| error.to_string();
        let pool: Arc<dyn Memory> = Arc::new(self.base.data.bytes());
        let len = 8 * pool.words().len();
        let (mut endpoints, mut keys) = (Vec::new(), Vec::new());
        for lane in 0..lanes {
            let mut endpoint = self.fabric.open().map_err(failed)?;
            // The first one is for the log.
            let key = match lane {
                0 => [0; 16],
                _ => endpoint.register(pool.clone(), 0..len, Right::Read).map_err(failed)?.to_bytes(),
            };
            keys.push(key);
            endpoints.push(endpoint);
        }
        let access = Access {
            provider: self.provider.clone(),
            lanes: endpoints.iter().map(|endpoint| endpoint.address().to_vec()).collect(),
            pool: keys,
            index: self.base.data.address()?,
        };
        Ok(Opened { endpoints, access: access.encode() })
    }
}

/// Closes endpoints. When it returns, nothing of their peer can arrive.
pub(crate) fn close_all<E: Endpoint>(endpoints: Vec<E>) {
    for endpoint in endpoints {
        if let Err(error) = endpoint.close() {
            die(&format!("the endpoint of a node, which could still write, could not be closed ({error})"));
        }
    }
}
