//! X.NEXT key, X.PREV key

use std::ops::{Bound, ControlFlow};

use terrace::Direction;
use terrace_protocol::Args;

use super::{bounds::KeyRange, *};
use crate::keyspace::Shown;

pub(super) static X_NEXT: Command = Command {
    summary: "The first key after this one and its value; null if there is none.",
    ..family("x.next", next)
};

pub(super) static X_PREV: Command = Command {
    summary: "The last key before this one and its value; null if there is none.",
    ..family("x.prev", prev)
};

const fn family(name: &'static str, run: fn(&mut Context<'_>, Args<'_>) -> Outcome) -> Command {
    Command {
        flags: flag::READONLY | flag::FAST,
        categories: category::KEYSPACE,
        keys: const { &[KeySpec::first(&["RO", "access"])] },
        tips: &["request_policy:special"],
        since: "0.1.0",
        complexity: "O(log(N))",
        ..Command::new(name, 2, group::GENERIC, Run::General(run))
    }
}

fn next(cx: &mut Context<'_>, args: Args<'_>) -> Outcome {
    neighbour(cx, (Bound::Excluded(args.at(1)), Bound::Unbounded), Direction::Forward)
}

fn prev(cx: &mut Context<'_>, args: Args<'_>) -> Outcome {
    neighbour(cx, (Bound::Unbounded, Bound::Excluded(args.at(1))), Direction::Backward)
}

/// Replies with the first entry of a range in this direction.
fn neighbour(cx: &mut Context<'_>, range: KeyRange<'_>, direction: Direction) -> Outcome {
    let (reply, mut found) = (&mut cx.reply, false);
    cx.keys.range(range, direction, 1, Shown::Entries, &mut |key, entry| {
        found = true;
        reply.array(2);
        reply.bulk(key);
        reply.bulk(entry.value);
        ControlFlow::Break(())
    })?;
    if !found {
        reply.null_array();
    }
    Ok(())
}
