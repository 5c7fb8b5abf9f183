//! MEMORY USAGE key [SAMPLES n]

use terrace_protocol::Args;

use super::*;

pub(super) static MEMORY: Command = Command {
    since: "4.0.0",
    complexity: "Depends on subcommand.",
    summary: "Commands about memory.",
    subcommands: &SUBCOMMANDS,
    ..Command::new("memory", -2, group::SERVER, Run::Container)
};

static SUBCOMMANDS: [Command; 2] = [
    Command {
        flags: flag::READONLY | flag::NO_USE,
        keys: &[KeySpec::at(2, &["RO"])],
        since: "4.0.0",
        summary: "Approximate number of bytes of the pool that a key and its value use.",
        ..Command::new("usage", -3, group::SERVER, Run::General(usage))
    },
    help::help(group::SERVER, 0),
];

/// Bytes of a record's header, its expiry and its slot in the index.
const OVERHEAD: usize = 16 + 8 + 11;

fn usage(cx: &mut Context<'_>, args: Args<'_>) -> Outcome {
    for at in (3..args.len()).step_by(2) {
        if !args.is(at, "SAMPLES") || at + 1 >= args.len() {
            return Err(Failure::SYNTAX);
        }
        if parse::integer(args.at(at + 1))? < 0 {
            return Err(Failure::SYNTAX);
        }
    }
    let key = args.at(2);
    let bytes = cx.read(key, |_, found| {
        found.map(|found| (key.len() + found.value.len() + OVERHEAD).next_multiple_of(8))
    })?;
    match bytes {
        Some(bytes) => cx.reply.count(bytes),
        None => cx.reply.null(),
    }
    Ok(())
}
