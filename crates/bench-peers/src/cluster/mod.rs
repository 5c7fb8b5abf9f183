//! `cargo peers cluster`: round trips and writes of the fabric, counted; a value in the cache of a
//! serving node beside `terrace serve`; and how long clients wait when a process dies or slots
//! move.

mod client;
mod counts;
mod deaths;
mod moves;
mod processes;
mod simulation;
mod speed;

use crate::plan::{Plan, say};
use terrace_bench::{Row, Section};

/// The suite's name in `--only`.
const NAME: &str = "cluster";

type Outcome<T> = Result<T, Box<dyn std::error::Error>>;
type Part = fn(&Plan) -> Outcome<Section>;

/// What is measured, in this order.
const PARTS: [(&str, Part); 6] = [
    ("round trips", counts::section),
    ("simulation", simulation::section),
    ("cache", speed::section),
    ("deaths", deaths::section),
    ("moves", moves::section),
    ("memory", deaths::memory),
];

pub(crate) fn sections(plan: &Plan) -> Result<Vec<Section>, Box<dyn std::error::Error>> {
    let mut sections = Vec::new();
    for (name, measure) in PARTS {
        if plan.begins(NAME, name) {
            sections.push(measure(plan)?);
        }
    }
    Ok(sections)
}

/// A row with a figure of ours alone.
fn row(name: impl Into<String>, figure: f64) -> Row {
    let name = name.into();
    say(&format!("  {name}: {figure:.3}"));
    Row { ours: Some(figure), ..Row::new(name) }
}

/// The figure below which so many of a hundred are.
fn percentile(sorted: &[f64], percent: usize) -> f64 {
    sorted[(sorted.len() * percent / 100).min(sorted.len() - 1)]
}
