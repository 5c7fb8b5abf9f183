//! TYPE key

use terrace_protocol::{Args, Reply};

use super::*;
use crate::keyspace::Found;

pub(super) static TYPE: Command = Command {
    flags: flag::READONLY | flag::FAST | flag::NO_USE,
    categories: category::KEYSPACE,
    keys: &[KeySpec::first(&["RO"])],
    summary: "The type of a key's value: `string`, or `none` if the key does not exist.",
    ..Command::new("type", 2, group::GENERIC, Run::Read(type_of))
};

fn type_of(reply: &mut Reply<'_>, _: Args<'_>, found: Option<Found<'_>>, _: u64) -> Outcome {
    reply.simple(if found.is_some() { "string" } else { "none" });
    Ok(())
}
