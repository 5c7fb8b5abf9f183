//! COMMAND, COMMAND COUNT | DOCS | GETKEYS | GETKEYSANDFLAGS | INFO | LIST

use terrace_protocol::{Args, Glob, Reply};

use super::*;

pub(super) static COMMAND: Command = Command {
    flags: flag::LOADING | flag::STALE,
    categories: category::CONNECTION,
    tips: &["nondeterministic_output_order"],
    since: "2.8.13",
    complexity: "O(N) where N is the number of commands",
    summary: "Describes all commands.",
    subcommands: &SUBCOMMANDS,
    ..Command::new("command", -1, group::SERVER, Run::General(all))
};

static SUBCOMMANDS: [Command; 7] = [
    Command { summary: "The number of commands.", ..own("count", 2, "2.8.13", count) },
    Command {
        tips: &["nondeterministic_output_order"],
        summary: "Documentation of commands.",
        ..own("docs", -2, "7.0.0", docs)
    },
    Command {
        complexity: "O(N) where N is the number of arguments",
        summary: "The keys among the arguments of a command.",
        ..own("getkeys", -4, "2.8.13", getkeys)
    },
    Command {
        complexity: "O(N) where N is the number of arguments",
        summary: "The keys among the arguments of a command, and how it uses them.",
        ..own("getkeysandflags", -4, "7.0.0", getkeysandflags)
    },
    Command {
        tips: &["nondeterministic_output_order"],
        summary: "Arity, flags and key positions of commands.",
        ..own("info", -2, "2.8.13", info)
    },
    Command {
        tips: &["nondeterministic_output_order"],
        summary: "The names of all commands, or of those that match a filter.",
        ..own("list", -2, "7.0.0", list)
    },
    help::help(group::SERVER, category::CONNECTION),
];

const fn own(
    name: &'static str,
    arity: i32,
    since: &'static str,
    run: fn(&mut Context<'_>, Args<'_>) -> Outcome,
) -> Command {
    Command {
        flags: flag::LOADING | flag::STALE,
        categories: category::CONNECTION,
        since,
        complexity: "O(N) where N is the number of commands",
        ..Command::new(name, arity, group::SERVER, Run::General(run))
    }
}

fn all(cx: &mut Context<'_>, _: Args<'_>) -> Outcome {
    cx.reply.array(table::TABLE.len());
    table::TABLE.iter().for_each(|command| describe(&mut cx.reply, command, None));
    Ok(())
}

fn count(cx: &mut Context<'_>, _: Args<'_>) -> Outcome {
    cx.reply.count(table::TABLE.len());
    Ok(())
}

fn info(cx: &mut Context<'_>, args: Args<'_>) -> Outcome {
    if args.len() == 2 {
        return all(cx, args);
    }
    let start = cx.reply.mark();
    cx.reply.array(args.len() - 2);
    for name in args.from(2) {
        check_length(cx, start)?;
        match find(name) {
            Some((command, container)) => describe(&mut cx.reply, command, container),
            None => cx.reply.null(),
        }
    }
    Ok(())
}

/// Limits the reply: the descriptions of containers are long, and a client may name one many times.
fn check_length(cx: &Context<'_>, start: usize) -> Outcome {
    let limit = cx.state.reply_limit;
    if cx.reply.mark() - start > limit.bytes {
        return Err(limit.failure("the reply is", "request fewer commands at a time"));
    }
    Ok(())
}

/// The command with this name, or the subcommand (`client|list`) and its container.
fn find(name: &[u8]) -> Option<(&'static Command, Option<&'static Command>)> {
    let Some(bar) = name.iter().position(|byte| *byte == b'|') else {
        return Some((table::lookup(name)?, None));
    };
    let container = table::lookup(&name[..bar])?;
    Some((container.subcommand(&name[bar + 1..])?, Some(container)))
}

fn full_name(command: &Command, container: Option<&Command>) -> String {
    container
        .map_or_else(|| command.name.to_string(), |container| format!("{}|{}", container.name, command.name))
}

fn describe(reply: &mut Reply<'_>, command: &Command, container: Option<&Command>) {
    let (first, last, step) = command.key_range();
    reply.array(10);
    reply.bulk(full_name(command, container).as_bytes());
    reply.integer(i64::from(command.arity));
    statuses(reply, &command.flag_names().collect::<Vec<_>>());
    [first, last, step].into_iter().for_each(|number| reply.integer(number));
    statuses(reply, &command.category_names().collect::<Vec<_>>());
    reply.set(command.tips.len());
    command.tips.iter().for_each(|tip| reply.bulk(tip.as_bytes()));
    reply.set(command.keys.len());
    command.keys.iter().for_each(|spec| key_spec(reply, spec));
    reply.set(command.subcommands.len());
    command.subcommands.iter().for_each(|sub| describe(reply, sub, Some(command)));
}

fn statuses(reply: &mut Reply<'_>, names: &[&str]) {
    reply.set(names.len());
    names.iter().for_each(|name| reply.simple(name));
}

fn key_spec(reply: &mut Reply<'_>, spec: &KeySpec) {
    let has_notes = !spec.notes.is_empty();
    reply.map(3 + usize::from(has_notes));
    if has_notes {
        reply.bulk(b"notes");
        reply.bulk(spec.notes.as_bytes());
    }
    reply.bulk(b"flags");
    statuses(reply, spec.access);
    reply.bulk(b"begin_search");
    typed(reply, "index", &[("index", spec.first)]);
    reply.bulk(b"find_keys");
    if spec.is_counted {
        return typed(reply, "keynum", &[("keynumidx", 0), ("firstkey", 1), ("keystep", spec.step)]);
    }
    typed(reply, "range", &[("lastkey", spec.last), ("keystep", spec.step), ("limit", 0)]);
}

