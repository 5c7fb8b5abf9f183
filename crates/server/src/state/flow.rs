//! What an event loop does after a call of a session.

/// The next step of the event loop after a call of [`Session`](crate::session::Session).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flow {
    /// All complete commands were executed: read more.
    Continue,
    /// `output` has become long: write it, then call `process` again before
    /// reading, because `input` may contain further complete commands.
    More,
    /// The next command takes long and is not executed yet: write `output`, then call `process` on
    /// a thread where no other connection waits. Only
    /// `process_short` returns this.
    Long,
    /// The next command runs a script that takes long, and had no effect: as [`Flow::Long`], on a
    /// thread that may have to wait for a script without end.
    Script,
    /// The next command wants cold reads, and had no effect: write `output`, make the reads that
    /// the session wants, and call `process_short` again. Only that returns this.
    Cold,
    /// The slot of the next command is being moved to another node of the cluster or from it, and
    /// the command had no effect: write `output`, and call again a moment later.
    Later,
    /// Write `output`, then close the connection.
    Close,
    /// SHUTDOWN: write `output`, then stop the server (`Shared::shut_down` was called).
    Shutdown,
}
