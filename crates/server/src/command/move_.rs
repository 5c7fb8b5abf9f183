//! MOVE key db

use terrace_protocol::Args;

use super::*;

pub(super) static MOVE: Command = Command {
    flags: flag::WRITE | flag::FAST,
    categories: category::KEYSPACE,
    keys: &[KeySpec::first(&["RW", "access", "update"])],
    is_long: Some(may_wait),
    summary: "Moves a key with its expiry to another database; 1 if moved, 0 if not.",
    ..Command::new("move", 3, group::GENERIC, Run::General(run))
};

fn run(cx: &mut Context<'_>, args: Args<'_>) -> Outcome {
    if cx.state.selection.map().is_none() {
        return Err(Failure::Text("ERR MOVE is not allowed in cluster mode"));
    }
    let (key, to) = (args.at(1), select::place(cx, args.at(2))?);
    if to == cx.state.place() {
        return Err(copy::SAME);
    }
    let mut moved = false;
    cx.keys.atomically(&mut |keys| {
        moved = copy::copy_within(keys, key, (to, key), false)?;
        if moved {
            keys.remove(key)?;
            keys.carry_use(key, Some(to), key);
        }
        Ok(())
    })?;
    cx.reply.integer(i64::from(moved));
    Ok(())
}
