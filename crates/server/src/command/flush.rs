//! FLUSHDB [ASYNC | SYNC], FLUSHALL [ASYNC | SYNC]

use terrace_protocol::Args;

use super::*;
use crate::session;

pub(super) static FLUSHDB: Command = family("flushdb");
pub(super) static FLUSHALL: Command = family("flushall");

const fn family(name: &'static str) -> Command {
    Command {
        flags: flag::WRITE,
        categories: category::KEYSPACE | category::DANGEROUS,
        tips: &["request_policy:all_shards", "response_policy:all_succeeded"],
        complexity: "O(N) where N is the number of keys",
        is_long: Some(session::has_many_keys),
        summary: "Removes all keys.",
        ..Command::new(name, -1, group::SERVER, Run::General(flush))
    }
}

fn flush(cx: &mut Context<'_>, args: Args<'_>) -> Outcome {
    // Both modes: the keys disappear at once for all clients, memory is freed in the background.
    if args.len() > 2 || args.len() == 2 && !args.is(1, "ASYNC") && !args.is(1, "SYNC") {
        return Err(Failure::SYNTAX);
    }
    cx.keys.clear()?;
    cx.reply.ok();
    Ok(())
}
