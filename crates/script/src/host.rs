//! What a script asks of the server that runs it.

use terrace_protocol::Args;

/// Executes the commands of a script.
pub trait Host {
    /// Executes a command, and appends its reply to `reply`, in RESP3 or else RESP2.
    fn call(&mut self, args: Args<'_>, resp3: bool, reply: &mut Vec<u8>) -> Result<(), CallError>;

    /// An error in what the script returns, of a command that has failed or of the script's own.
    fn returned(&mut self, error: &[u8], of_command: bool) {
        let _ = (error, of_command);
    }

    /// The error of a command that has failed ends the script.
    fn raised(&mut self, error: &[u8]) {
        let _ = error;
    }

    /// Whether a command with these arguments exists.
    fn knows(&self, args: Args<'_>) -> bool;
}

/// Why a command of a script was not executed, or failed.
#[derive(Debug, PartialEq, Eq)]
pub enum CallError {
    /// The error reply, beginning with its code. The script may go on.
    Failed(Box<[u8]>),
    /// The run is of no use any more: it ends at once, with [`Stop::Abandoned`](crate::Stop).
    Abandon,
}
