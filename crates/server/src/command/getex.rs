//! GETEX key [EX s | PX ms | EXAT s | PXAT ms | PERSIST]

use terrace::Change;
use terrace_protocol::Args;

use super::*;
use crate::command::expiry::Unit;

pub(super) static GETEX: Command = Command {
    flags: flag::WRITE | flag::FAST,
    categories: category::STRING,
    keys: &[KeySpec {
        notes: "RW and UPDATE because it changes the TTL",
        ..KeySpec::first(&["RW", "access", "update"])
    }],
    since: "6.2.0",
    summary: "The value of a key; may change its expiry.",
    ..Command::new("getex", -2, group::STRING, Run::General(getex))
};

#[derive(Clone, Copy, PartialEq, Eq)]
enum Expiry<'a> {
    AsItIs,
    Persist,
    At(Unit, &'a [u8]),
}

fn getex(cx: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let option = parse_options(args)?;
    let now_ms = cx.now_ms;
    let answer = cx.modify(args.at(1), |found| {
        let Some(found) = found else { return (Change::Keep, Ok(None)) };
        match change(option, found.expires_at, now_ms) {
            Ok(change) => (change, Ok(Some(found.value.to_vec()))),
            Err(failure) => (Change::Keep, Err(failure)),
        }
    })?;
    get::copied(&mut cx.reply, answer?.as_deref());
    Ok(())
}

fn change(option: Expiry<'_>, expires_at: Option<u64>, now_ms: u64) -> Result<Change, Failure> {
    Ok(match option {
        Expiry::AsItIs => Change::Keep,
        Expiry::Persist if expires_at.is_none() => Change::Keep,
        Expiry::Persist => Change::Expire(None),
        Expiry::At(unit, count) => match expiry::positive(count, unit, now_ms, "getex")? {
            past if past <= now_ms => Change::Remove,
            at => Change::Expire(Some(at)),
        },
    })
}

fn parse_options(args: Args<'_>) -> Result<Expiry<'_>, Failure> {
    let (mut option, mut at) = (Expiry::AsItIs, 2);
    while at < args.len() {
        let (next, taken) = if args.is(at, "PERSIST") {
            (Expiry::Persist, 1)
        } else {
            let unit = Unit::option(args.at(at)).ok_or(Failure::SYNTAX)?;
            (Expiry::At(unit, args.get(at + 1).ok_or(Failure::SYNTAX)?), 2)
        };
        let may_follow = match (option, next) {
            (Expiry::AsItIs, _) | (Expiry::Persist, Expiry::Persist) => true,
            (Expiry::At(before, _), Expiry::At(unit, _)) => before == unit,
            _ => false,
        };
        if !may_follow {
            return Err(Failure::SYNTAX);
        }
        option = next;
        at += taken;
    }
    Ok(option)
}
