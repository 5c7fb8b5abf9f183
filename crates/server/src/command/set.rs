//! SET key value [NX | XX | IFEQ comparison] [GET] [EX s | PX ms | EXAT s | PXAT ms | KEEPTTL]

use terrace::{Change, Put};
use terrace_protocol::Args;

use super::*;
use crate::{command::expiry::Unit, keyspace::Found};

pub(super) static SET: Command = Command {
    flags: flag::WRITE | flag::DENYOOM,
    categories: category::STRING,
    keys: &[KeySpec {
        notes: "RW and ACCESS due to the optional `GET` argument",
        ..KeySpec::first(&["RW", "access", "update", "variable_flags"])
    }],
    summary: "Sets the value of a key; options set a condition or an expiry.",
    as_put: Some(as_put),
    ..Command::new("set", -3, group::STRING, Run::General(set))
};

/// The condition under which SET writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Condition<'a> {
    Always,
    Absent,
    Present,
    /// IFEQ, from Valkey.
    Equals(&'a [u8]),
}

/// The expiry that SET gives the value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Expiry<'a> {
    Never,
    Keep,
    At(Unit, &'a [u8]),
}

struct Options<'a> {
    condition: Condition<'a>,
    expiry: Expiry<'a>,
    get: bool,
}

fn as_put(args: Args<'_>, now_ms: u64) -> Option<Put<'_>> {
    let expires_at = match args.len() {
        3 => None,
        5 => Some(expiry::positive(args.at(4), Unit::option(args.at(3))?, now_ms, "set").ok()?),
        _ => return None,
    };
    Some(Put { key: args.at(1), value: args.at(2), expires_at })
}

fn set(cx: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let (key, value) = (args.at(1), args.at(2));
    let options = Options::parse(args)?;
    let expires_at = match options.expiry {
        Expiry::At(unit, count) => Some(expiry::positive(count, unit, cx.now_ms, "set")?),
        Expiry::Never | Expiry::Keep => None,
    };
    if options.condition == Condition::Always && !options.get && options.expiry != Expiry::Keep {
        cx.put(key, value, expires_at)?;
        cx.reply.ok();
        return Ok(());
    }
    let (written, old) = cx.modify(key, |found| {
        let old = if options.get { found.map(|found| found.value.to_vec()) } else { None };
        if !options.condition.holds(found) {
            return (Change::Keep, (false, old));
        }
        let kept = if options.expiry == Expiry::Keep {
            found.and_then(|found| found.expires_at)
        } else {
            expires_at
        };
        (Change::Put { value: value.to_vec(), expires_at: kept }, (true, old))
    })?;
    match (options.get, written) {
        (true, _) => get::copied(&mut cx.reply, old.as_deref()),
        (false, true) => cx.reply.ok(),
        (false, false) => cx.reply.null(),
    }
    Ok(())
}

impl Condition<'_> {
    fn holds(self, found: Option<Found<'_>>) -> bool {
        match self {
            Condition::Always => true,
            Condition::Absent => found.is_none(),
            Condition::Present => found.is_some(),
            Condition::Equals(value) => found.is_some_and(|found| found.value == value),
        }
    }
}

impl<'a> Options<'a> {
    fn parse(args: Args<'a>) -> Result<Options<'a>, Failure> {
        let mut options = Options { condition: Condition::Always, expiry: Expiry::Never, get: false };
        let mut at = 3;
        while at < args.len() {
            at += options.parse_one(args.at(at), args.get(at + 1))?;
        }
        Ok(options)
    }

    /// Parses one option; returns how many arguments it has.
    fn parse_one(&mut self, word: &'a [u8], next: Option<&'a [u8]>) -> Result<usize, Failure> {
        let is = |name: &str| word.eq_ignore_ascii_case(name.as_bytes());
        if is("GET") {
            self.get = true;
            Ok(1)
        } else if is("NX") {
            self.condition(Condition::Absent, 1)
        } else if is("XX") {
            self.condition(Condition::Present, 1)
        } else if is("IFEQ") {
            self.condition(Condition::Equals(next.ok_or(Failure::SYNTAX)?), 2)
        } else if is("KEEPTTL") && matches!(self.expiry, Expiry::Never | Expiry::Keep) {
            self.expiry = Expiry::Keep;
            Ok(1)
        } else {
            self.expiry(Unit::option(word).ok_or(Failure::SYNTAX)?, next.ok_or(Failure::SYNTAX)?)
        }
    }

    fn condition(&mut self, condition: Condition<'a>, taken: usize) -> Result<usize, Failure> {
        if self.condition != Condition::Always && self.condition != condition {
            return Err(Failure::SYNTAX);
        }
        self.condition = condition;
        Ok(taken)
    }

    /// As in Redis, a unit may be given twice; the last count applies.
    fn expiry(&mut self, unit: Unit, count: &'a [u8]) -> Result<usize, Failure> {
        match self.expiry {
            Expiry::Keep => return Err(Failure::SYNTAX),
            Expiry::At(other, _) if other != unit => return Err(Failure::SYNTAX),
            Expiry::At(..) | Expiry::Never => self.expiry = Expiry::At(unit, count),
        }
        Ok(2)
    }
}
