//! FLUSHDB [ASYNC | SYNC], FLUSHALL [ASYNC | SYNC]

use terrace_protocol::Args;

use super::*;
use crate::{keyspace::within, state::databases::Place};

pub(super) static FLUSHDB: Command = Command {
    summary: "Removes all keys of the database.",
    ..family("flushdb", |cx, args| flush(cx, args, None))
};

pub(super) static FLUSHALL: Command = Command {
    summary: "Removes all keys of all databases.",
    ..family("flushall", |cx, args| flush(cx, args, Some(Place::RAW)))
};

const fn family(name: &'static str, run: fn(&mut Context<'_>, Args<'_>) -> Outcome) -> Command {
    Command {
        flags: flag::WRITE,
        categories: category::KEYSPACE | category::DANGEROUS,
        tips: &["request_policy:all_shards", "response_policy:all_succeeded"],
        complexity: "O(N) where N is the number of keys",
        is_long: Some(has_many_keys),
        ..Command::new(name, -1, group::SERVER, Run::General(run))
    }
}

/// Removes the keys of the selected database, or of another place.
fn flush(cx: &mut Context<'_>, args: Args<'_>, place: Option<Place>) -> Outcome {
    // Both modes: memory is freed in the background.
    if args.len() > 2 || args.len() == 2 && !args.is(1, "ASYNC") && !args.is(1, "SYNC") {
        return Err(Failure::SYNTAX);
    }
    within(cx.keys, place.unwrap_or(cx.state.place()), |keys| keys.clear())?;
    cx.reply.ok();
    Ok(())
}
