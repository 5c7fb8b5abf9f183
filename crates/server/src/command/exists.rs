//! EXISTS key [key ...], TOUCH key [key ...]

use terrace_protocol::Args;

use super::*;

pub(super) static EXISTS: Command =
    Command { summary: "How many of the keys are there; one named twice counts twice.", ..family("exists") };

pub(super) static TOUCH: Command = Command {
    since: "3.2.1",
    summary: "How many of the keys are there; Terrace keeps no time of last use to change.",
    ..family("touch")
};

const fn family(name: &'static str) -> Command {
    Command {
        flags: flag::READONLY | flag::FAST,
        categories: category::KEYSPACE,
        keys: const { &[KeySpec::every(1, &["RO"])] },
        tips: &["request_policy:multi_shard", "response_policy:agg_sum"],
        complexity: "O(N) where N is the number of keys",
        ..Command::new(name, -2, group::GENERIC, Run::General(exists))
    }
}

fn exists(cx: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let mut found = 0;
    for key in args.from(1) {
        found += i64::from(cx.exists(key)?);
    }
    cx.reply.integer(found);
    Ok(())
}
