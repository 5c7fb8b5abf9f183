//! SETRANGE key offset value

use terrace::Change;
use terrace_protocol::Args;

use super::*;

pub(super) static SETRANGE: Command = Command {
    flags: flag::WRITE | flag::DENYOOM,
    categories: category::STRING,
    keys: &[KeySpec::first(&["RW", "update"])],
    since: "2.2.0",
    complexity: "O(N) where N is the length of the new value",
    summary: "Overwrites part of a value, padding it with zero bytes; replies with its length.",
    ..Command::new("setrange", 4, group::STRING, Run::General(setrange))
};

fn setrange(cx: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let patch = args.at(3);
    let offset = parse::integer(args.at(2))?;
    let offset = usize::try_from(offset).map_err(|_| Failure::Text("ERR offset is out of range"))?;
    let longest = cx.shared.config.proto_max_bulk_len();
    let len = cx.modify(args.at(1), |found| {
        let old = found.map_or(&[][..], |found| found.value);
        if patch.is_empty() {
            return (Change::Keep, Some(old.len()));
        }
        let Some(end) = offset.checked_add(patch.len()).filter(|end| *end <= longest) else {
            return (Change::Keep, None);
        };
        let mut value = Vec::with_capacity(old.len().max(end));
        value.extend_from_slice(old);
        value.resize(old.len().max(end), 0);
        value[offset..end].copy_from_slice(patch);
        let len = value.len();
        (Change::Put { value, expires_at: found.and_then(|found| found.expires_at) }, Some(len))
    })?;
    let len = len.ok_or_else(|| Failure::too_long(longest))?;
    if !patch.is_empty() {
        cx.remember_encoding(args.at(1), len, b"raw");
    }
    cx.reply.count(len);
    Ok(())
}
