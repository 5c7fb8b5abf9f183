//! SHUTDOWN [NOSAVE] [NOW] [FORCE] [ABORT]

use terrace_protocol::Args;

use super::*;
use crate::state::flow::Flow;

pub(super) static SHUTDOWN: Command = Command {
    flags: flag::ADMIN | flag::NOSCRIPT | flag::LOADING | flag::STALE | flag::NO_MULTI | flag::ALLOW_BUSY,
    summary: "Stops the server. Every answered write stays in the pool.",
    ..Command::new("shutdown", -1, group::SERVER, Run::General(shutdown))
};

fn shutdown(cx: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let has = |word| (1..args.len()).any(|at| args.is(at, word));
    let known = |at| ["SAVE", "NOSAVE", "NOW", "FORCE", "ABORT"].iter().any(|word| args.is(at, word));
    let contradictory = has("SAVE") && has("NOSAVE") || has("ABORT") && args.len() > 2;
    if contradictory || !(1..args.len()).all(known) {
        return Err(Failure::SYNTAX);
    }
    if has("ABORT") {
        return Err(Failure::Text("ERR No shutdown in progress."));
    }
    if has("SAVE") {
        return Err(Failure::Text(
            "ERR Terrace writes no snapshots: every answered write is in the pool; use SHUTDOWN without SAVE",
        ));
    }
    cx.shared.shut_down();
    cx.state.flow = Flow::Shutdown;
    Ok(())
}
