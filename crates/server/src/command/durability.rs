//! SAVE, BGSAVE, BGREWRITEAOF, LASTSAVE: refused, with a hint about what Terrace does instead.
//!
//! In Redis each of these confirms that data is in a file now, or will be soon. A client relies on
//! that, so none of them replies OK here. In Terrace a write is as durable as the pool promises
//! when it is answered.

use terrace_protocol::Args;

use super::*;

pub(super) static SAVE: Command = Command {
    flags: flag::ADMIN | flag::NOSCRIPT | flag::NO_ASYNC_LOADING | flag::NO_MULTI,
    ..family("save", 1)
};
pub(super) static BGSAVE: Command = family("bgsave", -1);
pub(super) static BGREWRITEAOF: Command = family("bgrewriteaof", 1);
pub(super) static LASTSAVE: Command = Command {
    flags: flag::LOADING | flag::STALE | flag::FAST,
    categories: category::ADMIN | category::DANGEROUS,
    tips: &["nondeterministic_output"],
    ..family("lastsave", 1)
};

const fn family(name: &'static str, arity: i32) -> Command {
    Command {
        flags: flag::ADMIN | flag::NOSCRIPT | flag::NO_ASYNC_LOADING,
        summary: "Refused: a write is in the pool when it is answered; Terrace writes no other file.",
        ..Command::new(name, arity, group::SERVER, Run::General(refuse))
    }
}

fn refuse(_: &mut Context<'_>, _: Args<'_>) -> Outcome {
    Err(Failure::Text(
        "ERR Terrace writes no snapshots or logs: each write is in the pool, with the durability of INFO's `persistence` section, \
         when it is answered; to copy the data to a file, use `terrace dump`",
    ))
}
