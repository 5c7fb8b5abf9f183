//! PERSIST key

use terrace::Change;
use terrace_protocol::Args;

use super::*;

pub(super) static PERSIST: Command = Command {
    flags: flag::WRITE | flag::FAST,
    categories: category::KEYSPACE,
    keys: &[KeySpec::first(&["RW", "update"])],
    since: "2.2.0",
    summary: "Removes the expiry of a key; 1 if it had one, 0 if not.",
    ..Command::new("persist", 2, group::GENERIC, Run::General(persist))
};

fn persist(cx: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let done = cx.modify(args.at(1), |found| match found.and_then(|found| found.expires_at) {
        Some(_) => (Change::Expire(None), true),
        None => (Change::Keep, false),
    })?;
    cx.reply.integer(i64::from(done));
    Ok(())
}
