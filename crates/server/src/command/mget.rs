//! MGET key [key ...]

use terrace_protocol::Args;

use super::*;

pub(super) static MGET: Command = Command {
    flags: flag::READONLY | flag::FAST,
    categories: category::STRING,
    keys: &[KeySpec::every(1, &["RO", "access"])],
    tips: &["request_policy:multi_shard"],
    complexity: "O(N) where N is the number of keys",
    summary: "The values of several keys, all as of one instant.",
    ..Command::new("mget", -2, group::STRING, Run::General(mget))
};

fn mget(cx: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let keys: Vec<&[u8]> = args.from(1).iter().collect();
    let limit = cx.state.reply_limit;
    let (reply, tally) = (&mut cx.reply, &mut cx.state.tally);
    let start = reply.mark();
    let (mut hits, mut too_long) = (0, false);
    cx.keys.snapshot(&keys, &mut |nth, found| {
        if nth == 0 {
            reply.rewind(start);
            reply.array(keys.len());
            (hits, too_long) = (0, false);
        }
        hits += u64::from(found.is_some());
        too_long |= reply.mark() - start > limit.bytes;
        if !too_long {
            get::value(reply, found);
        }
    })?;
    tally.hits += hits;
    tally.misses += keys.len() as u64 - hits;
    if too_long {
        return Err(limit.failure("the values in total are", "request fewer keys at a time"));
    }
    Ok(())
}
