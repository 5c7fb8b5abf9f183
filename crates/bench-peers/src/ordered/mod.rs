//! The ordered indexes beside Rust's ordered maps, beside the trees that RECIPE compares with, and
//! below the store and the server.
//!
//! Counts (write-backs, fences, modelled waits) are the same in every run, and so are judged in a
//! quick run, too. Timed figures alternate with those that they are compared with.

mod bytes;
mod keys;
mod maps;
mod ours;
mod times;
mod work;

use crate::plan::{Plan, say};
pub(crate) use bytes::run;
use terrace_bench::{Bound, Row, Section};

const NAME: &str = "ordered";

type Outcome<T> = Result<T, Box<dyn std::error::Error>>;

/// All tables of results. A part that is not wanted costs nothing.
pub(crate) fn sections(plan: &Plan) -> Outcome<Vec<Section>> {
    let mut sections = times::sections(plan);
    sections.push(bytes::section(plan)?);
    sections.retain(|section| !section.rows.is_empty());
    Ok(sections)
}

/// Whether the row is wanted; if so, prints its name.
fn wants(plan: &Plan, row: &str) -> bool {
    let wanted = plan.wants(NAME, row);
    if wanted {
        say(&format!("{NAME} {row}"));
    }
    wanted
}

/// Judges a timed row against one of its peers, unless the run is too short for its times to mean
/// anything.
fn judged(plan: &Plan, row: Row, peer: usize, bound: Bound) -> Row {
    let row = row.against(peer, bound);
    if plan.quick { Row { target: None, ..row } } else { row }
}
