//! SETNX key value

use terrace::Change;
use terrace_protocol::Args;

use super::*;

pub(super) static SETNX: Command = Command {
    flags: flag::WRITE | flag::DENYOOM | flag::FAST,
    categories: category::STRING,
    keys: &[KeySpec::first(&["OW", "insert"])],
    summary: "Sets the value of a key that does not exist; 1 if set, 0 if not.",
    ..Command::new("setnx", 3, group::STRING, Run::General(setnx))
};

fn setnx(cx: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let value = args.at(2);
    let written = cx.modify(args.at(1), |found| match found {
        Some(_) => (Change::Keep, false),
        None => (Change::Put { value: value.to_vec(), expires_at: None }, true),
    })?;
    cx.reply.integer(i64::from(written));
    Ok(())
}
