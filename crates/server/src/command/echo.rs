//! ECHO message

use terrace_protocol::Args;

use super::*;

pub(super) static ECHO: Command = Command {
    flags: flag::LOADING | flag::STALE | flag::FAST,
    categories: category::CONNECTION,
    summary: "Replies with the message.",
    ..Command::new("echo", 2, group::CONNECTION, Run::General(echo))
};

fn echo(cx: &mut Context<'_>, args: Args<'_>) -> Outcome {
    cx.reply.bulk(args.at(1));
    Ok(())
}
