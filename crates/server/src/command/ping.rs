//! PING [message]

use terrace_protocol::Args;

use super::*;

pub(super) static PING: Command = Command {
    flags: flag::FAST,
    categories: category::CONNECTION,
    tips: &["request_policy:all_shards", "response_policy:all_succeeded"],
    summary: "Replies with PONG, or with the message.",
    ..Command::new("ping", -1, group::CONNECTION, Run::General(ping))
};

fn ping(cx: &mut Context<'_>, args: Args<'_>) -> Outcome {
    match args.len() {
        1 => cx.reply.simple("PONG"),
        2 => cx.reply.bulk(args.at(1)),
        _ => return Err(Failure::arity("ping")),
    }
    Ok(())
}
