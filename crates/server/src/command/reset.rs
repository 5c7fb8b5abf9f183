//! RESET

use terrace_protocol::Args;

use super::*;

pub(super) static RESET: Command = Command {
    flags: flag::NOSCRIPT | flag::LOADING | flag::STALE | flag::FAST | flag::NO_AUTH | flag::ALLOW_BUSY,
    categories: category::CONNECTION,
    since: "6.2.0",
    summary: "Resets the connection to its initial state.",
    ..Command::new("reset", 1, group::CONNECTION, Run::General(reset))
};

fn reset(cx: &mut Context<'_>, _: Args<'_>) -> Outcome {
    cx.state.reset(cx.shared, cx.reply.mark());
    cx.reply.set_resp3(false);
    cx.reply.simple("RESET");
    Ok(())
}
