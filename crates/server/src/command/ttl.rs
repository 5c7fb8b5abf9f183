//! TTL, PTTL, EXPIRETIME, PEXPIRETIME key

use terrace_protocol::{Args, Reply};

use super::*;
use crate::keyspace::Found;

pub(super) static TTL: Command = Command {
    tips: &["nondeterministic_output"],
    summary: "Seconds until a key expires; -1: never, -2: the key does not exist.",
    ..family("ttl", "1.0.0", ttl)
};

pub(super) static PTTL: Command = Command {
    tips: &["nondeterministic_output"],
    summary: "Milliseconds until a key expires; -1: never, -2: the key does not exist.",
    ..family("pttl", "2.6.0", pttl)
};

pub(super) static EXPIRETIME: Command = Command {
    summary: "The Unix second at which a key expires; -1: never, -2: the key does not exist.",
    ..family("expiretime", "7.0.0", expiretime)
};

pub(super) static PEXPIRETIME: Command = Command {
    summary: "The Unix millisecond at which a key expires; -1: never, -2: the key does not exist.",
    ..family("pexpiretime", "7.0.0", pexpiretime)
};

const fn family(name: &'static str, since: &'static str, run: Read) -> Command {
    Command {
        flags: flag::READONLY | flag::FAST | flag::NO_USE,
        categories: category::KEYSPACE,
        keys: const { &[KeySpec::first(&["RO", "access"])] },
        since,
        ..Command::new(name, 2, group::GENERIC, Run::Read(run))
    }
}

fn ttl(reply: &mut Reply<'_>, _: Args<'_>, found: Option<Found<'_>>, now_ms: u64) -> Outcome {
    answer(reply, found, |at| in_seconds(at.saturating_sub(now_ms)))
}

fn pttl(reply: &mut Reply<'_>, _: Args<'_>, found: Option<Found<'_>>, now_ms: u64) -> Outcome {
    answer(reply, found, |at| at.saturating_sub(now_ms))
}

fn expiretime(reply: &mut Reply<'_>, _: Args<'_>, found: Option<Found<'_>>, _: u64) -> Outcome {
    answer(reply, found, in_seconds)
}

fn pexpiretime(reply: &mut Reply<'_>, _: Args<'_>, found: Option<Found<'_>>, _: u64) -> Outcome {
    answer(reply, found, |at| at)
}

fn answer(reply: &mut Reply<'_>, found: Option<Found<'_>>, time: impl Fn(u64) -> u64) -> Outcome {
    reply.integer(match found.map(|found| found.expires_at) {
        None => -2,
        Some(None) => -1,
        Some(Some(at)) => i64::try_from(time(at)).unwrap_or(i64::MAX),
    });
    Ok(())
}

/// Rounds to the nearest second, as Redis does.
fn in_seconds(ms: u64) -> u64 {
    ms.saturating_add(500) / 1000
}
