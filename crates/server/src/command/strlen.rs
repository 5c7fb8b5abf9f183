//! STRLEN key

use terrace_protocol::{Args, Reply};

use super::*;
use crate::keyspace::Found;

pub(super) static STRLEN: Command = Command {
    flags: flag::READONLY | flag::FAST,
    categories: category::STRING,
    keys: &[KeySpec::first(&["RO"])],
    since: "2.2.0",
    summary: "The length of a value in bytes; 0 if the key does not exist.",
    ..Command::new("strlen", 2, group::STRING, Run::Read(strlen))
};

fn strlen(reply: &mut Reply<'_>, _: Args<'_>, found: Option<Found<'_>>, _: u64) -> Outcome {
    reply.count(found.map_or(0, |found| found.value.len()));
    Ok(())
}
