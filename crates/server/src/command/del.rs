//! DEL key [key ...], UNLINK key [key ...]
//!
//! Several keys are removed as one. Only in a pool that is so full that there is no room to write down which, each is removed by itself, so that it can be
//! emptied.

use terrace_protocol::Args;

use super::*;
use crate::keyspace::Keyspace;

pub(super) static DEL: Command =
    Command { summary: "Removes keys; answers with how many were there.", ..family("del") };

pub(super) static UNLINK: Command = Command {
    flags: flag::WRITE | flag::FAST,
    since: "4.0.0",
    summary: "Removes keys, as DEL: memory is always freed in the background here.",
    ..family("unlink")
};

const fn family(name: &'static str) -> Command {
    Command {
        flags: flag::WRITE,
        categories: category::KEYSPACE,
        keys: const { &[KeySpec::every(1, &["RM", "delete"])] },
        tips: &["request_policy:multi_shard", "response_policy:agg_sum"],
        complexity: "O(N) where N is the number of keys",
        ..Command::new(name, -2, group::GENERIC, Run::General(del))
    }
}

fn del(cx: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let mut removed = 0;
    let done = match args.len() {
        2 => remove_all(cx.keys, args, &mut removed),
        _ => cx.keys.atomically(&mut |keys| remove_all(keys, args, &mut removed)),
    };
    match done {
        Err(failure) if failure.is_full() => remove_all(cx.keys, args, &mut removed)?,
        done => done?,
    }
    cx.reply.integer(removed);
    Ok(())
}

fn remove_all(keys: &mut dyn Keyspace, args: Args<'_>, removed: &mut i64) -> Outcome {
    *removed = 0;
    for key in args.from(1) {
        *removed += i64::from(keys.remove(key)?);
    }
    Ok(())
}
