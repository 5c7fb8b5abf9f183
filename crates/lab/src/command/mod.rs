//! The commands, one a file.

mod crash;
mod equivalent;
mod mutants;
mod progress;
mod replay;
mod schedules;
mod session;

pub(crate) use crash::Crash;
pub(crate) use mutants::Mutants;
pub(crate) use replay::Replay;
pub(crate) use schedules::{Flaws, Schedules};
