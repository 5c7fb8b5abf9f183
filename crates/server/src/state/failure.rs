//! Error replies of commands: Redis's texts where Redis has the error, Terrace's own otherwise.

use terrace::{Index, ReadError, WriteError};

/// The result of a command: its reply is written, or the error is its reply.
pub type Outcome = Result<(), Failure>;

/// The text of an error reply, beginning with its code.
#[derive(Debug, PartialEq, Eq)]
pub enum Failure {
    /// A constant text.
    Text(&'static str),
    /// A composed text. Bytes, because it may quote the client.
    Made(Box<[u8]>),
    /// The store does not own the slot of a key, or no longer. The reply says where the slot is
    /// now; the text is that of a slot that is on its way.
    NotOwner {
        /// The slot.
        slot: u16,
    },
}

impl Failure {
    /// Unknown or contradictory options.
    pub const SYNTAX: Failure = Failure::Text("ERR syntax error");
    /// An argument or value that is not a 64-bit integer.
    pub const NOT_AN_INTEGER: Failure = Failure::Text("ERR value is not an integer or out of range");
    /// An argument or value that is not a floating-point number.
    pub const NOT_A_FLOAT: Failure = Failure::Text("ERR value is not a valid float");
    /// The source of RENAME does not exist.
    pub const NO_SUCH_KEY: Failure = Failure::Text("ERR no such key");
    /// The command had no effect and runs again: no client sees this.
    pub(crate) const PUT_OFF: Failure = Failure::Text("ERR the command was put off");
    /// A write above `maxmemory`. Clients match the first sentence of Redis.
    pub(crate) const ABOVE_LIMIT: Failure = Failure::Text(
        "OOM command not allowed when used memory > 'maxmemory'. No key can be evicted: raise maxmemory, \
         set a maxmemory-policy that evicts, or remove keys",
    );
    /// A script whose first line does not allow it to run above `maxmemory`, as in Redis.
    pub(crate) const SCRIPT_ABOVE_LIMIT: Failure = Failure::Text(
        "OOM allow-oom flag is not set on the script, can not run it when used memory > 'maxmemory'",
    );
    /// A script has run for long, and writes and further scripts wait no longer.
    pub(crate) const BUSY: Failure = Failure::Text(
        "BUSY Redis is busy running a script. You can only call SCRIPT KILL or SHUTDOWN NOSAVE.",
    );
    /// A database above 15.
    pub const NO_SUCH_DATABASE: Failure = Failure::Text("ERR DB index is out of range");

    /// Keys of several slots of a cluster.
    pub const CROSS_SLOT: Failure = Failure::Text("CROSSSLOT Keys in request don't hash to the same slot");

    /// Composes a text from parts.
    pub fn of(parts: &[&[u8]]) -> Failure {
        Failure::Made(parts.concat().into())
    }

    /// The part of a text that Redis prints with `%s`: up to a NUL.
    pub fn printed(text: &[u8]) -> &[u8] {
        text.split(|byte| *byte == 0).next().unwrap_or_default()
    }

    /// The value would be longer than `proto-max-bulk-len`, which is `most` bytes.
    pub fn too_long(most: usize) -> Failure {
        let text =
            format!("ERR string exceeds maximum allowed size (proto-max-bulk-len), which is {most} bytes");
        Failure::Made(text.into_bytes().into())
    }

    /// Wrong number of arguments for the command with this full name.
    pub fn arity(name: &str) -> Failure {
        Failure::of(&[b"ERR wrong number of arguments for '", name.as_bytes(), b"' command"])
    }

    /// The expiry given to this command is not positive, or too large.
    pub fn expire_time(name: &str) -> Failure {
        Failure::of(&[b"ERR invalid expire time in '", name.as_bytes(), b"' command"])
    }

    /// The text.
    pub fn message(&self) -> &[u8] {
        match self {
            Failure::Text(text) => text.as_bytes(),
            Failure::Made(text) => text,
            Failure::NotOwner { .. } => {
                b"TRYAGAIN The slot of the keys is being moved, or the memory node is away: nothing was done, send \
                  the command again"
            }
        }
    }

    /// Whether the command was refused before it ran, though only it could tell.
    pub(crate) fn is_rejection(&self) -> bool {
        [Failure::SCRIPT_ABOVE_LIMIT, Failure::ABOVE_LIMIT].iter().any(|why| self.message() == why.message())
    }

    /// Whether the pool is full.
    pub fn is_full(&self) -> bool {
        self.message().starts_with(b"OOM ")
    }

    /// Whether this node of a cluster does not answer for the key, or for no key. A transaction
    /// with such a command has no effect.
    pub fn is_of_cluster(&self) -> bool {
        matches!(self, Failure::NotOwner { .. }) || self.message().starts_with(b"CLUSTERDOWN ")
    }

    /// The store's index keeps no order of keys.
    fn unordered(index: &str) -> Failure {
        let ordered: Vec<_> =
            Index::ALL.iter().filter(|index| index.is_ordered()).map(|index| index.name()).collect();
        let ordered = ordered.join(", ");
        if Index::ALL.iter().all(|known| known.name() != index) {
            const TEXT: &[u8] =
                b"ERR this store keeps no order of keys, so it has no ranges; a pool of its own has \
                                  them, if it is made by `terrace serve --index ordered`";
            return Failure::Made(TEXT.into());
        }
        let text = format!(
            "ERR the index of this pool, {index}, keeps no order of keys, so it has no ranges. Ordered indexes: \
             {ordered}. Start `terrace serve --index ordered` with a new pool, and move the data with `terrace dump` \
             and `terrace load`"
        );
        Failure::Made(text.into_bytes().into())
    }

    /// The text of a store's error, with Redis's code for it.
    fn coded(code: &str, error: &dyn std::fmt::Display) -> Failure {
        Failure::Made(format!("{code} {error}").into_bytes().into())
    }

    /// There is no room for a write. Clients know Redis's text.
    fn full(error: &WriteError) -> Failure {
        let mut why = error.to_string();
        if let Some(first) = why.get_mut(..1) {
            first.make_ascii_uppercase();
        }
        let text = format!("OOM command not allowed when used memory > 'maxmemory'. {why}");
        Failure::Made(text.into_bytes().into())
    }
}

impl From<ReadError> for Failure {
    fn from(error: ReadError) -> Failure {
        match error {
            ReadError::Unordered { index } => Failure::unordered(index),
            ReadError::NotOwner { slot } => Failure::NotOwner { slot },
            ReadError::Unavailable(_) => Failure::coded("CLUSTERDOWN", &error),
            error => Failure::coded("ERR", &error),
        }
    }
}

impl From<WriteError> for Failure {
    fn from(error: WriteError) -> Failure {
        let code = match &error {
            WriteError::MemoryLimit { .. } => return Failure::ABOVE_LIMIT,
            WriteError::PoolFull { .. } | WriteError::MemoryNodeFull { .. } | WriteError::DramFull { .. } => {
                return Failure::full(&error);
            }
            WriteError::ReadOnly => "READONLY",
            // Redis's code for a disk that does not take writes.
            WriteError::Io { .. } | WriteError::Descriptors { .. } | WriteError::Stopped(_) => "MISCONF",
            WriteError::Unavailable(_) => "CLUSTERDOWN",
            WriteError::NotOwner { slot } => return Failure::NotOwner { slot: *slot },
            WriteError::Unordered { index } => return Failure::unordered(index),
            _ => "ERR",
        };
        Failure::coded(code, &error)
    }
}
