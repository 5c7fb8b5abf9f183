//! `cargo peers wip`: the disk engine beside RocksDB and fjall.
//!
//! Every side has the same memory for blocks and for what is not in tables yet, the same batches,
//! the same durability and no compression that its values would yield to; all but fjall read and
//! write tables past the page cache. Not more than two stores are open at a time, and one of them
//! is at rest while the other works.

mod answers;
mod beside;
mod loaded;
mod mixes;
mod pauses;
mod read;
mod reopen;
mod served;
mod space;
mod synced;
mod tables;

pub(crate) use answers::sections as answers;

use crate::files::{Outcome, Place, Setup, plain, write_page};
use crate::plan::Plan;
use tables::Tables;
use terrace_bench::{Runner, Section};

/// The suite's name in `--only`.
const NAME: &str = "wip";

const MEMORY: usize = 96 << 20;
const SETUP: Setup = Setup { memory: MEMORY, is_synced: false };
const SYNCED: Setup = Setup { is_synced: true, ..SETUP };

pub(crate) fn sections(plan: &Plan) -> Result<Vec<Section>, Box<dyn std::error::Error>> {
    let mut tables = Tables::new(plan);
    let place = Place::of(plan).map_err(plain)?;
    for (name, measure) in PARTS {
        let outcome = measure(plan, &place, &mut tables);
        tables.note(name, outcome);
    }
    let outcome = served::measure(plan, &place, &mut tables);
    tables.note("the server", outcome);
    let plots = std::mem::take(&mut tables.plots);
    let sections = tables.sections();
    if let Some(path) = &plan.page {
        write_page(path, "Terrace beside RocksDB and fjall", &plots, &sections).map_err(plain)?;
    }
    Ok(sections)
}

type Part = fn(&Plan, &Place, &mut Tables) -> Outcome<()>;

/// What is measured, in this order.
const PARTS: [(&str, Part); 6] = [
    ("loads and reads", loaded::measure),
    ("single puts", synced::measure),
    ("awareness of reads", beside::awareness),
    ("pauses", pauses::measure),
    ("space", space::measure),
    ("opens", reopen::measure),
];

/// Records of the full size.
fn records(plan: &Plan) -> u64 {
    plan.records.unwrap_or(if plan.quick { 100_000 } else { 16_000_000 })
}

/// Three rounds, since a round reads a disk.
fn runner(plan: &Plan) -> Runner {
    Runner { rounds: if plan.quick { 1 } else { 3 }, retries: 0, tolerance: 0.1 }
}
