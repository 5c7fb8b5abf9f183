//! Parsers and checks of arguments that several commands have.

use terrace_protocol::parse_i64;

use super::Failure;

/// Parses a signed 64-bit integer.
pub(crate) fn integer(arg: &[u8]) -> Result<i64, Failure> {
    parse_i64(arg).ok_or(Failure::NOT_AN_INTEGER)
}
