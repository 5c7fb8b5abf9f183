//! MOVE key db

use terrace::Put;
use terrace_protocol::Args;

use super::*;
use crate::keyspace::within;

pub(super) static MOVE: Command = Command {
    flags: flag::WRITE | flag::FAST,
    categories: category::KEYSPACE,
    keys: &[KeySpec::first(&["RW", "access", "update"])],
    is_long: Some(crate::session::may_wait),
    summary: "Moves a key with its expiry to another database; 1 if moved, 0 if not.",
    ..Command::new("move", 3, group::GENERIC, Run::General(run))
};

fn run(cx: &mut Context<'_>, args: Args<'_>) -> Outcome {
    if cx.state.map.is_none() {
        return Err(Failure::Text("ERR MOVE is not allowed in cluster mode"));
    }
    let (key, to) = (args.at(1), select::place(cx, args.at(2))?);
    if to == cx.state.place() {
        return Err(copy::SAME);
    }
    let mut moved = false;
    cx.keys.atomically(&mut |keys| {
        let (mut source, mut taken) = (None, false);
        keys.read(key, &mut |found| source = found.map(|found| (found.value.to_vec(), found.expires_at)))?;
        within(keys, to, |keys| keys.read(key, &mut |found| taken = found.is_some()))?;
        moved = source.is_some() && !taken;
        let Some((value, expires_at)) = source.filter(|_| moved) else { return Ok(()) };
        within(keys, to, |keys| keys.put(Put { key, value: &value, expires_at }))?;
        keys.remove(key).map(drop)
    })?;
    cx.reply.integer(i64::from(moved));
    Ok(())
}