fn typed(reply: &mut Reply<'_>, kind: &str, spec: &[(&str, i64)]) {
    reply.map(2);
    [b"type", kind.as_bytes(), b"spec"].into_iter().for_each(|text| reply.bulk(text));
    reply.map(spec.len());
    for (name, value) in spec {
        reply.bulk(name.as_bytes());
        reply.integer(*value);
    }
}

fn docs(cx: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let wanted: Vec<_> = if args.len() == 2 {
        table::TABLE.iter().map(|command| (*command, None)).collect()
    } else {
        args.from(2).iter().filter_map(find).collect()
    };
    cx.reply.map(wanted.len());
    let start = cx.reply.mark();
    for (command, container) in wanted {
        check_length(cx, start)?;
        document(&mut cx.reply, command, container);
    }
    Ok(())
}

fn document(reply: &mut Reply<'_>, command: &Command, container: Option<&Command>) {
    let fields = [
        ("summary", command.summary),
        ("since", command.since),
        ("group", command.group),
        ("complexity", command.complexity),
    ];
    let has_subcommands = !command.subcommands.is_empty();
    let name = full_name(command, container);
    let arguments = syntax::arguments(&name);
    reply.bulk(name.as_bytes());
    reply.map(fields.len() + usize::from(!arguments.is_empty()) + usize::from(has_subcommands));
    for (name, value) in fields {
        reply.bulk(name.as_bytes());
        reply.bulk(value.as_bytes());
    }
    if !arguments.is_empty() {
        reply.bulk(b"arguments");
        let most = i64::try_from(command.keys.len()).unwrap_or(i64::MAX);
        syntax::describe(reply, &arguments, &mut 0, most);
    }
    if has_subcommands {
        reply.bulk(b"subcommands");
        reply.map(command.subcommands.len());
        command.subcommands.iter().for_each(|sub| document(reply, sub, Some(command)));
    }
}

fn getkeys(cx: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let keys = keys_of(args.from(2))?;
    cx.reply.array(keys.len());
    keys.iter().for_each(|(key, _)| cx.reply.bulk(key));
    Ok(())
}

fn getkeysandflags(cx: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let keys = keys_of(args.from(2))?;
    cx.reply.array(keys.len());
    for (key, access) in keys {
        cx.reply.array(2);
        cx.reply.bulk(key);
        statuses(&mut cx.reply, access);
    }
    Ok(())
}

/// A key, and how a command uses it.
type KeyUse<'a> = (&'a [u8], &'static [&'static str]);

/// The keys among the arguments of a command, and how the command uses each. `args` begins with the
/// command's name.
fn keys_of(args: Args<'_>) -> Result<Vec<KeyUse<'_>>, Failure> {
    let container = table::lookup(args.name());
    let sub = container.filter(|command| !command.subcommands.is_empty());
    let command = match sub {
        Some(container) => container.subcommand(args.at(1)),
        None => container,
    };
    let command = command.ok_or(Failure::Text("ERR Invalid command specified"))?;
    if command.keys.is_empty() {
        return Err(Failure::Text("ERR The command has no key arguments"));
    }
    if !command.accepts(args.len()) {
        return Err(Failure::Text("ERR Invalid number of arguments specified for command"));
    }
    let mut keys = Vec::new();
    for spec in command.keys {
        let access = match command.name {
            // How SET uses its key depends on the option GET.
            "set" if (3..args.len()).any(|at| args.is(at, "GET")) => &["RW", "access", "update"],
            "set" => &["OW", "update"][..],
            _ => spec.access,
        };
        keys.extend(spec.places(args).map(|at| (args.at(at), access)));
    }
    Ok(keys)
}

fn list(cx: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let mut names: Vec<String> = Vec::new();
    for command in table::TABLE {
        let subs = command.subcommands.iter().map(|sub| (sub, Some(command)));
        for (command, container) in std::iter::once((command, None)).chain(subs) {
            let name = full_name(command, container);
            if is_listed(args, command, &name)? {
                names.push(name);
            }
        }
    }
    cx.reply.set(names.len());
    names.iter().for_each(|name| cx.reply.bulk(name.as_bytes()));
    Ok(())
}

/// Whether the arguments of COMMAND LIST select this command.
fn is_listed(args: Args<'_>, command: &Command, name: &str) -> Result<bool, Failure> {
    let wanted = args.at(4);
    match () {
        () if args.len() == 2 => Ok(true),
        () if args.len() != 5 || !args.is(2, "FILTERBY") => Err(Failure::SYNTAX),
        // There are no modules.
        () if args.is(3, "MODULE") => Ok(false),
        () if args.is(3, "ACLCAT") => {
            Ok(command.category_names().any(|name| name.as_bytes()[1..].eq_ignore_ascii_case(wanted)))
        }
        () if args.is(3, "PATTERN") => {
            Glob::new(&wanted.to_ascii_lowercase()).matches(name.as_bytes()).map_err(|_| keys::TOO_MANY_STEPS)
        }
        () => Err(Failure::SYNTAX),
    }
}
