//! ASKING, READONLY, READWRITE

use terrace_protocol::Args;

use super::*;

pub(super) static ASKING: Command = Command {
    flags: flag::FAST,
    summary: "Lets the next command, or transaction, be for a slot that another node has redirected with ASK.",
    ..family("asking", asking)
};

pub(super) static READONLY: Command = Command {
    flags: flag::LOADING | flag::STALE | flag::FAST,
    summary: "Accepted for clients that read from replicas; no node has any.",
    ..family("readonly", nothing)
};

pub(super) static READWRITE: Command = Command {
    flags: flag::LOADING | flag::STALE | flag::FAST,
    summary: "Ends READONLY.",
    ..family("readwrite", nothing)
};

const fn family(name: &'static str, run: fn(&mut Context<'_>, Args<'_>) -> Outcome) -> Command {
    Command {
        categories: category::CONNECTION,
        since: "3.0.0",
        ..Command::new(name, 1, group::CLUSTER, Run::General(run))
    }
}

fn asking(cx: &mut Context<'_>, args: Args<'_>) -> Outcome {
    nothing(cx, args)?;
    cx.state.asking = true;
    Ok(())
}

fn nothing(cx: &mut Context<'_>, _: Args<'_>) -> Outcome {
    cluster::routing(cx)?;
    cx.reply.ok();
    Ok(())
}
