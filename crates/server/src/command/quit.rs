//! QUIT

use terrace_protocol::Args;

use super::*;
use crate::state::flow::Flow;

pub(super) static QUIT: Command = Command {
    flags: flag::NOSCRIPT | flag::LOADING | flag::STALE | flag::FAST | flag::NO_AUTH | flag::ALLOW_BUSY,
    categories: category::CONNECTION,
    summary: "Closes the connection.",
    ..Command::new("quit", -1, group::CONNECTION, Run::General(quit))
};

fn quit(cx: &mut Context<'_>, _: Args<'_>) -> Outcome {
    cx.state.flow = Flow::Close;
    cx.reply.ok();
    Ok(())
}
