//! Layers in DRAM of an index: which it is to have, and what it tells of them.

/// The layers in DRAM that an index is to have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LayerOptions {
    /// Bytes that they may have; 0: no layers.
    pub bytes: u64,
    /// How many of these bytes write buffers may have.
    pub buffers: u64,
}

impl LayerOptions {
    /// Layers of so many bytes, half of them for write buffers.
    pub fn of(bytes: u64) -> Self {
        Self { bytes, buffers: bytes / 2 }
    }
}

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
    /// Keys in write buffers: their nodes do not have these words yet.
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
