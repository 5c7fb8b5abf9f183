//! Commands that execute others: EXEC those that MULTI has queued, EVAL those of its script.
//!
//! Sessions execute commands, and stand above them. So a session hands its way to do it down to
//! the commands that need it.

use terrace_protocol::Args;

use super::{Context, Failure, Outcome};

/// How a command executes others.
pub struct Nested {
    /// Executes a command that MULTI has queued. Returns what identifies it, if its call was
    /// counted. Fails if the transaction cannot go on.
    pub(crate) queued: fn(&mut Context<'_>, Args<'_>) -> Result<Option<usize>, Failure>,
    /// Executes a command of a script. Adds what identifies it to the list, if its call was
    /// counted.
    pub(crate) in_script: fn(&mut Context<'_>, Args<'_>, &mut ScriptRules, &mut Vec<usize>) -> Outcome,
}

/// What the commands of a script may do.
#[derive(Clone, Copy)]
pub(crate) struct ScriptRules {
    /// No command may write.
    pub(crate) is_read_only: bool,
    /// The store is above `maxmemory`: as in Redis, a script that has not written yet learns it
    /// from its first write.
    pub(crate) refuses_oom: bool,
    /// In a cluster, the slot of all keys, once there is one.
    pub(crate) slot: Option<u16>,
}
