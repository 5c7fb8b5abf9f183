//! Limits of keys and values.

use terrace::{KEY_MAX, VALUE_MAX, WriteError};

use crate::state::failure::Failure;

/// Refuses a key that cannot be written, so that a command for several keys writes all or none.
pub(crate) fn check_key(key: &[u8]) -> Result<(), Failure> {
    if key.len() > KEY_MAX { Err(WriteError::KeyTooLong.into()) } else { Ok(()) }
}

/// Refuses a value that cannot be written.
pub(crate) fn check_value(value: &[u8]) -> Result<(), Failure> {
    if value.len() > VALUE_MAX { Err(WriteError::ValueTooLong.into()) } else { Ok(()) }
}
