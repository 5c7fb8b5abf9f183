//! SCAN cursor [MATCH pattern] [COUNT count] [TYPE type]

use terrace_protocol::{Args, Glob};

use super::*;

pub(super) static SCAN: Command = Command {
    flags: flag::READONLY,
    categories: category::KEYSPACE,
    tips: &["nondeterministic_output", "request_policy:special"],
    since: "2.8.0",
    complexity: "O(1) per call, O(N) for all N keys",
    is_long: Some(|shared, _, args| {
        shared.is_of_cluster() || Options::parse(args).is_ok_and(|options| options.count > MANY)
    }),
    summary: "Iterates over the keys in steps; returns every key that is present throughout.",
    ..Command::new("scan", -2, group::GENERIC, Run::General(scan))
};

struct Options<'a> {
    pattern: Glob<'a>,
    count: usize,
    /// Whether the scan returns strings at all.
    strings: bool,
}

/// Maximum number of keys that one call visits, whatever COUNT says: a reply is held in memory as a
/// whole.
const COUNT_MAX: usize = 1 << 20;

fn scan(cx: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let number = parse_cursor(args.at(1)).ok_or(Failure::Text("ERR invalid cursor"))?;
    let options = Options::parse(args)?;
    let cursor = cx.shared.cursors.place(number, &cx.shared.store)?;
    let (mut found, mut too_many) = (0, false);
    let (start, reply, prefix) = (cx.reply.mark(), &mut cx.reply, options.pattern.prefix());
    let mut each = |key: &[u8]| match options.pattern.matches(key) {
        Ok(true) if options.strings => {
            reply.bulk(key);
            found += 1;
        }
        Ok(_) => {}
        Err(_) => too_many = true,
    };
    let next = walk::step(cx.keys, &cx.shared.store, &cursor, &prefix, options.count, &mut each)?;
    if too_many {
        return Err(keys::TOO_MANY_STEPS);
    }
    let next = cx.shared.cursors.number(next, cx.now_ms);
    cx.reply.in_front(start, |reply| {
        reply.array(2);
        reply.bulk(itoa::Buffer::new().format(next).as_bytes());
        reply.array(found);
    });
    Ok(())
}

/// Redis parses cursors with C's `strtoul`: it accepts a sign and leading zeros, and reads an empty
/// text as 0.
fn parse_cursor(text: &[u8]) -> Option<u64> {
    let text = std::str::from_utf8(Failure::printed(text)).ok()?;
    let (negative, digits) = match text.strip_prefix('-') {
        Some(digits) => (true, digits),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
    if text.is_empty() {
        return Some(0);
    }
    // `parse` alone would accept a second sign.
    let value: u64 = digits.bytes().all(|byte| byte.is_ascii_digit()).then(|| digits.parse().ok())??;
    Some(if negative { value.wrapping_neg() } else { value })
}

impl<'a> Options<'a> {
    fn parse(args: Args<'a>) -> Result<Options<'a>, Failure> {
        let mut options = Options { pattern: Glob::new(b"*"), count: 10, strings: true };
        for at in (2..args.len()).step_by(2) {
            let Some(value) = args.get(at + 1) else { return Err(Failure::SYNTAX) };
            if args.is(at, "COUNT") {
                let count = parse::integer(value)?;
                options.count = usize::try_from(count)
                    .ok()
                    .filter(|count| *count > 0)
                    .ok_or(Failure::SYNTAX)?
                    .min(COUNT_MAX);
            } else if args.is(at, "MATCH") {
                options.pattern = Glob::new(value);
            } else if args.is(at, "TYPE") {
                options.strings = value.eq_ignore_ascii_case(b"string");
            } else {
                return Err(Failure::SYNTAX);
            }
        }
        Ok(options)
    }
}
