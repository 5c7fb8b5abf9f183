//! OBJECT ENCODING | REFCOUNT | IDLETIME | FREQ key

use terrace_protocol::{Args, parse_i64};

use super::*;
use crate::keyspace::Found;

pub(super) static OBJECT: Command = Command {
    since: "2.2.3",
    complexity: "Depends on subcommand.",
    summary: "Information about how values are stored.",
    subcommands: &SUBCOMMANDS,
    ..Command::new("object", -2, group::GENERIC, Run::Container)
};

static SUBCOMMANDS: [Command; 5] = [
    Command {
        summary: "The encoding that Redis would use for the value.",
        ..own("encoding", "2.2.3", encoding)
    },
    Command {
        since: "4.0.0",
        summary: "Refused: Terrace does not count uses.",
        ..own("freq", "4.0.0", freq)
    },
    Command { summary: "Refused: Terrace keeps no time of last use.", ..own("idletime", "2.2.3", idletime) },
    Command {
        summary: "The number of references to the value: always 1.",
        ..own("refcount", "2.2.3", refcount)
    },
    help::help(group::GENERIC, category::KEYSPACE),
];

const fn own(
    name: &'static str,
    since: &'static str,
    run: fn(&mut Context<'_>, Args<'_>) -> Outcome,
) -> Command {
    Command {
        flags: flag::READONLY,
        categories: category::KEYSPACE,
        keys: const { &[KeySpec::at(2, &["RO"])] },
        tips: &["nondeterministic_output"],
        since,
        ..Command::new(name, 3, group::GENERIC, Run::General(run))
    }
}

/// Redis stores values up to this length inside their object, longer ones separately.
const EMBEDDED_BYTES_MAX: usize = 44;

fn encoding(cx: &mut Context<'_>, args: Args<'_>) -> Outcome {
    // Redis decides at the time of a write, and keeps `raw` after APPEND and SETRANGE. Terrace
    // stores only bytes, and decides by them.
    cx.read(args.at(2), |reply, found| match found.map(|found| found.value) {
        None => reply.null(),
        Some(value) if parse_i64(value).is_some() => reply.bulk(b"int"),
        Some(value) if value.len() <= EMBEDDED_BYTES_MAX => reply.bulk(b"embstr"),
        Some(_) => reply.bulk(b"raw"),
    })
}

fn refcount(cx: &mut Context<'_>, args: Args<'_>) -> Outcome {
    cx.read(args.at(2), |reply, found| match found {
        Some(_) => reply.integer(1),
        None => reply.null(),
    })
}

fn freq(cx: &mut Context<'_>, args: Args<'_>) -> Outcome {
    refuse(cx, args, "ERR Terrace evicts no keys and does not count their uses")
}

fn idletime(cx: &mut Context<'_>, args: Args<'_>) -> Outcome {
    refuse(cx, args, "ERR Terrace evicts no keys and keeps no time of their last use")
}

fn refuse(cx: &mut Context<'_>, args: Args<'_>, why: &'static str) -> Outcome {
    cx.read(args.at(2), |reply, found: Option<Found<'_>>| match found {
        Some(_) => Err(Failure::Text(why)),
        None => {
            reply.null();
            Ok(())
        }
    })?
}
