//! CONFIG GET | SET | RESETSTAT | REWRITE

use terrace_protocol::{Args, Glob};

use super::*;
use crate::state::config::SetError;

pub(super) static CONFIG: Command = Command {
    since: "2.0.0",
    complexity: "Depends on subcommand.",
    summary: "The server's settings.",
    subcommands: &SUBCOMMANDS,
    ..Command::new("config", -2, group::SERVER, Run::Container)
};

static SUBCOMMANDS: [Command; 5] = [
    Command {
        complexity: "O(N) where N is the number of settings",
        summary: "The settings whose names match a pattern.",
        ..own("get", -3, "2.0.0", get)
    },
    Command {
        tips: &["request_policy:all_nodes", "response_policy:all_succeeded"],
        summary: "Changes settings.",
        ..own("set", -4, "2.0.0", set)
    },
    Command { summary: "Resets the counters of INFO to zero.", ..own("resetstat", 2, "2.0.0", resetstat) },
    Command { summary: "Refused: Terrace has no configuration file.", ..own("rewrite", 2, "2.8.0", rewrite) },
    help::help(group::SERVER, 0),
];

const fn own(
    name: &'static str,
    arity: i32,
    since: &'static str,
    run: fn(&mut Context<'_>, Args<'_>) -> Outcome,
) -> Command {
    Command {
        flags: flag::ADMIN | flag::NOSCRIPT | flag::LOADING | flag::STALE,
        since,
        ..Command::new(name, arity, group::SERVER, Run::General(run))
    }
}

fn get(cx: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let patterns: Vec<Vec<u8>> = args.from(2).iter().map(<[u8]>::to_ascii_lowercase).collect();
    let mut found = Vec::new();
    let mut wanted =
        |name: &str| patterns.iter().any(|pattern| Glob::new(pattern).matches(name.as_bytes()) == Ok(true));
    cx.shared
        .config
        .for_each(&mut wanted, &mut |name, value| found.push((name.to_string(), value.to_string())));
    cx.reply.map(found.len());
    for (name, value) in found {
        cx.reply.bulk(name.as_bytes());
        cx.reply.bulk(value.as_bytes());
    }
    Ok(())
}

fn set(cx: &mut Context<'_>, args: Args<'_>) -> Outcome {
    if !args.len().is_multiple_of(2) {
        return Err(Failure::SYNTAX);
    }
    let changes: Vec<_> = (2..args.len()).step_by(2).map(|at| (args.at(at), args.at(at + 1))).collect();
    cx.shared.config.set_all(&changes).map_err(|(name, error)| set_error(name, &error))?;
    cx.reply.ok();
    Ok(())
}

fn set_error(name: &[u8], error: &SetError) -> Failure {
    match error {
        SetError::Unknown => Failure::of(&[
            b"ERR Unknown option or number of arguments for CONFIG SET - '",
            Failure::printed(name),
            b"'",
        ]),
        SetError::Immutable => set_failure(name, b"can't set immutable config"),
        SetError::Invalid(why) => set_failure(name, why.as_bytes()),
    }
}

fn set_failure(name: &[u8], why: &[u8]) -> Failure {
    Failure::of(&[
        b"ERR CONFIG SET failed (possibly related to argument '",
        Failure::printed(name),
        b"') - ",
        why,
    ])
}

fn resetstat(cx: &mut Context<'_>, _: Args<'_>) -> Outcome {
    cx.state.publish(cx.now_ms);
    let store = &cx.shared.store;
    cx.shared.stats.reset(&store.stats(), store.evictor().evicted());
    cx.shared.clients.reset_tally();
    cx.reply.ok();
    Ok(())
}

fn rewrite(_: &mut Context<'_>, _: Args<'_>) -> Outcome {
    Err(Failure::Text("ERR The server is running without a config file"))
}
