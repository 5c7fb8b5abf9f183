//! GET key

use terrace_protocol::{Args, Reply};

use super::*;
use crate::keyspace::Found;

pub(super) static GET: Command = Command {
    flags: flag::READONLY | flag::FAST,
    categories: category::STRING,
    keys: &[KeySpec::first(&["RO", "access"])],
    summary: "The value of a key.",
    ..Command::new("get", 2, group::STRING, Run::Read(get))
};

fn get(reply: &mut Reply<'_>, _: Args<'_>, found: Option<Found<'_>>, _: u64) -> Outcome {
    value(reply, found);
    Ok(())
}

/// Replies with the value, or null.
pub(super) fn value(reply: &mut Reply<'_>, found: Option<Found<'_>>) {
    match found {
        Some(found) => reply.bulk(found.value),
        None => reply.null(),
    }
}

/// Replies with a copied value, or null.
pub(super) fn copied(reply: &mut Reply<'_>, value: Option<&[u8]>) {
    match value {
        Some(value) => reply.bulk(value),
        None => reply.null(),
    }
}
