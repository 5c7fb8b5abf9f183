//! DEL key [key ...], UNLINK key [key ...]
//!
//! Each key is removed by itself, not all as one, so that a full pool, which has no room for a batch's descriptor, can still be
//! emptied.

use terrace_protocol::Args;

use super::*;

pub(super) static DEL: Command =
    Command { summary: "Removes keys; answers with how many were there.", ..family("del") };

pub(super) static UNLINK: Command = Command {
    flags: flag::WRITE | flag::FAST,
    since: "4.0.0",
    summary: "Removes keys, as DEL: memory is always freed in the background here.",
    ..family("unlink")
};

const fn family(name: &'static str) -> Command {
    Command {
        flags: flag::WRITE,
        categories: category::KEYSPACE,
        keys: const { &[KeySpec::every(1, &["RM", "delete"])] },
        tips: &["request_policy:multi_shard", "response_policy:agg_sum"],
        complexity: "O(N) where N is the number of keys",
        ..Command::new(name, -2, group::GENERIC, Run::General(del))
    }
}

fn del(cx: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let mut removed = 0;
    for key in args.from(1) {
        removed += i64::from(cx.keys.remove(key)?);
    }
    cx.reply.integer(removed);
    Ok(())
}
