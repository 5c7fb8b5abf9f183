//! X.RANGE start end [REV] [LIMIT offset count] [WITHVALUES], X.PREFIX prefix [REV] [LIMIT offset
//! count] [WITHVALUES]

use std::ops::ControlFlow;

use terrace::{Direction, prefix_range};
use terrace_protocol::{Args, Reply};

use super::{
    bounds::{KeyRange, Options},
    *,
};
use crate::{
    keyspace::{Found, Shown},
    state::{replies::ReplyLimit, shared::Shared},
};

pub(super) static X_RANGE: Command = Command {
    arity: -3,
    is_long: Some(|shared, _, args| is_long(shared, args, 3)),
    summary: "The keys in a range, in order; with REV from the upper end, which then comes first.",
    ..family("x.range", range)
};

pub(super) static X_PREFIX: Command = Command {
    is_long: Some(|shared, _, args| is_long(shared, args, 2)),
    summary: "The keys that begin with a prefix, in order.",
    ..family("x.prefix", prefix)
};

const fn family(name: &'static str, run: fn(&mut Context<'_>, Args<'_>) -> Outcome) -> Command {
    Command {
        flags: flag::READONLY,
        categories: category::KEYSPACE,
        tips: &["request_policy:special"],
        since: "0.1.0",
        complexity: "O(log(N)+M) where M is the number of keys passed over and returned",
        ..Command::new(name, -2, group::GENERIC, Run::General(run))
    }
}

/// Maximum number of entries in a reply without LIMIT.
const UNLIMITED_MAX: usize = 10_000;
/// Maximum number of entries in a reply.
const ENTRIES_MAX: usize = 1 << 20;

fn is_long(shared: &Shared, args: Args<'_>, first: usize) -> bool {
    let Ok(options) = Options::parse(args, first) else { return false };
    let (offset, count) = options.limit.unwrap_or((0, UNLIMITED_MAX));
    shared.store.len().min(offset.saturating_add(count) as u64) > MANY as u64
}

fn range(cx: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let options = Options::parse(args, 3)?;
    let range = match options.direction {
        Direction::Forward => bounds::between(args.at(1), args.at(2)),
        Direction::Backward => bounds::between(args.at(2), args.at(1)),
    };
    entries(cx, range?, &options)
}

fn prefix(cx: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let options = Options::parse(args, 2)?;
    let (first, end) = prefix_range(args.at(1));
    entries(cx, (first.as_ref().map(|key| &**key), end.as_ref().map(|key| &**key)), &options)
}

/// Replies with the entries of a range.
fn entries(cx: &mut Context<'_>, range: KeyRange<'_>, options: &Options) -> Outcome {
    let most = if options.limit.is_some() { ENTRIES_MAX } else { UNLIMITED_MAX };
    let (skip, count) = options.limit.unwrap_or((0, usize::MAX));
    // One entry more shows that the reply would be too long.
    let at_most = skip.saturating_add(count.min(most + 1));
    let (start, limit) = (cx.reply.mark(), cx.state.reply_limit);
    let mut taken = Taken {
        reply: &mut cx.reply,
        skip,
        entries_left: most,
        end_max: start.saturating_add(limit.bytes),
        with_values: options.with_values,
        too_long: None,
    };
    let shown = if options.with_values { Shown::Entries } else { Shown::Keys };
    cx.keys.range(range, options.direction, at_most, shown, &mut |key, entry| taken.take(key, entry))?;
    let (found, too_long) = (most - taken.entries_left, taken.too_long);
    if let Some(why) = too_long {
        return Err(why.failure(options, limit));
    }
    let with_values = options.with_values;
    cx.reply.in_front(start, |reply| if with_values { reply.map(found) } else { reply.array(found) });
    Ok(())
}

/// Why a reply would be too long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum TooLong {
    Entries,
    Bytes,
}

/// The entries of a reply.
struct Taken<'r, 'o> {
    reply: &'r mut Reply<'o>,
    /// Entries still to pass over.
    skip: usize,
    /// Entries that the reply has room for.
    entries_left: usize,
    /// Position in the output behind which no entry may begin.
    end_max: usize,
    with_values: bool,
    too_long: Option<TooLong>,
}

impl Taken<'_, '_> {
    fn take(&mut self, key: &[u8], entry: Found<'_>) -> ControlFlow<()> {
        if self.skip > 0 {
            self.skip -= 1;
            return ControlFlow::Continue(());
        }
        self.too_long = match () {
            () if self.entries_left == 0 => Some(TooLong::Entries),
            () if self.reply.mark() > self.end_max => Some(TooLong::Bytes),
            () => None,
        };
        if self.too_long.is_some() {
            return ControlFlow::Break(());
        }
        self.entries_left -= 1;
        self.reply.bulk(key);
        if self.with_values {
            self.reply.bulk(entry.value);
        }
        ControlFlow::Continue(())
    }
}

impl TooLong {
    fn failure(self, options: &Options, limit: ReplyLimit) -> Failure {
        let what = match (self, options.limit) {
            (TooLong::Bytes, _) => format!("the reply is larger than {}", limit.name),
            (TooLong::Entries, None) => format!("the range has more than {UNLIMITED_MAX} keys"),
            (TooLong::Entries, Some(_)) => format!("the reply has more than {ENTRIES_MAX} keys"),
        };
        let how = if options.limit.is_some() { "a smaller COUNT in LIMIT" } else { "LIMIT 0 COUNT" };
        let text = format!("ERR {what}: use {how}, and begin the next range behind the last key, at (KEY");
        Failure::Made(text.into_bytes().into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What a reply takes of three entries of 7 bytes, and why not more.
    fn taken(skip: usize, entries_left: usize, end_max: usize) -> (&'static str, Option<TooLong>) {
        let mut output = Vec::new();
        let mut reply = Reply::new(&mut output, false);
        let (with_values, too_long) = (false, None);
        let mut taken = Taken { reply: &mut reply, skip, entries_left, end_max, with_values, too_long };
        for key in ["a", "b", "c"] {
            if taken.take(key.as_bytes(), Found { value: b"", expires_at: None }).is_break() {
                break;
            }
        }
        let too_long = taken.too_long;
        let shown = ["", "a", "b", "c", "ab", "bc", "abc"].into_iter().find(|keys| {
            output == keys.chars().map(|key| format!("$1\r\n{key}\r\n")).collect::<String>().into_bytes()
        });
        (shown.unwrap(), too_long)
    }

    #[test]
    fn reply_ends_at_its_most_entries_and_bytes() {
        let far = usize::MAX;
        assert_eq!(taken(0, 3, far), ("abc", None));
        assert_eq!(taken(0, 2, far), ("ab", Some(TooLong::Entries)));
        assert_eq!(taken(1, 2, far), ("bc", None));
        assert_eq!(taken(4, 0, far), ("", None));
        assert_eq!(taken(0, 0, far), ("", Some(TooLong::Entries)));
        assert_eq!(taken(0, 3, 14), ("abc", None));
        assert_eq!(taken(0, 3, 13), ("ab", Some(TooLong::Bytes)));
        assert_eq!(taken(2, 3, 0), ("c", None));
    }
}
