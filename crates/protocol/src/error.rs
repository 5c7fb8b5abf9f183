//! Errors of clients that do not follow RESP. The texts are Redis's, because clients match on them.

use std::fmt;

/// The stream cannot be parsed further: answer with [`ProtocolError::message`] and close the
/// connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ProtocolError {
    /// `*` without a number, or with a number over the limit.
    MultibulkLength,
    /// More arguments than a client may send before it has authenticated.
    UnauthenticatedMultibulkLength,
    /// `$` without a number, or with a number over the limit.
    BulkLength,
    /// More bytes than a client may send before it has authenticated.
    UnauthenticatedBulkLength,
    /// An argument that begins with this byte.
    ExpectedDollar(u8),
    /// A bulk string longer than announced.
    BulkEnd,
    /// An inline command longer than the limit, without an end of line.
    InlineTooLong,
    /// A quote that is not closed.
    UnbalancedQuotes,
    /// A `*` line longer than the limit, without an end of line.
    MultibulkLineTooLong,
    /// A `$` line longer than the limit, without an end of line.
    BulkLineTooLong,
    /// A command of more bytes than [`Limits::query_bytes`](crate::Limits::query_bytes).
    QueryTooLong,
}

impl ProtocolError {
    /// The text of the error reply, without `-` and line end. Bytes, because it may quote a byte of
    /// the client.
    pub fn message(self) -> Vec<u8> {
        let mut message = b"ERR Protocol error: ".to_vec();
        if let ProtocolError::ExpectedDollar(byte) = self {
            message.extend_from_slice(b"expected '$', got '");
            message.extend_from_slice(&[byte, b'\'']);
        } else {
            message.extend_from_slice(self.text().as_bytes());
        }
        message
    }

    fn text(self) -> &'static str {
        match self {
            ProtocolError::MultibulkLength => "invalid multibulk length",
            ProtocolError::UnauthenticatedMultibulkLength => "unauthenticated multibulk length",
            ProtocolError::BulkLength => "invalid bulk length",
            ProtocolError::UnauthenticatedBulkLength => "unauthenticated bulk length",
            ProtocolError::ExpectedDollar(_) => "expected '$', got another byte",
            ProtocolError::BulkEnd => "a bulk string does not end where its length says",
            ProtocolError::InlineTooLong => "too big inline request",
            ProtocolError::UnbalancedQuotes => "unbalanced quotes in request",
            ProtocolError::MultibulkLineTooLong => "too big mbulk count string",
            ProtocolError::BulkLineTooLong => "too big bulk count string",
            ProtocolError::QueryTooLong => "a command of more bytes than one may have",
        }
    }
}

impl fmt::Display for ProtocolError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&String::from_utf8_lossy(&self.message()))
    }
}

impl std::error::Error for ProtocolError {}
