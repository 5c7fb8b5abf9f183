//! What an index tells of its layers in DRAM.

/// The layers in DRAM of an index: their size, and what they did since it was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LayerStats {
    /// Bytes that they may have.
    pub budget: u64,
    /// Bytes that they have.
    pub bytes: u64,
    /// Nodes of the index in the pool, and how many of them the layers know.
    pub nodes: [u64; 2],
    /// Nodes with a write buffer.
    pub buffers: u64,
    /// Changes in write buffers that their nodes do not have yet.
    pub buffered: u64,
    /// Bytes of the log of buffered changes that are in use.
    pub log_bytes: u64,
    /// Searches for absent keys that a filter answered, without the pool.
    pub filtered: u64,
    /// Searches for absent keys that a filter let pass.
    pub false_positives: u64,
    /// Searches that the layers left to the pool, since they did not know the node.
    pub passed: u64,
}
