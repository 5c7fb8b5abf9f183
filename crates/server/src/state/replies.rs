//! Which replies a client gets, and how large they may be.

use super::failure::Failure;

/// Whether a client wants replies: CLIENT REPLY.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Replies {
    On,
    Off,
    /// Not to this command, nor to the next one.
    SkipNext,
    /// Not to this command.
    Skip,
}

impl Replies {
    /// Whether the reply to a command that was executed is left out. Goes on to the next command.
    pub(crate) fn is_left_out(&mut self) -> bool {
        let now = *self;
        *self = match now {
            Replies::SkipNext => Replies::Skip,
            Replies::Skip => Replies::On,
            same => same,
        };
        now != Replies::On
    }
}

/// How large the reply of a command that lists values or keys may become: it is held in memory as a
/// whole.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ReplyLimit {
    pub(crate) bytes: usize,
    /// Its name for the client: a size, or a setting.
    pub(crate) name: &'static str,
}

impl ReplyLimit {
    /// Of a command that is neither in a script nor in a transaction.
    pub(crate) const OF_A_COMMAND: ReplyLimit = ReplyLimit { bytes: 1 << 30, name: "1 GiB" };

    /// The reply would be larger. `what` it is, and what the client can do.
    pub(crate) fn failure(self, what: &str, how: &str) -> Failure {
        Failure::Made(format!("ERR {what} larger than {}: {how}", self.name).into_bytes().into())
    }
}
