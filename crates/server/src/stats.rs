//! What the server counts, for INFO and the metrics endpoint.

use std::sync::atomic::AtomicU64;

/// Counters since start (or CONFIG RESETSTAT), added to once a batch of commands, never once a command.
#[derive(Debug, Default)]
pub struct ServerStats {
    /// Unix milliseconds at which the server started.
    pub started_at_ms: AtomicU64,
    /// Connections accepted.
    pub connections: AtomicU64,
    /// Connections refused because `maxclients` was reached.
    pub connections_rejected: AtomicU64,
    /// Commands executed.
    pub commands: AtomicU64,
    /// Error replies.
    pub errors: AtomicU64,
    /// Reads that found their key.
    pub hits: AtomicU64,
    /// Reads that did not.
    pub misses: AtomicU64,
    /// Bytes read from clients.
    pub bytes_in: AtomicU64,
    /// Bytes written to clients.
    pub bytes_out: AtomicU64,
    /// Keys that the sweep found expired.
    pub expired: AtomicU64,
}
