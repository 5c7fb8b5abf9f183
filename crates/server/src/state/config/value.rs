//! The kinds of values that settings have, and their parsers. Errors are worded as in Redis,
//! because CONFIG SET returns them.

use terrace::ByteSize;

/// The kind of a setting's value.
#[derive(Clone, Copy, Debug)]
pub enum Kind {
    /// A count or a number of seconds, within bounds.
    Number {
        /// Minimum.
        min: u64,
        /// Maximum.
        max: u64,
    },
    /// An integer that may be negative.
    Signed,
    /// Bytes: `4GiB`, `64mb`, `1024`.
    Size {
        /// Minimum, bytes.
        min: u64,
    },
    /// Two sizes, minimum and maximum: `1mb..64mb`. One size stands for both.
    Sizes,
    /// Bytes, or `auto`.
    SizeOrAuto,
    /// `yes` or `no`.
    Switch,
    /// Permissions in octal: `700`.
    Octal,
    /// Any text.
    Text,
    /// A secret: never shown in help or logs.
    Password,
    /// One of these words.
    Choice(&'static [&'static str]),
    /// A setting of Redis with a fixed value in Terrace; the text says why.
    Fixed(&'static str),
}

/// A parsed value.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Parsed {
    Number(u64),
    Text(String),
}

/// Maximum length of a password in Redis.
const PASSWORD_MAX: usize = 512;

impl Kind {
    /// Describes valid values for an error: `a number from 0 to 65535`.
    pub fn describe(self) -> String {
        match self {
            Kind::Number { min, max } => format!("a number from {min} to {max}"),
            Kind::Signed => "an integer".into(),
            Kind::Size { min: 0 } => "a size, as in 1073741824, 512mb or 4GiB".into(),
            Kind::Size { min } => format!("a size of {} at least, as in 512mb or 4GiB", format_size(min)),
            Kind::Sizes => "two sizes, the smaller first, as in 1mb..64mb, or one".into(),
            Kind::SizeOrAuto => "a size, as in 512mb or 4GiB, or auto".into(),
            Kind::Switch => "yes or no".into(),
            Kind::Octal => "permissions in octal, as in 700, up to 777".into(),
            Kind::Choice(choices) => choices.join(" or "),
            Kind::Password => format!("a password of at most {PASSWORD_MAX} bytes"),
            Kind::Text | Kind::Fixed(_) => "a text".into(),
        }
    }

    pub(super) fn parse(self, text: &str) -> Result<Parsed, String> {
        match self {
            Kind::Number { min, max } => parse_number(text, min, max),
            Kind::Signed => match text.parse::<i32>() {
                Ok(number) => Ok(Parsed::Text(number.to_string())),
                Err(_) => Err("argument couldn't be parsed into an integer".into()),
            },
            Kind::Size { min } => {
                let bytes = parse_size(text).ok_or("argument must be a memory value")?;
                within(bytes, min, i64::MAX.unsigned_abs())
            }
            Kind::Sizes => check_sizes(text),
            Kind::SizeOrAuto => check_size_or_auto(text),
            Kind::Switch => match text.to_ascii_lowercase().as_str() {
                "yes" | "true" | "on" | "1" => Ok(Parsed::Number(1)),
                "no" | "false" | "off" | "0" => Ok(Parsed::Number(0)),
                _ => Err("argument must be 'yes' or 'no'".into()),
            },
            Kind::Octal => match u64::from_str_radix(text, 8) {
                Ok(mode) if mode <= 0o777 => Ok(Parsed::Number(mode)),
                _ => Err("argument must be an octal number up to 777".into()),
            },
            Kind::Password if text.len() > PASSWORD_MAX => {
                Err(format!("a password has at most {PASSWORD_MAX} bytes"))
            }
            Kind::Choice(choices) => match choices.iter().find(|choice| choice.eq_ignore_ascii_case(text)) {
                Some(choice) => Ok(Parsed::Text((*choice).into())),
                None => Err(format!("argument(s) must be one of the following: {}", choices.join(", "))),
            },
            Kind::Text | Kind::Password | Kind::Fixed(_) => Ok(Parsed::Text(text.into())),
        }
    }
}

fn parse_number(text: &str, min: u64, max: u64) -> Result<Parsed, String> {
    let number: i128 = text.parse().map_err(|_| "argument couldn't be parsed into an integer")?;
    // What is below or above all numbers is not within.
    within(u64::try_from(number).unwrap_or(u64::MAX), min, max)
}

fn check_sizes(text: &str) -> Result<Parsed, String> {
    match parse_sizes(text) {
        Some((least, most)) if least <= most => Ok(Parsed::Text(text.into())),
        Some(_) => Err("argument must name the smaller size first".into()),
        None => Err("argument must be two memory values, as in 1mb..64mb, or one".into()),
    }
}

fn check_size_or_auto(text: &str) -> Result<Parsed, String> {
    if text.eq_ignore_ascii_case("auto") {
        return Ok(Parsed::Text("auto".into()));
    }
    let within = parse_size(text).filter(|bytes| i64::try_from(*bytes).is_ok());
    match within {
        Some(bytes) => Ok(Parsed::Text(bytes.to_string())),
        None => Err("argument must be a memory value or 'auto'".into()),
    }
}

