//! MSET key value [key value ...], MSETNX key value [key value ...]

use terrace::Put;
use terrace_protocol::Args;

use super::*;
use crate::keyspace::{check_key, check_value};

pub(super) static MSET: Command = Command {
    tips: &["request_policy:multi_shard", "response_policy:all_succeeded"],
    keys: &[KeySpec::every(2, &["OW", "update"])],
    summary: "Sets the values of several keys atomically.",
    ..family("mset", mset)
};

pub(super) static MSETNX: Command = Command {
    tips: &["request_policy:multi_shard", "response_policy:agg_min"],
    keys: &[KeySpec::every(2, &["OW", "insert"])],
    summary: "Sets the values of several keys if none of them exists; 1 if set, 0 if not.",
    ..family("msetnx", msetnx)
};

const fn family(name: &'static str, run: fn(&mut Context<'_>, Args<'_>) -> Outcome) -> Command {
    Command {
        flags: flag::WRITE | flag::DENYOOM,
        categories: category::STRING,
        since: "1.0.1",
        complexity: "O(N) where N is the number of keys",
        is_long: Some(may_wait),
        ..Command::new(name, -3, group::STRING, Run::General(run))
    }
}

fn mset(cx: &mut Context<'_>, args: Args<'_>) -> Outcome {
    check(args, "mset")?;
    cx.keys.put_all(&puts(args))?;
    cx.reply.ok();
    Ok(())
}

fn msetnx(cx: &mut Context<'_>, args: Args<'_>) -> Outcome {
    check(args, "msetnx")?;
    let written = cx.keys.put_all_new(&puts(args))?;
    cx.reply.integer(i64::from(written));
    Ok(())
}

fn check(args: Args<'_>, name: &str) -> Outcome {
    if args.len().is_multiple_of(2) {
        return Err(Failure::arity(name));
    }
    (1..args.len()).step_by(2).try_for_each(|at| {
        check_key(args.at(at))?;
        check_value(args.at(at + 1))
    })
}

fn puts(args: Args<'_>) -> Vec<Put<'_>> {
    let put = |at| Put { key: args.at(at), value: args.at(at + 1), expires_at: None };
    (1..args.len()).step_by(2).map(put).collect()
}
