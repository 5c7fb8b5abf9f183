//! GETRANGE key start end, and SUBSTR, its old name

use terrace_protocol::{Args, Reply};

use super::*;
use crate::keyspace::Found;

pub(super) static GETRANGE: Command = Command { since: "2.4.0", ..family("getrange") };
pub(super) static SUBSTR: Command = family("substr");

const fn family(name: &'static str) -> Command {
    Command {
        flags: flag::READONLY,
        categories: category::STRING,
        keys: const { &[KeySpec::first(&["RO", "access"])] },
        complexity: "O(N) where N is the length of the reply",
        summary: "Part of a value, both ends included; negative indexes count from the value's end.",
        ..Command::new(name, 4, group::STRING, Run::Read(getrange))
    }
}

fn getrange(reply: &mut Reply<'_>, args: Args<'_>, found: Option<Found<'_>>, _: u64) -> Outcome {
    let (start, end) = (parse::integer(args.at(2))?, parse::integer(args.at(3))?);
    reply.bulk(found.map_or(&[], |found| range(found.value, start, end)));
    Ok(())
}

fn range(value: &[u8], start: i64, end: i64) -> &[u8] {
    let len = i64::try_from(value.len()).unwrap_or(i64::MAX);
    if start < 0 && end < 0 && start > end {
        return &[];
    }
    let from_start = |at: i64| if at < 0 { at.saturating_add(len).max(0) } else { at };
    let (start, end) = (from_start(start), from_start(end).min(len - 1));
    if start > end {
        return &[];
    }
    usize::try_from(start)
        .ok()
        .zip(usize::try_from(end).ok())
        .and_then(|(start, end)| value.get(start..=end))
        .unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::range;

    #[test]
    fn ends_are_clamped_as_in_redis() {
        for (start, end, expected) in [
            (0, -1, "hello"),
            (1, 3, "ell"),
            (-3, -2, "ll"),
            (3, 1, ""),
            (-1, -3, ""),
            (0, 100, "hello"),
            (5, 9, ""),
            (-100, 0, "h"),
            (-100, -50, "h"),
            (i64::MIN, i64::MAX, "hello"),
        ] {
            assert_eq!(range(b"hello", start, end), expected.as_bytes(), "{start} {end}");
        }
        assert_eq!(range(b"", 0, -1), b"");
    }
}
