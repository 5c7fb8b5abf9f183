//! The hash indexes beside each other, beside concurrent maps for Rust programs, and beside the
//! tables that their papers compare with.
//!
//! Counts (fences, blocks, load factors, modelled waits) are the same in every run. Timed figures
//! alternate with those that they are compared with.

mod bound;
mod cached;
mod counted;
mod handed;
mod loads;
mod optane;
mod pauses;
mod resize;
mod times;

use crate::plan::Plan;
use terrace_bench::{Bound, Row, Section};
use terrace_index::hash::{Clht, Level, Rewo, Turbo};
use terrace_index::{Inserted, PointIndex, U64};
use terrace_medium::MappedMedium;
use terrace_pool::{Pool, PoolOptions};

const NAME: &str = "hash";

type Outcome<T> = Result<T, Box<dyn std::error::Error>>;
type TurboHash<M> = Turbo<M, U64>;
type LevelHash<M> = Level<M, U64>;
type RewoHash<M> = Rewo<M, U64>;
type ClhtHash<M> = Clht<M, U64>;

/// All tables of results. A part that is not wanted costs nothing.
pub(crate) fn sections(plan: &Plan) -> Outcome<Vec<Section>> {
    let mut sections = times::sections(plan).to_vec();
    sections.extend(bound::sections(plan)?);
    sections.extend(loads::sections(plan)?);
    sections.push(counted::section(plan)?);
    sections.extend(optane::sections(plan)?);
    sections.push(cached::section(plan)?);
    sections.push(handed::section(plan)?);
    sections.extend(resize::sections(plan)?);
    sections.push(pauses::section(plan)?);
    sections.retain(|section| !section.rows.is_empty());
    Ok(sections)
}

/// Whether the row is wanted; if so, prints its name.
fn wants(plan: &Plan, row: &str) -> bool {
    plan.begins(NAME, row)
}

/// A pool of `mib` MiB.
fn pool<M: MappedMedium>(mib: u64) -> Outcome<Pool<M>> {
    Ok(PoolOptions::anonymous().size(mib << 20).hash_seed(11).create()?)
}

/// Adds an absent key.
fn add<I: PointIndex<Kind = U64>>(index: &I, key: u64, word: u64) {
    let inserted = index.insert(&index.pool().pin(), &key, word);
    assert_eq!(inserted, Ok(Inserted::New), "a key was there, or the pool is full");
}

/// A row with one figure.
fn figure(name: impl Into<String>, figure: f64, bound: Option<Bound>) -> Row {
    let row = Row { ours: Some(figure), ..Row::new(name) };
    match bound {
        Some(bound) => row.judged(bound),
        None => row,
    }
}
