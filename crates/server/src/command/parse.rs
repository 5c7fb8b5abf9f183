//! Parsers and checks of arguments that several commands have.

use terrace::{KEY_MAX, VALUE_MAX, WriteError};
use terrace_protocol::parse_i64;

use super::Failure;

/// Parses a signed 64-bit integer.
pub(crate) fn integer(arg: &[u8]) -> Result<i64, Failure> {
    parse_i64(arg).ok_or(Failure::NOT_AN_INTEGER)
}

/// Refuses a key that cannot be written, so that a command for several keys writes all or none.
pub(crate) fn check_key(key: &[u8]) -> Result<(), Failure> {
    if key.len() > KEY_MAX { Err(WriteError::KeyTooLong.into()) } else { Ok(()) }
}

/// Refuses a value that cannot be written.
pub(crate) fn check_value(value: &[u8]) -> Result<(), Failure> {
    if value.len() > VALUE_MAX { Err(WriteError::ValueTooLong.into()) } else { Ok(()) }
}
