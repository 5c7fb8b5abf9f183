//! Errors of clients that do not follow RESP. The texts are Redis's, because clients match on them.

use std::fmt;

/// The stream cannot be parsed further: answer with [`ProtocolError::message`] and close the
/// connection.
///
/// If a limit is the reason, the message names it and its value, after Redis's text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ProtocolError {
    /// `*` without a number.
    MultibulkLength,
    /// More arguments than a command may have, `most`.
    TooManyArguments {
        /// The limit.
        most: usize,
    },
    /// More arguments than a client may send before it has authenticated.
    UnauthenticatedMultibulkLength {
        /// The limit.
        most: usize,
    },
    /// `$` without a number.
    BulkLength,
    /// A bulk string longer than `proto-max-bulk-len`.
    BulkTooLong {
        /// The limit, bytes.
        most: usize,
    },
    /// More bytes than a client may send before it has authenticated.
    UnauthenticatedBulkLength {
        /// The limit, bytes.
        most: usize,
    },
    /// An argument that begins with this byte.
    ExpectedDollar(u8),
    /// A bulk string longer than announced.
    BulkEnd,
    /// An inline command longer than the limit, without an end of line.
    InlineTooLong {
        /// The limit, bytes.
        most: usize,
    },
    /// A quote that is not closed.
    UnbalancedQuotes,
    /// A `*` line longer than the limit, without an end of line.
    MultibulkLineTooLong,
    /// A `$` line longer than the limit, without an end of line.
    BulkLineTooLong,
    /// A command of more bytes than [`Limits::query_bytes`](crate::Limits::query_bytes).
    QueryTooLong {
        /// The limit, bytes.
        most: usize,
    },
}

impl ProtocolError {
    /// The text of the error reply, without `-` and line end. Bytes, because it may quote a byte of
    /// the client.
    pub fn message(self) -> Vec<u8> {
        let mut message = b"ERR Protocol error: ".to_vec();
        if let ProtocolError::ExpectedDollar(byte) = self {
            message.extend_from_slice(b"expected '$', got '");
            message.extend_from_slice(&[byte, b'\'']);
            return message;
        }
        message.extend_from_slice(self.text().as_bytes());
        if let Some(limit) = self.limit() {
            message.extend_from_slice(format!(" ({limit})").as_bytes());
        }
        message
    }

    fn text(self) -> &'static str {
        match self {
            ProtocolError::MultibulkLength | ProtocolError::TooManyArguments { .. } => {
                "invalid multibulk length"
            }
            ProtocolError::UnauthenticatedMultibulkLength { .. } => "unauthenticated multibulk length",
            ProtocolError::BulkLength | ProtocolError::BulkTooLong { .. } => "invalid bulk length",
            ProtocolError::UnauthenticatedBulkLength { .. } => "unauthenticated bulk length",
            ProtocolError::ExpectedDollar(_) => "expected '$', got another byte",
            ProtocolError::BulkEnd => "a bulk string does not end where its length says",
            ProtocolError::InlineTooLong { .. } => "too big inline request",
            ProtocolError::UnbalancedQuotes => "unbalanced quotes in request",
            ProtocolError::MultibulkLineTooLong => "too big mbulk count string",
            ProtocolError::BulkLineTooLong => "too big bulk count string",
            ProtocolError::QueryTooLong { .. } => "too big command",
        }
    }

    /// The limit that was passed, with its value.
    fn limit(self) -> Option<String> {
        Some(match self {
            ProtocolError::TooManyArguments { most } => format!("a command has at most {most} arguments"),
            ProtocolError::UnauthenticatedMultibulkLength { most } => {
                format!("at most {most} arguments before AUTH")
            }
            ProtocolError::BulkTooLong { most } => format!("proto-max-bulk-len is {most} bytes"),
            ProtocolError::UnauthenticatedBulkLength { most } => format!("at most {most} bytes before AUTH"),
            ProtocolError::InlineTooLong { most } => format!("at most {most} bytes"),
            ProtocolError::QueryTooLong { most } => {
                format!("at most {most} bytes; a larger proto-max-bulk-len allows more")
            }
            _ => return None,
        })
    }
}

impl fmt::Display for ProtocolError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&String::from_utf8_lossy(&self.message()))
    }
}

impl std::error::Error for ProtocolError {}
