//! SCRIPT LOAD | EXISTS | FLUSH | KILL | DEBUG, and what there is of FUNCTION

use terrace_protocol::Args;

use super::*;
use crate::state::{clock::unix_ms, config::Key};

pub(super) static SCRIPT: Command = Command {
    since: "2.6.0",
    complexity: "Depends on subcommand.",
    summary: "Commands about scripts.",
    subcommands: &SUBCOMMANDS,
    ..Command::new("script", -2, group::SCRIPTING, Run::Container)
};

static SUBCOMMANDS: [Command; 6] = [
    Command { since: "3.2.0", summary: "Refused: there is no debugger.", ..own("debug", 3, 0, debug) },
    Command {
        complexity: "O(N) where N is the number of names",
        tips: &["request_policy:all_shards", "response_policy:agg_logical_and"],
        summary: "Whether the server knows the scripts with these names.",
        ..own("exists", -3, 0, exists)
    },
    Command {
        tips: &["request_policy:all_nodes", "response_policy:all_succeeded"],
        summary: "Forgets all scripts; those that run go on.",
        ..own("flush", -2, 0, flush)
    },
    help::help(group::SCRIPTING, category::SCRIPTING),
    Command {
        tips: &["request_policy:all_shards", "response_policy:one_succeeded"],
        summary: "Ends the scripts that run for longer than busy-reply-threshold, or else the longest one.",
        ..own("kill", 2, flag::ALLOW_BUSY, kill)
    },
    Command {
        complexity: "O(N) where N is the length of the text",
        tips: &["request_policy:all_nodes", "response_policy:all_succeeded"],
        summary: "Keeps a script, and replies its name.",
        ..own("load", 3, flag::STALE, load)
    },
];

pub(super) static FUNCTION: Command = Command {
    since: "7.0.0",
    complexity: "Depends on subcommand.",
    summary: "Commands about functions, of which there are none.",
    subcommands: &OF_FUNCTIONS,
    ..Command::new("function", -2, group::SCRIPTING, Run::Container)
};

static OF_FUNCTIONS: [Command; 9] = [
    Command { tips: ALL, ..refused("delete", 3, flag::WRITE) },
    refused("dump", 2, 0),
    Command {
        tips: ALL,
        summary: "Does nothing: there are no functions.",
        ..of_function("flush", -2, flag::WRITE, flush_functions)
    },
    help::help(group::SCRIPTING, category::SCRIPTING),
    Command {
        tips: &["request_policy:all_shards", "response_policy:one_succeeded"],
        summary: "Finds no function to end.",
        ..of_function("kill", 2, flag::ALLOW_BUSY, kill_function)
    },
    Command {
        tips: &["nondeterministic_output_order"],
        summary: "An empty list.",
        ..of_function("list", -2, 0, list_functions)
    },
    Command { tips: ALL, ..refused("load", -3, flag::WRITE | flag::DENYOOM) },
    Command { tips: ALL, ..refused("restore", -3, flag::WRITE | flag::DENYOOM) },
    Command {
        tips: &["nondeterministic_output", "request_policy:all_shards", "response_policy:special"],
        ..refused("stats", 2, flag::ALLOW_BUSY)
    },
];

const ALL: &[&str] = &["request_policy:all_shards", "response_policy:all_succeeded"];

const fn refused(name: &'static str, arity: i32, more: u32) -> Command {
    Command { summary: "Refused: there are no functions.", ..of_function(name, arity, more, no_functions) }
}

const fn own(
    name: &'static str,
    arity: i32,
    more: u32,
    run: fn(&mut Context<'_>, Args<'_>) -> Outcome,
) -> Command {
    Command {
        flags: flag::NOSCRIPT | more,
        categories: category::SCRIPTING,
        since: "2.6.0",
        ..Command::new(name, arity, group::SCRIPTING, Run::General(run))
    }
}

const fn of_function(
    name: &'static str,
    arity: i32,
    more: u32,
    run: fn(&mut Context<'_>, Args<'_>) -> Outcome,
) -> Command {
    Command { since: "7.0.0", ..own(name, arity, more, run) }
}

fn load(cx: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let script = eval::load(cx, args.at(2), true)?;
    cx.reply.bulk(script.sha.as_bytes());
    Ok(())
}

fn exists(cx: &mut Context<'_>, args: Args<'_>) -> Outcome {
    cx.reply.array(args.len() - 2);
    for sha in args.from(2) {
        let sha = String::from_utf8_lossy(sha).to_ascii_lowercase();
        cx.reply.integer(i64::from(cx.shared.scripts.get(&sha).is_some()));
    }
    Ok(())
}

/// Whether the arguments end, or end after SYNC or ASYNC.
fn is_flush(args: Args<'_>) -> bool {
    args.len() == 2 || args.len() == 3 && (args.is(2, "SYNC") || args.is(2, "ASYNC"))
}

fn flush(cx: &mut Context<'_>, args: Args<'_>) -> Outcome {
    if !is_flush(args) {
        return Err(Failure::Text("ERR SCRIPT FLUSH only support SYNC|ASYNC option"));
    }
    cx.shared.scripts.clear();
    cx.reply.ok();
    Ok(())
}

fn kill(cx: &mut Context<'_>, _: Args<'_>) -> Outcome {
    // A script is a transaction, so it can be ended at any time before it commits.
    if !cx.shared.scripts.kill(unix_ms(), cx.shared.config.number(Key::BusyReplyThreshold)) {
        return Err(NOT_BUSY);
    }
    cx.reply.ok();
    Ok(())
}

const NOT_BUSY: Failure = Failure::Text("NOTBUSY No scripts in execution right now.");

fn debug(cx: &mut Context<'_>, args: Args<'_>) -> Outcome {
    match () {
        () if args.is(2, "NO") => cx.reply.ok(),
        () if args.is(2, "YES") || args.is(2, "SYNC") => {
            return Err(Failure::Text("ERR Terrace has no debugger of scripts: use redis.log"));
        }
        () => return Err(Failure::Text("ERR Use SCRIPT DEBUG YES/SYNC/NO")),
    }
    Ok(())
}

fn flush_functions(cx: &mut Context<'_>, args: Args<'_>) -> Outcome {
    if !is_flush(args) {
        return Err(Failure::Text("ERR FUNCTION FLUSH only supports SYNC|ASYNC option"));
    }
    cx.reply.ok();
    Ok(())
}

fn kill_function(_: &mut Context<'_>, _: Args<'_>) -> Outcome {
    Err(NOT_BUSY)
}

fn list_functions(cx: &mut Context<'_>, _: Args<'_>) -> Outcome {
    cx.reply.array(0);
    Ok(())
}

fn no_functions(_: &mut Context<'_>, _: Args<'_>) -> Outcome {
    Err(Failure::Text("ERR Terrace has no functions: use scripts (EVAL, SCRIPT LOAD and EVALSHA)"))
}
