//! Real processes, killed and stopped at random moments and at chosen points, judged by what they had acknowledged.
//!
//! - [`Victim`] is a child process: a test of the same test binary, run again, or any program. It can be killed (SIGKILL), stopped and resumed (SIGSTOP, SIGCONT).
//! - [`Journal`] knows which operations were acknowledged and which were begun, and says whether what a store holds afterwards can have come of them.
//! - [`AtPoint`] is a medium that kills or stops its own process when a chosen place of the source stores for the nth time. Production code knows nothing of it.

mod journal;
mod point;
mod victim;

pub use journal::{Contents, Disagreement, Journal, Operation, State};
pub use point::{AtPoint, Ending, Point};
pub use victim::{Acknowledged, Ended, Victim, acknowledge, task};
