//! X.DELRANGE start end [LIMIT n], X.DELPREFIX prefix [LIMIT n]
//!
//! A call removes a bounded number of keys, each for itself. It replies with the number removed and
//! the start of what is left, in the form that X.DELRANGE takes: null once nothing is left.

use terrace::prefix_range;
use terrace_protocol::Args;

use super::{bounds::KeyRange, *};
use crate::state::shared::Shared;

pub(super) static X_DELRANGE: Command = Command {
    arity: -3,
    is_long: Some(|shared, _, args| is_long(shared, args, 3)),
    summary: "Removes keys in a range, at most 10000; replies with the number, and where to go on or null.",
    ..family("x.delrange", delrange)
};

pub(super) static X_DELPREFIX: Command = Command {
    is_long: Some(|shared, _, args| is_long(shared, args, 2)),
    summary: "Removes keys that begin with a prefix, at most 10000; replies as X.DELRANGE.",
    ..family("x.delprefix", delprefix)
};

const fn family(name: &'static str, run: fn(&mut Context<'_>, Args<'_>) -> Outcome) -> Command {
    Command {
        flags: flag::WRITE,
        categories: category::KEYSPACE,
        tips: &["request_policy:special"],
        since: "0.1.0",
        complexity: "O(M*log(N)) where M is the number of keys removed",
        ..Command::new(name, -2, group::GENERIC, Run::General(run))
    }
}

/// Maximum number of keys that a call removes.
const KEYS_MAX: usize = 10_000;

fn limit(args: Args<'_>, first: usize) -> Result<u64, Failure> {
    Ok(bounds::limit(args, first)?.map_or(KEYS_MAX, |limit| limit.min(KEYS_MAX)) as u64)
}

fn is_long(shared: &Shared, args: Args<'_>, first: usize) -> bool {
    shared.store.len().min(limit(args, first).unwrap_or(0)) > MANY as u64
}

fn delrange(cx: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let limit = limit(args, 3)?;
    remove(cx, bounds::between(args.at(1), args.at(2))?, limit)
}

fn delprefix(cx: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let limit = limit(args, 2)?;
    let (first, end) = prefix_range(args.at(1));
    remove(cx, (first.as_ref().map(|key| &**key), end.as_ref().map(|key| &**key)), limit)
}

fn remove(cx: &mut Context<'_>, range: KeyRange<'_>, limit: u64) -> Outcome {
    let (removed, next) = cx.keys.remove_range(range, limit)?;
    cx.reply.array(2);
    cx.reply.integer(i64::try_from(removed).unwrap_or(i64::MAX));
    match next {
        None => cx.reply.null(),
        Some(key) => cx.reply.bulk(&[b"[", &*key].concat()),
    }
    Ok(())
}
