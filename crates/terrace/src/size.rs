//! Sizes in human-readable form.

use std::fmt;
use std::str::FromStr;

/// A number of bytes. Parsed from `4GiB`, `4gb`, `512m` or plain bytes, as Redis reads its
/// settings: `kb`, `mb`, `gb`, `tb` and `KiB`, `MiB`, ... are powers of two; a letter alone, `k`,
/// `m`, `g` or `t`, is a power of ten.
///
/// ```
/// use terrace::ByteSize;
///
/// assert_eq!("4GiB".parse(), Ok(ByteSize::gib(4)));
/// assert_eq!("1.5gb".parse(), Ok(ByteSize::mib(1536)));
/// assert_eq!(ByteSize::mib(1536).to_string(), "1.5 GiB");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct ByteSize(u64);

impl ByteSize {
    /// A size in bytes.
    pub const fn bytes(bytes: u64) -> Self {
        Self(bytes)
    }
    /// A size in KiB (1024 bytes).
    pub const fn kib(kib: u64) -> Self {
        Self(kib.saturating_mul(1 << 10))
    }
    /// A size in MiB.
    pub const fn mib(mib: u64) -> Self {
        Self(mib.saturating_mul(1 << 20))
    }
    /// A size in GiB.
    pub const fn gib(gib: u64) -> Self {
        Self(gib.saturating_mul(1 << 30))
    }
    /// A size in TiB.
    pub const fn tib(tib: u64) -> Self {
        Self(tib.saturating_mul(1 << 40))
    }
    /// The size in bytes.
    pub const fn as_bytes(self) -> u64 {
        self.0
    }
}

impl From<u64> for ByteSize {
    fn from(bytes: u64) -> Self {
        Self(bytes)
    }
}

/// A text could not be parsed as a size.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ByteSizeError(String);

impl fmt::Display for ByteSizeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}` is not a size: write it like 4GiB, 512mb or 1048576", self.0.escape_debug())
    }
}

impl std::error::Error for ByteSizeError {}

impl FromStr for ByteSize {
    type Err = ByteSizeError;

    fn from_str(text: &str) -> Result<Self, ByteSizeError> {
        parse(text).ok_or_else(|| ByteSizeError(text.chars().take(40).collect()))
    }
}

fn parse(text: &str) -> Option<ByteSize> {
    let text = text.trim();
    let digits = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let unit: u64 = match unit.trim().to_ascii_lowercase().as_str() {
        "" | "b" => 1,
        "k" => 1000,
        "m" => 1_000_000,
        "g" => 1_000_000_000,
        "t" => 1_000_000_000_000,
        "kb" | "kib" => 1 << 10,
        "mb" | "mib" => 1 << 20,
        "gb" | "gib" => 1 << 30,
        "tb" | "tib" => 1 << 40,
        _ => return None,
    };
    match number.split_once('.') {
        None => number.parse::<u64>().ok()?.checked_mul(unit).map(ByteSize),
        Some((whole, fraction)) if !fraction.is_empty() && fraction.len() <= 9 && unit > 1 => {
            let parts = fraction.parse::<u64>().ok()?;
            let rest = u128::from(parts) * u128::from(unit) / 10u128.pow(fraction.len() as u32);
            whole.parse::<u64>().ok()?.checked_mul(unit)?.checked_add(rest as u64).map(ByteSize)
        }
        Some(_) => None,
    }
}

impl fmt::Display for ByteSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        terrace_pool::Bytes(self.0).fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn size_parses_redis_and_iec_forms() {
        for (text, bytes) in [
            ("0", 0),
            ("1048576", 1 << 20),
            ("4GiB", 4 << 30),
            ("8gb", 8 << 30),
            ("8G", 8_000_000_000),
            (" 16 mb ", 16 << 20),
            ("1k", 1000),
            ("1kb", 1024),
            ("3m", 3_000_000),
            ("0.5k", 500),
            ("2t", 2_000_000_000_000),
            ("1.25MiB", 1310720),
            ("2tib", 2 << 40),
            ("0.123456789g", 123_456_789),
            ("2.25tb", (2 << 40) + (1 << 38)),
            ("7b", 7),
            ("18446744073709551615", u64::MAX),
        ] {
            assert_eq!(text.parse(), Ok(ByteSize::bytes(bytes)), "{text}");
        }
        for text in [
            "",
            "gb",
            "-1",
            "1.5",
            "1.g",
            "1..5g",
            "18446744073709551616",
            "17179869184gb",
            "4 GX",
            "4é",
            "0.1234567891g",
            "1.0b",
        ] {
            assert!(text.parse::<ByteSize>().is_err(), "{text}");
        }
    }

    #[test]
    fn size_is_displayed_with_one_decimal() {
        let shown =
            [0, 1, 1023, 1024, 1 << 20, (4 << 30) + (1 << 29), u64::MAX].map(|b| ByteSize(b).to_string());
        assert_eq!(
            shown,
            ["0 bytes", "1 bytes", "1023 bytes", "1.0 KiB", "1.0 MiB", "4.5 GiB", "16777216.0 TiB"]
        );
    }
}
