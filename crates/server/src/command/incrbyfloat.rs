//! INCRBYFLOAT key increment

use terrace::Change;
use terrace_protocol::{Args, Extended};

use super::*;

pub(super) static INCRBYFLOAT: Command = Command {
    flags: flag::WRITE | flag::DENYOOM | flag::FAST,
    categories: category::STRING,
    keys: &[KeySpec::first(&["RW", "access", "update"])],
    since: "2.6.0",
    summary: "Adds to a floating-point number.",
    ..Command::new("incrbyfloat", 3, group::STRING, Run::General(incrbyfloat))
};

const NOT_FINITE: Failure = Failure::Text("ERR increment would produce NaN or Infinity");

fn incrbyfloat(cx: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let increment = args.at(2);
    let text =
        cx.modify(args.at(1), |found| match sum(found.map_or(b"0", |found| found.value), increment) {
            Ok(text) => {
                let value = text.clone().into_bytes();
                (Change::Put { value, expires_at: found.and_then(|found| found.expires_at) }, Ok(text))
            }
            Err(failure) => (Change::Keep, Err(failure)),
        })??;
    cx.remember_encoding(args.at(1), text.len(), b"embstr");
    cx.reply.bulk(text.as_bytes());
    Ok(())
}

fn sum(old: &[u8], increment: &[u8]) -> Result<String, Failure> {
    let old = Extended::parse(old).ok_or(Failure::NOT_A_FLOAT)?;
    let increment = Extended::parse(increment).ok_or(Failure::NOT_A_FLOAT)?;
    let sum = old.checked_add(increment).filter(|sum| sum.is_finite()).ok_or(NOT_FINITE)?;
    Ok(sum.format())
}
