//! OBJECT ENCODING | REFCOUNT | IDLETIME | FREQ key

use terrace_protocol::{Args, parse_i64};

use super::*;
use crate::keyspace::Found;

pub(super) static OBJECT: Command = Command {
    since: "2.2.3",
    complexity: "Depends on subcommand.",
    summary: "How values are kept.",
    subcommands: &SUBCOMMANDS,
    ..Command::new("object", -2, group::GENERIC, Run::Container)
};

static SUBCOMMANDS: [Command; 5] = [
    Command {
        summary: "The name Redis has for how it would keep the value.",
        ..own("encoding", "2.2.3", encoding)
    },
    Command { since: "4.0.0", summary: "Refused: Terrace counts no uses.", ..own("freq", "4.0.0", freq) },
    Command { summary: "Refused: Terrace keeps no time of last use.", ..own("idletime", "2.2.3", idletime) },
    Command { summary: "How many share the value: 1.", ..own("refcount", "2.2.3", refcount) },
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
    refuse(cx, args, "ERR Terrace evicts nothing and counts no uses of keys")
}

fn idletime(cx: &mut Context<'_>, args: Args<'_>) -> Outcome {
    refuse(cx, args, "ERR Terrace evicts nothing and keeps no time of last use of keys")
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
