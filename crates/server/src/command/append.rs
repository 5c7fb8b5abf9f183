//! APPEND key value

use terrace_protocol::Args;

use super::*;

pub(super) static APPEND: Command = Command {
    flags: flag::WRITE | flag::DENYOOM | flag::FAST,
    categories: category::STRING,
    keys: &[KeySpec::first(&["RW", "insert"])],
    since: "2.0.0",
    complexity: "O(N) where N is the length of the new value",
    summary: "Appends to a value, or creates it; replies with its length.",
    ..Command::new("append", 3, group::STRING, Run::General(append))
};

fn append(cx: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let (key, tail) = (args.at(1), args.at(2));
    let longest = cx.shared.config.proto_max_bulk_len();
    let len = cx.keys.append(key, tail, longest)?;
    let len = len.ok_or_else(|| Failure::too_long(longest))?;
    if len > tail.len() {
        cx.remember_encoding(key, len, b"raw");
    }
    cx.reply.count(len);
    Ok(())
}
