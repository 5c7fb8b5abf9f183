//! X.COUNT start end [LIMIT n]

use std::ops::ControlFlow;

use terrace::Direction;
use terrace_protocol::Args;

use super::*;
use crate::keyspace::Shown;

pub(super) static X_COUNT: Command = Command {
    flags: flag::READONLY,
    categories: category::KEYSPACE,
    tips: &["request_policy:special"],
    is_long: Some(|shared, _, args| {
        let most = bounds::limit(args, 3).map_or(0, |limit| limit.unwrap_or(usize::MAX));
        shared.store.len().min(most as u64) > MANY as u64
    }),
    since: "0.1.0",
    complexity: "O(log(N)+M) where M is the number of keys counted",
    summary: "The number of keys in a range; with LIMIT counts no further than that.",
    ..Command::new("x.count", -3, group::GENERIC, Run::General(count))
};

fn count(cx: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let limit = bounds::limit(args, 3)?.unwrap_or(usize::MAX);
    let range = bounds::between(args.at(1), args.at(2))?;
    let mut found = 0;
    cx.keys.range(range, Direction::Forward, limit, Shown::Keys, &mut |_, _| {
        found += 1;
        ControlFlow::Continue(())
    })?;
    cx.reply.count(found);
    Ok(())
}
