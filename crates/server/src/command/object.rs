//! OBJECT ENCODING | REFCOUNT | IDLETIME | FREQ key

use terrace::KeyUse;
use terrace_protocol::{Args, parse_i64};

use super::*;
use crate::state::{config::Key, encodings::EMBEDDED_BYTES_MAX};

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
        summary: "How often a key is used, from 0 to 255 on a logarithmic scale, under a policy by frequency.",
        ..own("freq", "4.0.0", freq)
    },
    Command {
        summary: "Seconds since the last use of a key, under a policy by recency.",
        ..own("idletime", "2.2.3", idletime)
    },
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
        flags: flag::READONLY | flag::NO_USE,
        categories: category::KEYSPACE,
        keys: const { &[KeySpec::at(2, &["RO"])] },
        tips: &["nondeterministic_output"],
        since,
        ..Command::new(name, 3, group::GENERIC, Run::General(run))
    }
}

fn encoding(cx: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let stored = cx.state.place().encode(args.at(2));
    let remembered = cx.shared.encodings.of(&cx.shared.store, &stored);
    cx.read(args.at(2), |reply, found| match found.map(|found| found.value) {
        None => reply.null(),
        Some(value) => reply.bulk(remembered.unwrap_or(match value {
            number if parse_i64(number).is_some() => b"int",
            short if short.len() <= EMBEDDED_BYTES_MAX => b"embstr",
            _ => b"raw",
        })),
    })
}

fn refcount(cx: &mut Context<'_>, args: Args<'_>) -> Outcome {
    cx.read(args.at(2), |reply, found| match found {
        Some(_) => reply.integer(1),
        None => reply.null(),
    })
}

fn freq(cx: &mut Context<'_>, args: Args<'_>) -> Outcome {
    usage(
        cx,
        args,
        |used| used.frequency.map(u64::from),
        "ERR An LFU maxmemory policy is not selected, access \
        frequency not tracked. Please note that when switching between policies at runtime LRU and LFU data will take \
        some time to adjust.",
    )
}

fn idletime(cx: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let why = if cx.shared.config.text(Key::MaxMemoryPolicy).ends_with("-lfu") {
        "ERR An LFU maxmemory policy is selected, idle time not tracked. Please note that when switching between \
         policies at runtime LRU and LFU data will take some time to adjust."
    } else {
        "ERR An LRU maxmemory policy is not selected, idle time not tracked: set maxmemory-policy to allkeys-lru or \
         volatile-lru"
    };
    usage(cx, args, |used| used.idle_ms.map(|ms| (ms + 500) / 1000), why)
}

/// The use of a key that the present transaction has added.
fn first_use(cx: &Context<'_>) -> KeyUse {
    let policy = cx.shared.config.text(Key::MaxMemoryPolicy);
    KeyUse {
        idle_ms: policy.ends_with("-lru").then_some(0),
        frequency: policy.ends_with("-lfu").then_some(KeyUse::FIRST_FREQUENCY),
    }
}

/// Replies with what is known of the use of a key.
fn usage(
    cx: &mut Context<'_>,
    args: Args<'_>,
    figure: fn(KeyUse) -> Option<u64>,
    why: &'static str,
) -> Outcome {
    let stored = cx.state.place().encode(args.at(2));
    let used = match cx.exists(args.at(2))? {
        true => cx.shared.store.evictor().key_use(&stored)?.or_else(|| Some(first_use(cx))),
        false => None,
    };
    match used {
        None => cx.reply.null(),
        Some(used) => match figure(used) {
            Some(figure) => cx.reply.integer(i64::try_from(figure).unwrap_or(i64::MAX)),
            None => return Err(Failure::Text(why)),
        },
    }
    Ok(())
}
