//! The commands, one a file.

mod breadth;
mod crash;
mod excused;
mod mutants;
mod progress;
mod replay;
mod schedules;
mod session;

use std::io::Write;

pub(crate) use crash::Crash;
pub(crate) use mutants::Mutants;
pub(crate) use replay::Replay;
pub(crate) use schedules::Schedules;

/// A line of what a command has found.
fn say(line: &str) {
    let _ = writeln!(std::io::stdout(), "{line}");
}
