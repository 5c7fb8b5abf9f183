//! SAVE, BGSAVE, LASTSAVE: a checkpoint of a store on a disk. WAITAOF: makes writes durable.
//!
//! In Redis each of these confirms that data is in a file now, or will be soon. A client relies on
//! that. In a pool, a write is as durable as the pool promises when it is answered, so they are
//! refused, with a hint about what Terrace does instead. BGREWRITEAOF is refused everywhere.

use std::{fs, path::Path, sync::atomic::Ordering::Relaxed};

use terrace::WriteError;
use terrace_protocol::Args;

use super::*;
use crate::state::shared::Shared;

const SAVE_SUMMARY: &str = "Makes a checkpoint of a store on a disk, in the folder checkpoints of its directory; it replaces the last one.";

pub(super) static SAVE: Command = Command {
    flags: flag::ADMIN | flag::NOSCRIPT | flag::NO_ASYNC_LOADING | flag::NO_MULTI,
    summary: SAVE_SUMMARY,
    is_long: Some(|shared, _, _| shared.store.is_on_disk()),
    ..family("save", 1, save)
};
pub(super) static BGSAVE: Command = Command {
    summary: SAVE_SUMMARY,
    is_long: Some(|shared, _, _| shared.store.is_on_disk()),
    ..family("bgsave", -1, bgsave)
};
pub(super) static BGREWRITEAOF: Command = family("bgrewriteaof", 1, |cx, _| {
    Err(if cx.shared.store.is_on_disk() { REFUSED_ON_DISK } else { REFUSED })
});
pub(super) static LASTSAVE: Command = Command {
    flags: flag::LOADING | flag::STALE | flag::FAST,
    categories: category::ADMIN | category::DANGEROUS,
    tips: &["nondeterministic_output"],
    summary: "Unix time of the last checkpoint by SAVE or BGSAVE.",
    ..family("lastsave", 1, lastsave)
};
pub(super) static WAITAOF: Command = Command {
    flags: flag::NOSCRIPT,
    categories: category::CONNECTION,
    tips: &["request_policy:all_shards", "response_policy:agg_min"],
    since: "7.2.0",
    summary: "Makes all writes so far survive a loss of power: 1, and 0 replicas.",
    is_long: Some(|shared, _, _| shared.store.is_on_disk()),
    ..Command::new("waitaof", 4, group::GENERIC, Run::General(waitaof))
};

const fn family(name: &'static str, arity: i32, run: fn(&mut Context<'_>, Args<'_>) -> Outcome) -> Command {
    Command {
        flags: flag::ADMIN | flag::NOSCRIPT | flag::NO_ASYNC_LOADING,
        summary: "Refused: a write is in the store when it is answered; Terrace writes no other file.",
        ..Command::new(name, arity, group::SERVER, Run::General(run))
    }
}

const REFUSED: Failure = Failure::Text(
    "ERR a pool has no snapshots or logs: each write is in it, with the durability of INFO's `persistence` section, when it \
     is answered; to copy the data to a file, use `terrace dump`",
);

const REFUSED_ON_DISK: Failure = Failure::Text(
    "ERR the log of a store in a directory is kept short by itself; X.COMPACT gives back the room of what was overwritten \
     or removed",
);

fn save(cx: &mut Context<'_>, _: Args<'_>) -> Outcome {
    make_checkpoint(cx.shared, cx.now_ms)?;
    cx.reply.ok();
    Ok(())
}

/// A worker makes the checkpoint, so it is complete when the client is told that it has begun.
fn bgsave(cx: &mut Context<'_>, _: Args<'_>) -> Outcome {
    make_checkpoint(cx.shared, cx.now_ms)?;
    cx.reply.simple("Background saving started");
    Ok(())
}

fn lastsave(cx: &mut Context<'_>, _: Args<'_>) -> Outcome {
    if !cx.shared.store.is_on_disk() {
        return Err(REFUSED);
    }
    cx.reply.integer((saved_at_ms(cx.shared) / 1000) as i64);
    Ok(())
}

fn waitaof(cx: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let local = parse::integer(args.at(1))?;
    parse::integer(args.at(2))?;
    if !(0..=1).contains(&local) {
        return Err(Failure::Text("ERR value is out of range, must be between 0 and 1"));
    }
    if parse::integer(args.at(3))? < 0 {
        return Err(Failure::Text("ERR timeout is negative"));
    }
    let is_on_disk = cx.shared.store.is_on_disk();
    if local > 0 && !is_on_disk {
        return Err(Failure::Text(
            "ERR WAITAOF cannot be used when numlocal is set but appendonly is disabled.",
        ));
    }
    if is_on_disk {
        cx.shared.store.disk()?.sync()?;
    }
    cx.reply.array(2);
    cx.reply.integer(is_on_disk.into());
    cx.reply.integer(0);
    Ok(())
}

/// When the last checkpoint was made; before the first one, when the server started.
pub(super) fn saved_at_ms(shared: &Shared) -> u64 {
    // ORDER: Relaxed: statistics.
    let saved = shared.stats.saved_at_ms.load(Relaxed);
    if saved > 0 { saved } else { shared.stats.started_at_ms.load(Relaxed) }
}

/// Makes a checkpoint, and removes those that earlier calls have made.
fn make_checkpoint(shared: &Shared, now_ms: u64) -> Outcome {
    let directory = shared.store.path().filter(|_| shared.store.is_on_disk()).ok_or(REFUSED)?;
    let folder = directory.join("checkpoints");
    let failed = |error: std::io::Error| WriteError::Checkpoint(format!("{}: {error}", folder.display()));
    let older = numbered(&folder).unwrap_or_default();
    if !folder.is_dir() {
        fs::create_dir(&folder).map_err(failed)?;
    }
    let number = older.iter().max().map_or(now_ms, |last| now_ms.max(last + 1));
    shared.store.disk()?.checkpoint(folder.join(number.to_string()))?;
    for number in older {
        fs::remove_dir_all(folder.join(number.to_string())).map_err(failed)?;
    }
    // ORDER: Relaxed: statistics.
    shared.stats.saved_at_ms.store(now_ms, Relaxed);
    shared.stats.saves.fetch_add(1, Relaxed);
    Ok(())
}

/// The names in `folder` that are numbers.
fn numbered(folder: &Path) -> std::io::Result<Vec<u64>> {
    let entries = fs::read_dir(folder)?.map_while(Result::ok);
    Ok(entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect())
}
