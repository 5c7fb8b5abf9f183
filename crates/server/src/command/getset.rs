//! GETSET key value

use terrace::Change;
use terrace_protocol::Args;

use super::*;

pub(super) static GETSET: Command = Command {
    flags: flag::WRITE | flag::DENYOOM | flag::FAST,
    categories: category::STRING,
    keys: &[KeySpec::first(&["RW", "access", "update"])],
    summary: "Sets the value of a key; replies with the previous value.",
    ..Command::new("getset", 3, group::STRING, Run::General(getset))
};

fn getset(cx: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let value = args.at(2);
    let old = cx.modify(args.at(1), |found| {
        let old = found.map(|found| found.value.to_vec());
        (Change::Put { value: value.to_vec(), expires_at: None }, old)
    })?;
    get::copied(&mut cx.reply, old.as_deref());
    Ok(())
}
