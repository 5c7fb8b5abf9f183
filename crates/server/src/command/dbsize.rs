//! DBSIZE

use terrace_protocol::Args;

use super::*;

pub(super) static DBSIZE: Command = Command {
    flags: flag::READONLY | flag::FAST,
    categories: category::KEYSPACE,
    tips: &["request_policy:all_shards", "response_policy:agg_sum"],
    is_long: Some(has_many_keys_to_count),
    summary: "The number of keys of the database.",
    ..Command::new("dbsize", 1, group::SERVER, Run::General(dbsize))
};

fn dbsize(cx: &mut Context<'_>, _: Args<'_>) -> Outcome {
    cx.reply.integer(i64::try_from(cx.keys.count()?).unwrap_or(i64::MAX));
    Ok(())
}
