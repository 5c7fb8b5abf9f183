//! Our four trees beside Rust's ordered maps, beside the trees that RECIPE compares with, and
//! below the store and the server.
//!
//! Counts (write-backs, fences, modelled waits) are the same in every run. Timed figures alternate
//! with those that they are compared with. A quick run judges only write-backs and fences, which it
//! counts at full size.

mod bytes;
mod counted;
mod keys;
mod lines;
mod maps;
mod optane;
mod ours;
mod server;
mod sides;
mod store;
mod theirs;
mod times;
mod work;

use crate::plan::Plan;
use crate::share::notes;
pub(crate) use bytes::run;
use ours::{Art, BwTree, Hot, Masstree, Ours, SpTree};
use terrace_bench::Section;
use terrace_index::U64;
use terrace_medium::{Pmem, Shm};

const NAME: &str = "ordered";

type Outcome<T> = Result<T, Box<dyn std::error::Error>>;

/// All tables of results. A part that is not wanted costs nothing.
pub(crate) fn sections(plan: &Plan) -> Outcome<Vec<Section>> {
    let mut sections = times::sections(plan);
    sections.push(bytes::section(plan)?);
    sections.extend(optane::sections(plan)?);
    sections.extend([of_notes::<Art>(plan)?, of_notes::<Hot>(plan)?]);
    sections.extend([of_notes::<Masstree>(plan)?, of_notes::<BwTree>(plan)?]);
    sections.push(of_notes::<SpTree>(plan)?);
    sections.extend(store::sections(plan)?);
    sections.extend(server::sections(plan)?);
    if plan.quick {
        // The figures of so few operations mean nothing, and noise must not fail a check.
        let rows = sections.iter_mut().flat_map(|section| &mut section.rows);
        rows.for_each(|row| row.target = None);
    }
    sections.extend(counted::sections(plan)?);
    sections.retain(|section| !section.rows.is_empty());
    Ok(sections)
}

/// The cost of lock intents on a tree.
fn of_notes<T: Ours>(plan: &Plan) -> Outcome<Section> {
    notes::section::<T::Index<Shm, U64>, T::Index<Pmem, U64>>(plan, T::NAME, NAME)
}
