//! DELIFEQ key value, from Valkey

use terrace::Change;
use terrace_protocol::Args;

use super::*;

pub(super) static DELIFEQ: Command = Command {
    flags: flag::WRITE | flag::FAST,
    categories: category::STRING,
    keys: &[KeySpec::first(&["RW", "delete"])],
    since: "9.0.0",
    summary: "Removes a key if it has this value; 1 if removed, 0 if not.",
    ..Command::new("delifeq", 3, group::STRING, Run::General(delifeq))
};

fn delifeq(cx: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let value = args.at(2);
    let removed = cx.modify(args.at(1), |found| match found {
        Some(found) if found.value == value => (Change::Remove, true),
        _ => (Change::Keep, false),
    })?;
    cx.reply.integer(i64::from(removed));
    Ok(())
}
