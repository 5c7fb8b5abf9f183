//! The commands, one a file.

mod crash;
mod equivalent;
mod mutants;
#[cfg(feature = "planted")]
mod planted;
mod progress;
mod replay;
mod schedules;
mod session;

pub(crate) use crash::Crash;
pub(crate) use mutants::Mutants;
#[cfg(feature = "planted")]
pub(crate) use planted::Planted;
pub(crate) use replay::Replay;
pub(crate) use schedules::{Flaws, Schedules};
