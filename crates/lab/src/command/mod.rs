//! The commands, one a file.

mod crash;
mod mutants;
mod progress;
mod replay;
mod session;

pub(crate) use crash::Crash;
pub(crate) use mutants::Mutants;
pub(crate) use replay::Replay;
