//! INCR key, DECR key, INCRBY key n, DECRBY key n

use terrace::Change;
use terrace_protocol::{Args, parse_i64};

use super::*;

pub(super) static INCR: Command = Command { summary: "Adds 1 to an integer.", ..family("incr", 2, incr) };
pub(super) static DECR: Command =
    Command { summary: "Subtracts 1 from an integer.", ..family("decr", 2, decr) };
pub(super) static INCRBY: Command = Command { summary: "Adds to an integer.", ..family("incrby", 3, incrby) };
pub(super) static DECRBY: Command =
    Command { summary: "Subtracts from an integer.", ..family("decrby", 3, decrby) };

const fn family(name: &'static str, arity: i32, run: fn(&mut Context<'_>, Args<'_>) -> Outcome) -> Command {
    Command {
        flags: flag::WRITE | flag::DENYOOM | flag::FAST,
        categories: category::STRING,
        keys: const { &[KeySpec::first(&["RW", "access", "update"])] },
        ..Command::new(name, arity, group::STRING, Run::General(run))
    }
}

fn incr(cx: &mut Context<'_>, args: Args<'_>) -> Outcome {
    add(cx, args.at(1), 1)
}

fn decr(cx: &mut Context<'_>, args: Args<'_>) -> Outcome {
    add(cx, args.at(1), -1)
}

fn incrby(cx: &mut Context<'_>, args: Args<'_>) -> Outcome {
    add(cx, args.at(1), parse::integer(args.at(2))?)
}

fn decrby(cx: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let by = parse::integer(args.at(2))?;
    add(cx, args.at(1), by.checked_neg().ok_or(Failure::Text("ERR decrement would overflow"))?)
}

/// Adds to the integer at `key`, 0 if the key is absent. Keeps the expiry.
fn add(cx: &mut Context<'_>, key: &[u8], by: i64) -> Outcome {
    let sum = cx.modify(key, |found| {
        let Some(old) = found.map_or(Some(0), |found| parse_i64(found.value)) else {
            return (Change::Keep, Err(Failure::NOT_AN_INTEGER));
        };
        let Some(sum) = old.checked_add(by) else {
            return (Change::Keep, Err(Failure::Text("ERR increment or decrement would overflow")));
        };
        let value = itoa::Buffer::new().format(sum).as_bytes().to_vec();
        (Change::Put { value, expires_at: found.and_then(|found| found.expires_at) }, Ok(sum))
    })??;
    cx.reply.integer(sum);
    Ok(())
}
