//! EXPIRE key seconds, PEXPIRE key ms, EXPIREAT key unix-s, PEXPIREAT key unix-ms, each with an
//! optional [NX | XX | GT | LT]

use terrace::Change;
use terrace_protocol::Args;

use super::*;
use crate::command::expiry::Unit;

pub(super) static EXPIRE: Command = Command {
    summary: "Sets the expiry of a key in seconds; 1 if set, 0 if not.",
    ..family("expire", "1.0.0", expire)
};
pub(super) static PEXPIRE: Command = Command {
    summary: "Sets the expiry of a key in milliseconds; 1 if set, 0 if not.",
    ..family("pexpire", "2.6.0", pexpire)
};
pub(super) static EXPIREAT: Command = Command {
    summary: "Sets the expiry of a key to a Unix second; 1 if set, 0 if not.",
    ..family("expireat", "1.2.0", expireat)
};
pub(super) static PEXPIREAT: Command = Command {
    summary: "Sets the expiry of a key to a Unix millisecond; 1 if set, 0 if not.",
    ..family("pexpireat", "2.6.0", pexpireat)
};

const fn family(
    name: &'static str,
    since: &'static str,
    run: fn(&mut Context<'_>, Args<'_>) -> Outcome,
) -> Command {
    Command {
        flags: flag::WRITE | flag::FAST,
        categories: category::KEYSPACE,
        keys: const { &[KeySpec::first(&["RW", "update"])] },
        since,
        ..Command::new(name, -3, group::GENERIC, Run::General(run))
    }
}

fn expire(cx: &mut Context<'_>, args: Args<'_>) -> Outcome {
    run(cx, args, Unit::Seconds, "expire")
}

fn pexpire(cx: &mut Context<'_>, args: Args<'_>) -> Outcome {
    run(cx, args, Unit::Milliseconds, "pexpire")
}

fn expireat(cx: &mut Context<'_>, args: Args<'_>) -> Outcome {
    run(cx, args, Unit::UnixSeconds, "expireat")
}

fn pexpireat(cx: &mut Context<'_>, args: Args<'_>) -> Outcome {
    run(cx, args, Unit::UnixMilliseconds, "pexpireat")
}

fn run(cx: &mut Context<'_>, args: Args<'_>, unit: Unit, name: &str) -> Outcome {
    let options = Options::parse(args)?;
    let at = unit.at(parse::integer(args.at(2))?, cx.now_ms).ok_or_else(|| Failure::expire_time(name))?;
    let now_ms = cx.now_ms;
    let done = cx.modify(args.at(1), |found| match found {
        Some(found) if options.allow(at, found.expires_at) => match u64::try_from(at) {
            Ok(at) if at > now_ms => (Change::Expire(Some(at)), true),
            _ => (Change::Remove, true),
        },
        _ => (Change::Keep, false),
    })?;
    cx.reply.integer(i64::from(done));
    Ok(())
}

#[derive(Default)]
struct Options {
    never_yet: bool,
    already: bool,
    later: bool,
    earlier: bool,
}

impl Options {
    fn parse(args: Args<'_>) -> Result<Options, Failure> {
        let mut options = Options::default();
        for (at, word) in args.iter().enumerate().skip(3) {
            match () {
                () if args.is(at, "NX") => options.never_yet = true,
                () if args.is(at, "XX") => options.already = true,
                () if args.is(at, "GT") => options.later = true,
                () if args.is(at, "LT") => options.earlier = true,
                () => return Err(Failure::of(&[b"ERR Unsupported option ", Failure::printed(word)])),
            }
        }
        if options.never_yet && (options.already || options.later || options.earlier) {
            return Err(Failure::Text("ERR NX and XX, GT or LT options at the same time are not compatible"));
        }
        if options.later && options.earlier {
            return Err(Failure::Text("ERR GT and LT options at the same time are not compatible"));
        }
        Ok(options)
    }

    /// Whether a key's expiry may change from `old` to `new`. No expiry counts as the latest.
    fn allow(&self, new: i64, old: Option<u64>) -> bool {
        let old = old.map(|old| i64::try_from(old).unwrap_or(i64::MAX));
        !(self.never_yet && old.is_some()
            || self.already && old.is_none()
            || self.later && old.is_none_or(|old| new <= old)
            || self.earlier && old.is_some_and(|old| new >= old))
    }
}
