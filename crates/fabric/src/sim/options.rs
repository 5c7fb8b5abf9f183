//! What a simulated network and its nodes are like.

use std::ops::Range;
use std::time::Duration;

/// Properties of a simulation.
#[derive(Clone, Debug)]
pub struct Options {
    /// How long a message, a piece of an operation or a reply takes.
    pub latency: Range<Duration>,
    /// How much later than the one before it a further piece may arrive.
    pub piece_gap: Duration,
    /// Into how many pieces an operation is cut at most.
    pub pieces_max: u32,
    /// Whether operations of a connection overtake each other, and pieces of an operation.
    pub reorders: bool,
    /// Whether messages from a node to another one overtake each other.
    pub reorders_messages: bool,
    /// Whether pieces end anywhere, so that a reader may see a part of a word, as on TCP.
    pub tears_words: bool,
    /// Whether a connection knows when a write is persistent.
    pub persists: bool,
    /// Whether nothing arrives at a node that is stopped, as on TCP. On RDMA hardware it does.
    pub needs_target: bool,
    /// One message in so many is lost; 0 for none.
    pub message_lost_in: u32,
    /// One operation in so many finds its connection lost; 0 for none.
    pub connection_lost_in: u32,
    /// How far apart the nodes' clocks may be.
    pub clock_offset_max: Duration,
    /// By how many millionths a node's clock may go too fast or too slowly.
    pub clock_drift_max_ppm: u32,
}

impl Default for Options {
    /// A network on which everything may happen, but nothing is lost.
    fn default() -> Self {
        Self {
            latency: Duration::from_micros(2)..Duration::from_micros(20),
            piece_gap: Duration::from_micros(5),
            pieces_max: 4,
            reorders: true,
            reorders_messages: false,
            tears_words: true,
            persists: true,
            needs_target: true,
            message_lost_in: 0,
            connection_lost_in: 0,
            clock_offset_max: Duration::from_secs(3600),
            clock_drift_max_ppm: 100,
        }
    }
}