fn within(number: u64, min: u64, max: u64) -> Result<Parsed, String> {
    if (min..=max).contains(&number) {
        return Ok(Parsed::Number(number));
    }
    Err(format!("argument must be between {min} and {max} inclusive"))
}

/// Parses a size, with the units of [`ByteSize`], which are those of Redis.
pub fn parse_size(text: &str) -> Option<u64> {
    text.parse::<ByteSize>().ok().map(ByteSize::as_bytes)
}

/// Parses two sizes, `1mb..64mb`, or one that stands for both.
pub fn parse_sizes(text: &str) -> Option<(u64, u64)> {
    let (least, most) = text.split_once("..").unwrap_or((text, text));
    Some((parse_size(least)?, parse_size(most)?))
}

/// Formats a size for people: `4.0 GiB`, `41 MiB`, `512 B`.
pub fn format_size(bytes: u64) -> String {
    const UNITS: [&str; 5] = ["B", "KiB", "MiB", "GiB", "TiB"];
    let mut unit = 0;
    while unit + 1 < UNITS.len() && bytes >> (10 * (unit + 1)) != 0 {
        unit += 1;
    }
    let scaled = bytes as f64 / (1u64 << (10 * unit)) as f64;
    let decimals = usize::from(unit > 0 && scaled < 9.95);
    format!("{scaled:.decimals$} {}", UNITS[unit])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn size_units_are_parsed() {
        for (text, bytes) in [
            ("0", 0),
            ("1024", 1024),
            ("1k", 1000),
            ("1kb", 1024),
            ("64MB", 64 << 20),
            ("4GiB", 4 << 30),
            ("4 gib", 4 << 30),
            ("2tb", 2 << 40),
            ("7b", 7),
        ] {
            assert_eq!(parse_size(text), Some(bytes), "{text}");
        }
        for text in ["", "gb", "-1", "1 gigabyte", "99999999999999999999", "99999999999tb"] {
            assert_eq!(parse_size(text), None, "{text}");
        }
    }

    #[test]
    fn size_range_is_parsed() {
        assert_eq!(parse_sizes("1mb..64mb"), Some((1 << 20, 64 << 20)));
        assert_eq!(parse_sizes("0"), Some((0, 0)));
        for text in ["", "..", "1mb..", "..1mb", "1mb...2mb", "1mb-2mb"] {
            assert!(Kind::Sizes.parse(text).unwrap_err().contains("two memory values"), "{text}");
        }
        assert!(Kind::Sizes.parse("2mb..1mb").unwrap_err().contains("smaller size first"));
        assert_eq!(Kind::Sizes.parse("0..1mb"), Ok(Parsed::Text("0..1mb".into())));
    }

    #[test]
    fn size_or_auto_is_parsed() {
        for (text, kept) in [("auto", "auto"), ("AUTO", "auto"), ("0", "0"), ("64mb", "67108864")] {
            assert_eq!(Kind::SizeOrAuto.parse(text), Ok(Parsed::Text(kept.into())), "{text}");
        }
        for text in ["", "automatic", "-1", "1mb..2mb", "64 potatoes", "9223372036854775808"] {
            let refused = Kind::SizeOrAuto.parse(text).unwrap_err();
            assert!(refused.contains("a memory value or 'auto'"), "{text}: {refused}");
        }
    }

    #[test]
    fn sizes_are_formatted_for_people() {
        for (bytes, text) in
            [(0, "0 B"), (1023, "1023 B"), (4 << 30, "4.0 GiB"), (41 << 20, "41 MiB"), (1536, "1.5 KiB")]
        {
            assert_eq!(format_size(bytes), text);
        }
    }

    #[test]
    fn valid_values_are_described() {
        assert_eq!(Kind::Number { min: 0, max: 9 }.describe(), "a number from 0 to 9");
        assert_eq!(Kind::Size { min: 1 << 20 }.describe(), "a size of 1.0 MiB at least, as in 512mb or 4GiB");
        assert_eq!(Kind::Choice(&["a", "b"]).describe(), "a or b");
    }

    #[test]
    fn invalid_values_are_refused() {
        assert!(Kind::Number { min: 1, max: 5 }.parse("6").is_err());
        assert_eq!(
            Kind::Number { min: 0, max: 5 }.parse("-1"),
            Err("argument must be between 0 and 5 inclusive".into())
        );
        assert!(Kind::Switch.parse("maybe").is_err());
        assert!(Kind::Octal.parse("788").is_err());
        assert!(Kind::Octal.parse("1777").is_err());
        assert!(Kind::Password.parse(&"x".repeat(513)).is_err());
        assert_eq!(Kind::Choice(&["a", "b"]).parse("B"), Ok(Parsed::Text("b".into())));
        assert!(Kind::Choice(&["a", "b"]).parse("c").is_err());
    }
}
