//! KEYS pattern

use terrace::Cursor;
use terrace_protocol::{Args, Glob};

use super::*;

pub(super) static KEYS: Command = Command {
    flags: flag::READONLY,
    categories: category::KEYSPACE | category::DANGEROUS,
    tips: &["request_policy:all_shards", "nondeterministic_output_order"],
    complexity: "O(N) where N is the number of keys",
    is_long: Some(has_many_keys),
    summary: "All keys that match a pattern. Slow in a large store: use SCAN instead.",
    ..Command::new("keys", 2, group::GENERIC, Run::General(keys))
};

/// Keys per call of the store.
const STEP: usize = 1024;

pub(super) const TOO_MANY_STEPS: Failure =
    Failure::Text("ERR the pattern takes too many steps to match: use fewer `*`");

fn keys(cx: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let pattern = Glob::new(args.at(1));
    let (start, reply, prefix) = (cx.reply.mark(), &mut cx.reply, pattern.prefix());
    let (mut found, mut cursor, mut too_many) = (0, Cursor::START, false);
    let limit = cx.state.reply_limit;
    while !cursor.is_end() {
        let mut each = |key: &[u8]| match pattern.matches(key) {
            Ok(true) => {
                reply.bulk(key);
                found += 1;
            }
            Ok(false) => {}
            Err(_) => too_many = true,
        };
        cursor = walk::step(cx.keys, &cx.shared.store, &cursor, &prefix, STEP, &mut each)?;
        if too_many {
            return Err(TOO_MANY_STEPS);
        }
        if reply.mark() - start > limit.bytes {
            return Err(limit.failure("the keys in total are", "use SCAN"));
        }
    }
    reply.in_front(start, |reply| reply.array(found));
    Ok(())
}
