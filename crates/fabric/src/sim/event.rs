//! What nodes hear.

/// A node's number.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct NodeId(pub usize);

/// What a node hears.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// A timer of the node's has run out.
    Timer(u64),
    /// A message.
    Message {
        /// The sender.
        from: NodeId,
        /// Its bytes.
        bytes: Vec<u8>,
    },
    /// A connection has completions.
    Completed {
        /// [`SimConnection::id`](super::SimConnection::id).
        connection: u64,
    },
}
