//! A pool whose data this process must not change.

use crate::pool::Pool;
use crate::sharing::participants;
use terrace_medium::{MapError, MappedMedium};

impl<M: MappedMedium> Pool<M> {
    /// Makes this process's mapping of the pool's zones read-only: a store there is a fault that
    /// ends the process. For a process that only reads.
    ///
    /// # Errors
    /// If the system refuses.
    pub fn protect_data(&self) -> Result<(), MapError> {
        let peers = &self.0.peers;
        peers.protected.begin(peers.base(), || {
            if self.is_shared() {
                let own = u32::from(self.owner().participant);
                participants::mark_read_only(self.region(), self.layout(), own);
            }
        })
    }

    /// Whether this process must not store to the zones, since it only reads: the pool is open
    /// read-only, or its data is protected.
    pub fn refuses_stores(&self) -> bool {
        self.is_read_only() || self.0.peers.protected.is_on()
    }
}
