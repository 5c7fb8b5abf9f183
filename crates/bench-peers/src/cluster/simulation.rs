//! Events of the fabric's simulation a second of a core.

use super::{Outcome, row};
use crate::plan::Plan;
use std::process::Command;
use terrace_bench::{Bound, Section};

pub(super) fn section(_: &Plan) -> Outcome<Section> {
    let cargo = std::env::var("CARGO").unwrap_or_else(|_| "cargo".into());
    let mut command = Command::new(cargo);
    command.args(["run", "--quiet", "--release", "-p", "terrace-fabric", "--example", "simulator_speed"]);
    let output = command.output()?;
    let text = String::from_utf8(output.stdout)?;
    let rate = text.split_whitespace().filter_map(|word| word.replace(',', "").parse::<f64>().ok());
    let rate = rate.fold(0.0, f64::max);
    let mut section = Section::new("The simulated fabric, on one core", "million events/s", &[]);
    section.rows.push(row("events", rate / 1e6).judged(Bound::AtLeast(0.5)));
    Ok(section)
}
