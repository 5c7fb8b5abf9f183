//! The commands, one a file.

mod crash;
mod progress;
mod replay;
mod session;

pub(crate) use crash::Crash;
pub(crate) use replay::Replay;
