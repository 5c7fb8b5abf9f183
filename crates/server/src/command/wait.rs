//! WAIT replicas timeout

use terrace_protocol::{Args, parse_i64};

use super::*;

pub(super) static WAIT: Command = Command {
    flags: flag::NOSCRIPT,
    categories: category::CONNECTION,
    tips: &["request_policy:all_shards", "response_policy:agg_min"],
    since: "3.0.0",
    summary: "The number of replicas that have this connection's writes: always 0, there are none.",
    ..Command::new("wait", 3, group::GENERIC, Run::General(wait))
};

fn wait(cx: &mut Context<'_>, args: Args<'_>) -> Outcome {
    parse::integer(args.at(1))?;
    let timeout =
        parse_i64(args.at(2)).ok_or(Failure::Text("ERR timeout is not an integer or out of range"))?;
    if timeout < 0 {
        return Err(Failure::Text("ERR timeout is negative"));
    }
    cx.reply.integer(0);
    Ok(())
}
