//! DEL key [key ...], UNLINK key [key ...]
//!
//! Several keys are removed as one atomic change. Only if the pool is too full for the list of such
//! a change, each key is removed by itself, so that a full pool can be emptied.

use terrace_protocol::Args;

use super::*;
use crate::keyspace::Keyspace;

pub(super) static DEL: Command =
    Command { summary: "Removes keys; replies with the number removed.", ..family("del") };

pub(super) static UNLINK: Command = Command {
    flags: flag::WRITE | flag::FAST,
    since: "4.0.0",
    summary: "Removes keys like DEL; Terrace always frees memory in the background.",
    ..family("unlink")
};

const fn family(name: &'static str) -> Command {
    Command {
        flags: flag::WRITE,
        categories: category::KEYSPACE,
        keys: const { &[KeySpec::every(1, &["RM", "delete"])] },
        tips: &["request_policy:multi_shard", "response_policy:agg_sum"],
        is_long: Some(|shared, state, args| args.len() > 2 && may_wait(shared, state, args)),
        complexity: "O(N) where N is the number of keys",
        ..Command::new(name, -2, group::GENERIC, Run::General(del))
    }
}

fn del(cx: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let removed = match args.len() {
        2 => u64::from(cx.keys.remove(args.at(1))?),
        _ => remove_all(cx.keys, args)?,
    };
    cx.reply.integer(i64::try_from(removed).unwrap_or(i64::MAX));
    Ok(())
}

fn remove_all(keys: &mut dyn Keyspace, args: Args<'_>) -> Result<u64, Failure> {
    let named: Vec<&[u8]> = args.from(1).iter().collect();
    match keys.remove_all(&named) {
        Err(failure) if failure.is_full() => {
            named.into_iter().try_fold(0, |removed, key| Ok(removed + u64::from(keys.remove(key)?)))
        }
        done => done,
    }
}
