//! EXISTS key [key ...], TOUCH key [key ...]

use terrace_protocol::Args;

use super::*;

pub(super) static EXISTS: Command = Command {
    summary: "The number of these keys that exist; a key given twice counts twice.",
    ..family("exists", flag::NO_USE)
};

pub(super) static TOUCH: Command = Command {
    since: "3.2.1",
    summary: "The number of these keys that exist; they count as used.",
    ..family("touch", 0)
};

const fn family(name: &'static str, more: u32) -> Command {
    Command {
        flags: flag::READONLY | flag::FAST | more,
        categories: category::KEYSPACE,
        keys: const { &[KeySpec::every(1, &["RO"])] },
        tips: &["request_policy:multi_shard", "response_policy:agg_sum"],
        complexity: "O(N) where N is the number of keys",
        ..Command::new(name, -2, group::GENERIC, Run::General(exists))
    }
}

fn exists(cx: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let named: Vec<&[u8]> = args.from(1).iter().collect();
    let mut found = 0;
    cx.keys.read_many(&named, &mut |entry| found += usize::from(entry.is_some()))?;
    cx.state.tally.hits += found as u64;
    cx.state.tally.misses += (named.len() - found) as u64;
    cx.reply.count(found);
    Ok(())
}
