//! Real processes, killed and stopped at random moments and at chosen points, and checked against
//! their acknowledgements.
//!
//! - [`Victim`] is a child process: a test of the same test binary, or any program. It can be
//!   killed (SIGKILL), stopped and resumed (SIGSTOP, SIGCONT).
//! - [`Journal`] records which operations were begun and acknowledged, and checks whether they
//!   explain the content of the store.
//! - [`AtPoint`] is a medium that kills or stops its own process at the nth store of a line of the
//!   source. Production code does not depend on it.

mod journal;
mod point;
mod victim;

pub use journal::{Contents, Disagreement, Journal, Operation, State};
pub use point::{AtPoint, Point, PointAction};
pub use victim::{Acknowledged, Ended, Victim, acknowledge, task};
