//! GETDEL key

use terrace::Change;
use terrace_protocol::Args;

use super::*;

pub(super) static GETDEL: Command = Command {
    flags: flag::WRITE | flag::FAST,
    categories: category::STRING,
    keys: &[KeySpec::first(&["RW", "access", "delete"])],
    since: "6.2.0",
    summary: "Removes a key; replies with its value.",
    ..Command::new("getdel", 2, group::STRING, Run::General(getdel))
};

fn getdel(cx: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let old = cx.modify(args.at(1), |found| match found {
        Some(found) => (Change::Remove, Some(found.value.to_vec())),
        None => (Change::Keep, None),
    })?;
    get::copied(&mut cx.reply, old.as_deref());
    Ok(())
}
