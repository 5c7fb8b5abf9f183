//! Numbers about a memory node.

/// Numbers about a memory node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stats {
    /// Sessions, also those that end.
    pub sessions: usize,
    /// Sessions that serve.
    pub serving: usize,
    /// Segments that are free.
    pub segments_free: u64,
    /// Segments that sessions have.
    pub segments_granted: u64,
    /// Those of them that are not merged to their ends.
    pub segments_unmerged: u64,
    /// Entries that were merged since the start.
    pub merged_entries: u64,
    /// Their bytes.
    pub merged_bytes: u64,
    /// Changes that were not made: of slots that were not their writer's, or that no store takes.
    pub refused_changes: u64,
    /// Pins that are held.
    pub pins: usize,
    /// The newest pin.
    pub newest_pin: u64,
    /// Requests that were answered since the start.
    pub requests: u64,
    /// Requests that wait.
    pub requests_waiting: usize,
    /// Whether the index is growing.
    pub is_resizing: bool,
}
