//! RANDOMKEY

use terrace_protocol::Args;

use super::*;

pub(super) static RANDOMKEY: Command = Command {
    flags: flag::READONLY,
    categories: category::KEYSPACE,
    tips: &["request_policy:all_shards", "nondeterministic_output"],
    is_long: Some(has_many_keys_to_count),
    summary: "A random key of the database; null in an empty one.",
    ..Command::new("randomkey", 1, group::GENERIC, Run::General(randomkey))
};

fn randomkey(cx: &mut Context<'_>, _: Args<'_>) -> Outcome {
    let key = cx.keys.random_key()?;
    get::copied(&mut cx.reply, key.as_deref());
    Ok(())
}
