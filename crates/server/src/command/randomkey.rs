//! RANDOMKEY

use terrace_protocol::Args;

use super::*;

pub(super) static RANDOMKEY: Command = Command {
    flags: flag::READONLY,
    categories: category::KEYSPACE,
    tips: &["request_policy:all_shards", "nondeterministic_output"],
    summary: "A random key; null in an empty store.",
    ..Command::new("randomkey", 1, group::GENERIC, Run::General(randomkey))
};

fn randomkey(cx: &mut Context<'_>, _: Args<'_>) -> Outcome {
    let key = cx.keys.random_key()?;
    get::copied(&mut cx.reply, key.as_deref());
    Ok(())
}
