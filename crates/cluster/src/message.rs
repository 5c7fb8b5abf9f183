//! Messages between serving nodes and the memory node.
//!
//! They go over the control channel, in order, in frames; a lost link ends a session. A serving
//! node and a memory node of different [`WIRE`] versions refuse each other by name.

use crate::slot::SlotRange;
use serde::{Deserialize, Serialize};

/// The version of these messages, of the entries, and of what is read one-sided.
pub const WIRE: u32 = 4;

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
        /// Connections that it makes to the memory: see [`Access`].
        lanes: u16,
        /// The last session of this process, from which it answers no more; 0 if it has had none.
        last: u64,
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
    /// Asks for the entry of a key that a reader elsewhere cannot decide about.
    Get {
        /// The number of the request.
        id: u64,
        /// The key.
        key: Vec<u8>,
    },
    /// Asks for keys of the session's slots, as they are once these entries are merged.
    Scan {
        /// The number of the request.
        id: u64,
        /// Where to begin: 0, or what the reply before said.
        cursor: u64,
        /// Keys of the whole memory to look at, at least.
        at_least: u32,
        /// Whether to send the values, too.
        values: bool,
        /// The last entry of each shard that has arrived.
        durable: Vec<u64>,
    },
    /// Asks how many keys the session's slots have, once these entries are merged.
    Count {
        /// The number of the request.
        id: u64,
        /// The last entry of each shard that has arrived.
        durable: Vec<u64>,
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
        /// How to reach the memory: an [`Access`], encoded.
        access: Vec<u8>,
    },
    /// The lease holds longer.
    Renewed {
        /// The stamp of the renewal; 0 if there was none: memory is short, and the node renews at
        /// once.
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
        /// Its key at lane 0, as the fabric tells it.
        key: [u8; 16],
    },
    /// The pool has no room for what could be written: no puts from now on. Segments that follow
    /// are for removals.
    Full {
        /// Free bytes of the pool.
        free: u64,
        /// Bytes of the pool.
        size: u64,
    },
    /// The pool has room again.
    Roomy,
    /// The answer to [`ToMemory::Get`].
    Got {
        /// The request's.
        id: u64,
        /// The entry.
        found: Result<Option<Item>, Untold>,
    },
    /// The answer to [`ToMemory::Scan`].
    Scanned {
        /// The request's.
        id: u64,
        /// The keys.
        page: Result<Page, String>,
    },
    /// The answer to [`ToMemory::Count`].
    Counted {
        /// The request's.
        id: u64,
        /// Keys of all slots of the session.
        keys: Result<u64, String>,
    },
    /// The session is over.
    Fenced {
        /// Why.
        why: String,
    },
    /// What the memory node's pool is used for.
    Space(Space),
}

/// Bytes of the memory node's pool.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Space {
    /// All.
    pub size: u64,
    /// Those that are free.
    pub free: u64,
    /// Those that are free once their readers have ended.
    pub waiting: u64,
    /// Those that keys may still take: without what is kept for the logs.
    pub room: u64,
}

/// A key with its entry.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Item {
    /// The key.
    pub key: Vec<u8>,
    /// The value; empty if it was not asked for.
    pub value: Vec<u8>,
    /// Unix milliseconds at which it expires, if it does.
    pub expires_at: Option<u64>,
}

/// Why the memory node does not tell the entry of a key.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Untold {
    /// The pool is damaged there.
    Damaged {
        /// Bytes from its start.
        offset: u64,
        /// What is wrong there.
        what: String,
    },
    /// A sentence for the client.
    Other(String),
}

impl From<&str> for Untold {
    fn from(why: &str) -> Self {
        Self::Other(why.into())
    }
}

impl From<String> for Untold {
    fn from(why: String) -> Self {
        Self::Other(why)
    }
}

/// A part of the keys of a node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Page {
    /// The entries.
    pub items: Vec<Item>,
    /// Where to go on: 0 at the end.
    pub next: u64,
    /// Damaged records that were left out, of whichever node.
    pub skipped: u64,
}

/// How a serving node reaches the memory. Its first lane is for the log, the others read the pool.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Access {
    /// The fabric's provider.
    pub provider: String,
    /// The address of each lane's endpoint.
    pub lanes: Vec<Vec<u8>>,
    /// The key of the pool at each lane but the first, which has zeros. Offsets into the region are
    /// offsets into the pool.
    pub pool: Vec<[u8; 16]>,
    /// Offset of the index's root, seed of its hashes, begin and end of the pool's blocks: see
    /// `terrace_index::hash::remote::Address`.
    pub index: [u64; 4],
}

impl Access {
    /// As bytes.
    pub fn encode(&self) -> Vec<u8> {
        postcard::to_stdvec(self).expect("nothing of it is refused")
    }

    /// From bytes.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        postcard::from_bytes(bytes).ok()
    }
}
