//! Layers in DRAM of an index: what they have and did, or why there are none.

use crate::stats::Figure;
use std::fmt;
use terrace_index::LayerStats;

/// What serves the searches of an index that can have layers in DRAM.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Layers {
    /// Its layers in DRAM, and the pool where they do not know.
    InDram(LayerStats),
    /// The pool alone.
    PoolAlone(NoLayers),
}

/// Why an index has no layers in DRAM.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoLayers {
    /// Other processes change the pool, too, and would not announce that to the layers.
    Shared,
    /// Their size is 0.
    NotAsked,
    /// No size was asked for, and the medium is as fast as DRAM.
    FastMedium,
    /// The index has made none of the size that it got.
    NotMade,
}

impl Layers {
    /// What the layers have and did; all 0 if there are none.
    pub fn stats(&self) -> LayerStats {
        match self {
            Self::InDram(stats) => *stats,
            Self::PoolAlone(_) => LayerStats::default(),
        }
    }
}

impl fmt::Display for Layers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::InDram(_) => f.write_str("layers in DRAM"),
            Self::PoolAlone(why) => write!(f, "the pool alone: {why}"),
        }
    }
}

impl fmt::Display for NoLayers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Shared => "shared",
            Self::NotAsked => "not asked for",
            Self::FastMedium => "the medium is as fast as DRAM",
            Self::NotMade => "the index has made none",
        })
    }
}

macro_rules! figures {
    ($($name:literal [$($place:tt)+] $is_counter:literal $help:literal,)*) => {
        [$(Figure {
            name: $name,
            help: $help,
            is_counter: $is_counter,
            get: |stats| stats.$($place)+,
            set: |stats, value| stats.$($place)+ = value,
        }),*]
    };
}

/// All figures of layers in DRAM.
pub const LAYER_FIGURES: &[Figure<LayerStats>] = &figures! {
    "budget_bytes" [budget] false "DRAM that the index's layers may use",
    "bytes" [bytes] false "DRAM of the index's layers",
    "nodes" [nodes[0]] false "Nodes that the layers could know",
    "known_nodes" [nodes[1]] false "Nodes that the layers know",
    "buffers" [buffers] false "Nodes with a write buffer",
    "buffered_changes" [buffered] false "Keys in write buffers",
    "log_bytes" [log_bytes] false "Bytes of the log of buffered changes that are in use",
    "filtered" [filtered] true "Searches for absent keys that a filter answered, without the pool",
    "false_positives" [false_positives] true "Searches for absent keys that a filter let pass",
    "passed" [passed] true "Searches that the layers left to the pool",
};

#[cfg(test)]
#[path = "tests/layers.rs"]
mod tests;
