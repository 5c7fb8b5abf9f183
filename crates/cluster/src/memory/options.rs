//! Settings of a memory node, and what follows from the size of its pool.

use super::error::MemoryError;
use crate::arbiter::Leases;
use crate::entry::ENTRY_MAX;
use crate::link::Secret;
use crate::log::SEGMENT_BYTES;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

/// A pool of fewer bytes has [`SMALL_SEGMENT_BYTES`] in a segment.
const SMALL_POOL: u64 = 4 << 30;
/// Bytes of a segment of a small pool: room for the longest entry.
const SMALL_SEGMENT_BYTES: u64 = ENTRY_MAX as u64 + (128 << 10);

/// Bytes of a segment that suit a pool of this size. For each that is granted, the pool keeps room.
pub(super) fn segment_bytes(pool_bytes: u64) -> u64 {
    if pool_bytes < SMALL_POOL { SMALL_SEGMENT_BYTES } else { SEGMENT_BYTES }
}

/// Settings of a memory node.
#[derive(Clone)]
pub struct Options {
    /// The pool's file. The log area is beside it, with `.log` behind its name.
    pub pool: PathBuf,
    /// Bytes of a pool that is created.
    pub pool_bytes: u64,
    /// About how many keys a pool that is created will have.
    pub expected_keys: u64,
    /// Whether to take a pool with keys and without a log area, which no memory node has used
    /// before; or a pool and a log area of different times.
    pub adopt: bool,
    /// Whether something beside the pool tells that a memory node has used it. Then it needs its
    /// log area, although it has no keys.
    pub was_used: bool,
    /// Segments of a log area that is created.
    pub log_segments: u64,
    /// Bytes of each; 0: as suits the pool.
    pub segment_bytes: u64,
    /// Where serving nodes connect to; port 0 for any.
    pub listen: SocketAddr,
    /// The key of the control channel.
    pub secret: Secret,
    /// The fabric's provider, as serving nodes are told.
    pub provider: String,
    /// How long a node may answer after a renewal.
    pub lease: Duration,
    /// How many millionths a clock may go too slowly, beside another one.
    pub drift_ppm: u32,
    /// Threads that merge.
    pub merge_threads: usize,
    /// Whether a pool of fewer than `pool_bytes` grows to them.
    pub grows: bool,
}

impl Options {
    /// The defaults, for a pool at this path.
    pub fn new(pool: PathBuf, listen: SocketAddr, secret: Secret, provider: &str) -> Self {
        Self {
            pool,
            pool_bytes: 1 << 30,
            expected_keys: 1000,
            adopt: false,
            was_used: false,
            log_segments: 64,
            segment_bytes: 0,
            listen,
            secret,
            provider: provider.into(),
            lease: Duration::from_secs(1),
            drift_ppm: 1000,
            merge_threads: 2,
            grows: false,
        }
    }

    pub(super) fn leases(&self) -> Leases {
        Leases { time: self.lease, drift_ppm: self.drift_ppm }
    }

    pub(super) fn check(&self) -> Result<(), MemoryError> {
        let is_sound = |sound: bool, what: &str| match sound {
            true => Ok(()),
            false => Err(MemoryError::Setting(what.into())),
        };
        let lease = Duration::from_millis(50)..=Duration::from_secs(60);
        is_sound(lease.contains(&self.lease), "a lease has 50 milliseconds to a minute")?;
        is_sound((1..=64).contains(&self.merge_threads), "a memory node has 1 to 64 threads that merge")?;
        is_sound(self.drift_ppm <= 100_000, "a clock that drifts by a tenth or more is broken")
    }
}
