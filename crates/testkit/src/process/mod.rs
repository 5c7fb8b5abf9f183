//! Real processes, killed and stopped at random moments and at chosen points, and checked against
//! their acknowledgements.
//!
//! - [`Victim`] is a child process: a test of the same test binary, or any program. It can be
//!   killed (SIGKILL), stopped and resumed (SIGSTOP, SIGCONT).
//! - [`in_forked_child`] runs a part of a test in a child by fork.
//! - [`Journal`] records which operations were begun and acknowledged, and checks whether they
//!   explain the content of the store.
//! - [`Point`] is the nth store of a line of the source, where a medium made within
//!   [`stopping`](crate::stopping) kills or stops its own process.

mod forked;
mod journal;
mod victim;

pub use crate::tapped::{Point, PointAction, points_of};
pub use forked::in_forked_child;
pub use journal::{Contents, Disagreement, Journal, Operation, State};
pub use victim::{Acknowledged, Ended, Victim, acknowledge, task};
