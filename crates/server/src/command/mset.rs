//! MSET key value [key value ...], MSETNX key value [key value ...]

use terrace::Put;
use terrace_protocol::Args;

use super::*;
use crate::keyspace::Keyspace;

pub(super) static MSET: Command = Command {
    tips: &["request_policy:multi_shard", "response_policy:all_succeeded"],
    keys: &[KeySpec::every(2, &["OW", "update"])],
    summary: "Writes several values, all of them or none.",
    ..family("mset", mset)
};

pub(super) static MSETNX: Command = Command {
    tips: &["request_policy:multi_shard", "response_policy:agg_min"],
    keys: &[KeySpec::every(2, &["OW", "insert"])],
    summary: "Writes several values if none of the keys is there; 1 if it did, 0 if not.",
    ..family("msetnx", msetnx)
};

const fn family(name: &'static str, run: fn(&mut Context<'_>, Args<'_>) -> Outcome) -> Command {
    Command {
        flags: flag::WRITE | flag::DENYOOM,
        categories: category::STRING,
        since: "1.0.1",
        complexity: "O(N) where N is the number of keys",
        ..Command::new(name, -3, group::STRING, Run::General(run))
    }
}

fn mset(cx: &mut Context<'_>, args: Args<'_>) -> Outcome {
    check(args, "mset")?;
    cx.keys.atomically(&mut |keys| put_all(keys, args))?;
    cx.reply.ok();
    Ok(())
}

fn msetnx(cx: &mut Context<'_>, args: Args<'_>) -> Outcome {
    check(args, "msetnx")?;
    let mut written = false;
    cx.keys.atomically(&mut |keys| {
        let mut taken = false;
        for key in args.from(1).iter().step_by(2) {
            keys.read(key, &mut |found| taken |= found.is_some())?;
        }
        written = !taken;
        if taken { Ok(()) } else { put_all(keys, args) }
    })?;
    cx.reply.integer(i64::from(written));
    Ok(())
}

fn check(args: Args<'_>, name: &str) -> Outcome {
    if args.len().is_multiple_of(2) {
        return Err(Failure::arity(name));
    }
    (1..args.len()).step_by(2).try_for_each(|at| {
        parse::check_key(args.at(at))?;
        parse::check_value(args.at(at + 1))
    })
}

fn put_all(keys: &mut dyn Keyspace, args: Args<'_>) -> Outcome {
    (1..args.len())
        .step_by(2)
        .try_for_each(|at| keys.put(Put { key: args.at(at), value: args.at(at + 1), expires_at: None }))
}
