//! SETEX key seconds value, PSETEX key milliseconds value

use terrace::Put;
use terrace_protocol::Args;

use super::*;
use crate::command::expiry::Unit;

pub(super) static SETEX: Command = Command {
    since: "2.0.0",
    as_put: Some(setex_as_put),
    summary: "Sets a value and its expiry in seconds.",
    ..family("setex", setex)
};

pub(super) static PSETEX: Command = Command {
    since: "2.6.0",
    as_put: Some(psetex_as_put),
    summary: "Sets a value and its expiry in milliseconds.",
    ..family("psetex", psetex)
};

const fn family(name: &'static str, run: fn(&mut Context<'_>, Args<'_>) -> Outcome) -> Command {
    Command {
        flags: flag::WRITE | flag::DENYOOM,
        categories: category::STRING,
        keys: const { &[KeySpec::first(&["OW", "update"])] },
        ..Command::new(name, 4, group::STRING, Run::General(run))
    }
}

fn setex(cx: &mut Context<'_>, args: Args<'_>) -> Outcome {
    run(cx, args, Unit::Seconds, "setex")
}

fn psetex(cx: &mut Context<'_>, args: Args<'_>) -> Outcome {
    run(cx, args, Unit::Milliseconds, "psetex")
}

fn setex_as_put(args: Args<'_>, now_ms: u64) -> Option<Put<'_>> {
    put(args, Unit::Seconds, now_ms, "setex").ok()
}

fn psetex_as_put(args: Args<'_>, now_ms: u64) -> Option<Put<'_>> {
    put(args, Unit::Milliseconds, now_ms, "psetex").ok()
}

fn run(cx: &mut Context<'_>, args: Args<'_>, unit: Unit, name: &str) -> Outcome {
    cx.keys.put(put(args, unit, cx.now_ms, name)?)?;
    cx.reply.ok();
    Ok(())
}

fn put<'a>(args: Args<'a>, unit: Unit, now_ms: u64, name: &str) -> Result<Put<'a>, Failure> {
    let expires_at = Some(expiry::positive(args.at(2), unit, now_ms, name)?);
    Ok(Put { key: args.at(1), value: args.at(3), expires_at })
}
