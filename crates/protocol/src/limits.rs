//! Limits on what a client may send, as values.

use crate::ProtocolError;

/// Bounds on one command. The event loop bounds time and output in addition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Arguments of a command, including its name.
    pub arguments: usize,
    /// Bytes of one bulk string.
    pub bulk_bytes: usize,
    /// Bytes of an inline command, and of a line with a length.
    pub line_bytes: usize,
    /// Bytes of a whole command.
    pub query_bytes: usize,
    /// Whether the client has yet to authenticate; the errors say so.
    pub before_authentication: bool,
}

impl Limits {
    /// For a client that has yet to authenticate: 10 arguments, 16 KiB.
    pub const BEFORE_AUTHENTICATION: Limits = Limits {
        arguments: 10,
        bulk_bytes: 16 << 10,
        line_bytes: 16 << 10,
        query_bytes: 16 << 10,
        before_authentication: true,
    };

    /// For all other clients: 1,048,576 arguments, bulk strings of 64 MiB, lines of 64 KiB, 1 GiB
    /// in all.
    pub const DEFAULT: Limits = Limits {
        arguments: 1 << 20,
        bulk_bytes: 64 << 20,
        line_bytes: 64 << 10,
        query_bytes: 1 << 30,
        before_authentication: false,
    };

    /// [`Limits::DEFAULT`] with another maximum for bulk strings (`proto-max-bulk-len`).
    pub const fn with_bulk_bytes(bulk_bytes: usize) -> Limits {
        // A command may hold one such string and some other arguments.
        let query_bytes = bulk_bytes.saturating_mul(2);
        let query_bytes = if query_bytes > 1 << 30 { query_bytes } else { 1 << 30 };
        Limits { bulk_bytes, query_bytes, ..Limits::DEFAULT }
    }

    pub(crate) fn check_arguments(&self, count: usize) -> Result<(), ProtocolError> {
        let most = self.arguments;
        match (count > most, self.before_authentication) {
            (false, _) => Ok(()),
            // Redis reads no count above this at all.
            (true, true) if count <= i32::MAX as usize => {
                Err(ProtocolError::UnauthenticatedMultibulkLength { most })
            }
            (true, _) => Err(ProtocolError::TooManyArguments { most }),
        }
    }

    pub(crate) fn check_bulk(&self, len: usize) -> Result<(), ProtocolError> {
        let most = self.bulk_bytes;
        match (len > most, self.before_authentication) {
            (false, _) => Ok(()),
            (true, true) => Err(ProtocolError::UnauthenticatedBulkLength { most }),
            (true, false) => Err(ProtocolError::BulkTooLong { most }),
        }
    }

    pub(crate) fn check_query(&self, bytes: usize) -> Result<(), ProtocolError> {
        let most = self.query_bytes;
        match (bytes > most, self.before_authentication) {
            (false, _) => Ok(()),
            (true, true) => Err(ProtocolError::UnauthenticatedBulkLength { most }),
            (true, false) => Err(ProtocolError::QueryTooLong { most }),
        }
    }
}

impl Default for Limits {
    fn default() -> Self {
        Limits::DEFAULT
    }
}
