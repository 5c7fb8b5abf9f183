//! COPY source destination [DB destination-db] [REPLACE]

use terrace::Put;
use terrace_protocol::Args;

use super::*;
use crate::{
    keyspace::{Keyspace, check_key, within},
    state::databases::Place,
};

pub(super) static COPY: Command = Command {
    flags: flag::WRITE | flag::DENYOOM,
    categories: category::KEYSPACE,
    keys: &[KeySpec::at(1, &["RO", "access"]), KeySpec::at(2, &["OW", "update"])],
    since: "6.2.0",
    complexity: "O(N) where N is the length of the value",
    is_long: Some(may_wait),
    summary: "Copies a value with its expiry to another key; 1 if copied, 0 if not.",
    ..Command::new("copy", -3, group::GENERIC, Run::General(copy))
};

pub(super) const SAME: Failure = Failure::Text("ERR source and destination objects are the same");

fn copy(cx: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let (from, to) = (args.at(1), args.at(2));
    let (place, replace) = parse_options(cx, args)?;
    if from == to && place == cx.state.place() {
        return Err(SAME);
    }
    check_key(to)?;
    let mut copied = false;
    cx.keys.atomically(&mut |keys| {
        copied = copy_within(keys, from, (place, to), replace)?;
        Ok(())
    })?;
    cx.reply.integer(i64::from(copied));
    Ok(())
}

/// Copies a key to another one, in any place, if it exists. Returns whether it did: not over a key
/// that is there, unless it `replace`s it.
pub(super) fn copy_within(
    keys: &mut dyn Keyspace,
    from: &[u8],
    (place, to): (Place, &[u8]),
    replace: bool,
) -> Result<bool, Failure> {
    let (mut source, mut taken) = (None, false);
    keys.read(from, &mut |found| source = found.map(|found| (found.value.to_vec(), found.expires_at)))?;
    within(keys, place, |keys| {
        keys.read(to, &mut |found| taken = found.is_some())?;
        let Some((value, expires_at)) = source.filter(|_| replace || !taken) else { return Ok(false) };
        keys.put(Put { key: to, value: &value, expires_at })?;
        Ok(true)
    })
}

/// Parses the options; returns the place of the destination, and whether REPLACE is given.
fn parse_options(cx: &Context<'_>, args: Args<'_>) -> Result<(Place, bool), Failure> {
    let (mut place, mut replace, mut at) = (cx.state.place(), false, 3);
    while at < args.len() {
        if args.is(at, "REPLACE") {
            replace = true;
            at += 1;
        } else if args.is(at, "DB") && at + 1 < args.len() {
            place = select::place(cx, args.at(at + 1))?;
            at += 2;
        } else {
            return Err(Failure::SYNTAX);
        }
    }
    Ok((place, replace))
}
