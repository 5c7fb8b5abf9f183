//! Expiry times as commands give them: seconds or milliseconds, from now or since 1970.

use super::{Failure, parse};

/// A unit of time, and the instant that it counts from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unit {
    /// EX, EXPIRE: seconds from now.
    Seconds,
    /// PX, PEXPIRE: milliseconds from now.
    Milliseconds,
    /// EXAT, EXPIREAT: seconds since 1970.
    UnixSeconds,
    /// PXAT, PEXPIREAT: milliseconds since 1970.
    UnixMilliseconds,
}

impl Unit {
    /// The unit that an option of SET or GETEX names.
    pub(crate) fn option(word: &[u8]) -> Option<Unit> {
        let named = [
            ("EX", Unit::Seconds),
            ("PX", Unit::Milliseconds),
            ("EXAT", Unit::UnixSeconds),
            ("PXAT", Unit::UnixMilliseconds),
        ];
        named.into_iter().find(|(name, _)| word.eq_ignore_ascii_case(name.as_bytes())).map(|(_, unit)| unit)
    }

    /// The Unix millisecond that `count` of this unit means; `None` if it overflows.
    pub(crate) fn at(self, count: i64, now_ms: u64) -> Option<i64> {
        let ms = match self {
            Unit::Seconds | Unit::UnixSeconds => count.checked_mul(1000)?,
            Unit::Milliseconds | Unit::UnixMilliseconds => count,
        };
        match self {
            Unit::Seconds | Unit::Milliseconds => ms.checked_add(i64::try_from(now_ms).ok()?),
            Unit::UnixSeconds | Unit::UnixMilliseconds => Some(ms),
        }
    }
}

/// The expiry that `command` sets, in Unix milliseconds. Refuses a count below 1.
pub(crate) fn positive(arg: &[u8], unit: Unit, now_ms: u64, command: &str) -> Result<u64, Failure> {
    let count = parse::integer(arg)?;
    let at = if count > 0 { unit.at(count, now_ms) } else { None };
    at.and_then(|at| u64::try_from(at).ok()).ok_or_else(|| Failure::expire_time(command))
}
