//! Messages between serving nodes and the memory node.
//!
//! They go over the control channel, in order, in frames; a lost link ends a session. A serving
//! node and a memory node of different [`WIRE`] versions refuse each other by name.

use crate::slot::SlotRange;
use serde::{Deserialize, Serialize};

/// The version of these messages, of the entries, and of what is read one-sided.
pub const WIRE: u32 = 1;

/// From a serving node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ToMemory {
    /// Begins a session. The node keeps nothing of earlier sessions: it answers from none.
    Hello {
        /// See [`WIRE`].
        wire: u32,
        /// The node.
        node: String,
        /// Logs that it writes.
        shards: u16,
    },
    /// Asks for more of the lease.
    Renew {
        /// Nanoseconds of the sender's clock when it sent this.
        sent: u64,
        /// The pin that its reads rely on: all reads from before have ended.
        pin: u64,
        /// The last entry of each shard that has arrived.
        durable: Vec<u64>,
    },
    /// Asks for slots, which are this node's by the map of this epoch.
    Acquire {
        /// The map's.
        epoch: u64,
        /// The slots.
        ranges: Vec<SlotRange>,
    },
    /// Gives slots back. No write to them is under way or will come.
    Release {
        /// The slots.
        ranges: Vec<SlotRange>,
        /// The last entry of each shard.
        durable: Vec<u64>,
    },
    /// Asks for a further segment.
    Segment {
        /// For this shard.
        shard: u16,
    },
    /// Ends the session: the node answers no more.
    Leave,
}

/// From the memory node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ToServing {
    /// The session has begun.
    Welcome {
        /// Its number: no other session has had it.
        incarnation: u64,
        /// How long a renewal is good for, in nanoseconds from when it was sent.
        lease: u64,
        /// How to reach the memory, as the fabric and the index tell it.
        access: Vec<u8>,
    },
    /// The lease holds longer.
    Renewed {
        /// The stamp of the renewal.
        sent: u64,
        /// Reads that begin from now on may rely on this pin.
        pin: u64,
        /// The last entry of each shard that the index has.
        merged: Vec<u64>,
    },
    /// These slots are this node's.
    Granted {
        /// The epoch of the request.
        epoch: u64,
        /// The slots.
        ranges: Vec<SlotRange>,
    },
    /// Another node waits for these slots, by the map of this epoch.
    Wanted {
        /// The map's.
        epoch: u64,
        /// The slots.
        ranges: Vec<SlotRange>,
    },
    /// These slots are not this node's any more.
    Released {
        /// The slots.
        ranges: Vec<SlotRange>,
    },
    /// A further segment.
    Segment {
        /// For this shard.
        shard: u16,
        /// Its number.
        number: u64,
        /// Its bytes.
        bytes: u64,
        /// Its key, as the fabric tells it.
        key: [u8; 16],
    },
    /// The session is over.
    Fenced {
        /// Why.
        why: String,
    },
}
