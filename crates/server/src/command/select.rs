//! SELECT index

use terrace_protocol::Args;

use super::*;

pub(super) static SELECT: Command = Command {
    flags: flag::LOADING | flag::STALE | flag::FAST,
    categories: category::CONNECTION,
    summary: "Selects a database; only 0 exists.",
    ..Command::new("select", 2, group::CONNECTION, Run::General(run))
};

fn run(cx: &mut Context<'_>, args: Args<'_>) -> Outcome {
    database(args.at(1)).map_err(|failure| match (&cx.shared.routing, failure) {
        (Some(_), Failure::NO_SUCH_DATABASE) => Failure::Text("ERR SELECT is not allowed in cluster mode"),
        (_, failure) => failure,
    })?;
    cx.reply.ok();
    Ok(())
}

/// Refuses any database but 0.
pub(super) fn database(index: &[u8]) -> Outcome {
    match i32::try_from(parse::integer(index)?) {
        Ok(0) => Ok(()),
        Ok(_) => Err(Failure::NO_SUCH_DATABASE),
        Err(_) => {
            Err(Failure::Text("ERR value is out of range, value must between -2147483648 and 2147483647"))
        }
    }
}
