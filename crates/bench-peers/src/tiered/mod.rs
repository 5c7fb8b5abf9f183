//! `cargo peers tiered`: the engine over DRAM and files beside other stores, beside its own limits,
//! and as the paper of HeterMM measures it.
//!
//! Records have keys of 8 bytes and values of 64 unless a table says otherwise; DRAM has room for
//! the index and for a quarter of the keys and values.

mod beside;
mod counts;
mod direct;
mod extstore;
mod figures;
mod hits;
mod limits;
mod memory;
mod space;
mod tables;
mod tips;
mod work;

use crate::files::{Outcome, Place, plain, write_page};
use crate::plan::Plan;
use tables::Tables;
use terrace_bench::{Runner, Section};

/// The suite's name in `--only`.
const NAME: &str = "tiered";

pub(crate) fn sections(plan: &Plan) -> Result<Vec<Section>, Box<dyn std::error::Error>> {
    let mut tables = Tables::default();
    let place = Place::of(plan).map_err(plain)?;
    for (name, measure) in PARTS {
        let outcome = measure(plan, &place, &mut tables);
        tables.note(name, outcome);
    }
    if let Some(path) = &plan.page {
        write_page(path, "Terrace over DRAM and files", &[], &tables.sections).map_err(plain)?;
    }
    Ok(tables.sections)
}

/// Runs a child with a store.
pub(crate) fn worker(arguments: &[String]) -> Result<(), Box<dyn std::error::Error>> {
    memory::run(arguments).map_err(plain)
}

type Part = fn(&Plan, &Place, &mut Tables) -> Outcome<()>;

/// What is measured, in this order.
const PARTS: [(&str, Part); 10] = [
    ("the disk's limits", limits::measure),
    ("beside RocksDB", beside::measure),
    ("all in DRAM", direct::measure),
    ("hits", hits::measure),
    ("counts", counts::measure),
    ("space", space::measure),
    ("memory and opens", memory::measure),
    ("beside extstore", extstore::measure),
    ("TIPS", tips::measure),
    ("figures of the paper", figures::measure),
];

/// Records of the full size.
fn records(plan: &Plan) -> u64 {
    plan.records.unwrap_or(if plan.quick { 500_000 } else { 10_000_000 })
}

/// Three rounds, since a round reads a disk.
fn runner(plan: &Plan) -> Runner {
    Runner { rounds: if plan.quick { 1 } else { 3 }, retries: 0, tolerance: 0.1 }
}
