//! Ranges of keys as clients write them, and how much of a range a command takes.

use std::ops::Bound;

use terrace::Direction;
use terrace_protocol::Args;

use super::{Failure, parse};

/// The lower bound of a range of keys, and the upper one.
pub(super) type KeyRange<'a> = (Bound<&'a [u8]>, Bound<&'a [u8]>);

/// A range without keys.
const EMPTY: KeyRange<'static> = (Bound::Excluded(b""), Bound::Excluded(b""));

const INVALID: Failure = Failure::Text(
    "ERR min or max not valid string range item: write [KEY to include a key, (KEY to exclude it, - for the lowest \
     key, + for the highest",
);

/// One end of a range.
#[derive(Clone, Copy)]
enum End<'a> {
    Lowest,
    Highest,
    At(Bound<&'a [u8]>),
}

impl<'a> End<'a> {
    fn parse(text: &'a [u8]) -> Result<End<'a>, Failure> {
        match text {
            b"-" => Ok(End::Lowest),
            b"+" => Ok(End::Highest),
            [b'[', key @ ..] => Ok(End::At(Bound::Included(key))),
            [b'(', key @ ..] => Ok(End::At(Bound::Excluded(key))),
            _ => Err(INVALID),
        }
    }

    fn bound(self) -> Bound<&'a [u8]> {
        match self {
            End::Lowest | End::Highest => Bound::Unbounded,
            End::At(bound) => bound,
        }
    }
}

/// The range between two ends, as ZRANGE with BYLEX writes them.
pub(super) fn between<'a>(lower: &'a [u8], upper: &'a [u8]) -> Result<KeyRange<'a>, Failure> {
    Ok(match (End::parse(lower)?, End::parse(upper)?) {
        (End::Highest, _) | (_, End::Lowest) => EMPTY,
        (lower, upper) => (lower.bound(), upper.bound()),
    })
}

/// What X.RANGE and X.PREFIX take of a range.
pub(super) struct Options {
    pub(super) direction: Direction,
    /// The entries to pass over, and how many then to take at most.
    pub(super) limit: Option<(usize, usize)>,
    pub(super) with_values: bool,
}

impl Options {
    /// Parses the options from the argument at `first` on.
    pub(super) fn parse(args: Args<'_>, first: usize) -> Result<Options, Failure> {
        let mut options = Options { direction: Direction::Forward, limit: None, with_values: false };
        let mut at = first;
        while at < args.len() {
            if args.is(at, "REV") {
                options.direction = Direction::Backward;
            } else if args.is(at, "WITHVALUES") {
                options.with_values = true;
            } else if args.is(at, "LIMIT") && at + 2 < args.len() {
                options.limit = Some((count(args.at(at + 1))?, count(args.at(at + 2))?));
                at += 2;
            } else {
                return Err(Failure::SYNTAX);
            }
            at += 1;
        }
        Ok(options)
    }
}

/// Parses `LIMIT n`, if it is there, from the argument at `first` on.
pub(super) fn limit(args: Args<'_>, first: usize) -> Result<Option<usize>, Failure> {
    match args.len().saturating_sub(first) {
        0 => Ok(None),
        2 if args.is(first, "LIMIT") => count(args.at(first + 1)).map(Some),
        _ => Err(Failure::SYNTAX),
    }
}

fn count(arg: &[u8]) -> Result<usize, Failure> {
    const NEGATIVE: Failure = Failure::Text("ERR the numbers of LIMIT must not be negative");
    usize::try_from(parse::integer(arg)?).map_err(|_| NEGATIVE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ends_are_parsed_as_in_redis() {
        assert_eq!(between(b"-", b"+").unwrap(), (Bound::Unbounded, Bound::Unbounded));
        assert_eq!(between(b"[a", b"(b").unwrap(), (Bound::Included(&b"a"[..]), Bound::Excluded(&b"b"[..])));
        assert_eq!(between(b"[", b"[[").unwrap(), (Bound::Included(&b""[..]), Bound::Included(&b"["[..])));
        for (lower, upper) in [("+", "-"), ("+", "+"), ("-", "-"), ("+", "[a"), ("[a", "-")] {
            assert_eq!(between(lower.as_bytes(), upper.as_bytes()).unwrap(), EMPTY, "{lower} {upper}");
        }
        for (lower, upper) in [("a", "+"), ("-", "b"), ("", "+"), ("+", "x"), ("--", "+"), ("]a", "+")] {
            assert!(between(lower.as_bytes(), upper.as_bytes()).is_err(), "{lower} {upper}");
        }
    }
}
