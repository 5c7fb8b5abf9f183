//! TIME

use terrace_protocol::Args;

use super::*;

pub(super) static TIME: Command = Command {
    flags: flag::LOADING | flag::STALE | flag::FAST,
    tips: &["nondeterministic_output"],
    since: "2.6.0",
    summary: "The server's time: seconds since 1970, and microseconds of the second (whole milliseconds).",
    ..Command::new("time", 1, group::SERVER, Run::General(time))
};

fn time(cx: &mut Context<'_>, _: Args<'_>) -> Outcome {
    let (seconds, micros) = (cx.now_ms / 1000, cx.now_ms % 1000 * 1000);
    cx.reply.array(2);
    cx.reply.bulk(itoa::Buffer::new().format(seconds).as_bytes());
    cx.reply.bulk(itoa::Buffer::new().format(micros).as_bytes());
    Ok(())
}
