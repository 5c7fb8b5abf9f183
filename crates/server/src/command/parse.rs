//! Arguments that several commands have.

use terrace_protocol::{Args, parse_i64};

use super::Failure;

/// The longest key, bytes.
pub(crate) const KEY_BYTES_MAX: usize = 64 << 10;

/// A signed 64-bit integer.
pub(crate) fn integer(arg: &[u8]) -> Result<i64, Failure> {
    parse_i64(arg).ok_or(Failure::NOT_AN_INTEGER)
}

/// The keys and what follows each, `step` arguments at a time; refuses keys that could not be written, so that a command
/// that writes several either writes all or none.
pub(crate) fn check_keys(args: Args<'_>, first: usize, step: usize) -> Result<(), Failure> {
    args.from(first).iter().step_by(step).try_for_each(check_key)
}

/// Refuses a key that could not be written.
pub(crate) fn check_key(key: &[u8]) -> Result<(), Failure> {
    match key.len() {
        0 => Err(terrace::WriteError::KeyEmpty.into()),
        1..=KEY_BYTES_MAX => Ok(()),
        _ => Err(terrace::WriteError::KeyTooLong.into()),
    }
}
