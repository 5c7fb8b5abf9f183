//! The HELP subcommand of every container, generated from the table.

use terrace_protocol::Args;

use super::*;

/// The HELP subcommand of a container in this group.
pub(super) const fn help(group: &'static str, categories: u32) -> Command {
    Command {
        flags: flag::LOADING | flag::STALE,
        categories,
        since: "5.0.0",
        summary: "Lists the subcommands.",
        ..Command::new("help", 2, group, Run::General(run))
    }
}

fn run(cx: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let container = table::lookup(args.name()).ok_or(Failure::SYNTAX)?;
    let name = container.name.to_uppercase();
    cx.reply.array(1 + 2 * container.subcommands.len());
    cx.reply.simple(&format!("{name} <subcommand> [<arg> [value] [opt] ...]. Subcommands are:"));
    for sub in container.subcommands {
        cx.reply.simple(&sub.name.to_uppercase());
        cx.reply.simple(&format!("    {}", sub.summary));
    }
    Ok(())
}
