//! X.CHECKPOINT path, X.COMPACT [start end]: the upkeep of a store on a disk.

use std::{ffi::OsStr, os::unix::ffi::OsStrExt, path::Path};

use terrace_protocol::Args;

use super::*;

pub(super) static X_CHECKPOINT: Command = Command {
    arity: 2,
    summary: "Makes a copy of a store on a disk, as it is now, in a new directory with this absolute path.",
    complexity: "O(N) where N is the number of files",
    ..family("x.checkpoint", checkpoint)
};

pub(super) static X_COMPACT: Command = Command {
    arity: -1,
    summary: "Writes a range of a store on a disk anew, or all of it, without what was overwritten or removed.",
    complexity: "O(N) where N is the number of keys in the range",
    ..family("x.compact", compact)
};

const fn family(name: &'static str, run: fn(&mut Context<'_>, Args<'_>) -> Outcome) -> Command {
    Command {
        flags: flag::ADMIN | flag::NOSCRIPT | flag::NO_MULTI,
        since: "0.1.0",
        is_long: Some(|shared, _, _| shared.store.is_on_disk()),
        ..Command::new(name, 1, group::SERVER, Run::General(run))
    }
}

fn checkpoint(cx: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let path = Path::new(OsStr::from_bytes(args.at(1)));
    if !path.is_absolute() || args.at(1).contains(&0) {
        return Err(Failure::Text("ERR the path of a checkpoint must be absolute"));
    }
    cx.shared.store.disk()?.checkpoint(path)?;
    cx.reply.ok();
    Ok(())
}

fn compact(cx: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let range = match args.len() {
        1 => bounds::between(b"-", b"+")?,
        3 => bounds::between(args.at(1), args.at(2))?,
        _ => return Err(Failure::SYNTAX),
    };
    cx.shared.store.disk()?.compact_range(range)?;
    cx.reply.ok();
    Ok(())
}
