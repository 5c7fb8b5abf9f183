//! The commands, one per file.

mod arguments;
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

/// Prints one line of a command's results.
fn print_line(line: &str) {
    let _ = writeln!(std::io::stdout(), "{line}");
}
