//! The cost of changes and searches, counted.

use super::{LevelHash, Outcome, RewoHash, TurboHash, add, figure, pool, wants};
use crate::plan::Plan;
use terrace_bench::{Bound, Section, spread};
use terrace_conformance as conformance;
use terrace_index::{PointIndex, Stored, U64};
use terrace_testkit::{TappedPmem, TappedShm};

/// Keys whose changes are counted one by one.
const KEYS: u64 = 30_000;
/// Keys of a table that is four fifths full.
const FILLED: u64 = 1024 * 14 * 4 / 5;

pub(super) fn section(plan: &Plan) -> Outcome<Section> {
    let title = "Counted, u64 keys: the most fences that a change costs on Pmem outside a resize (at a load under 0.6), media blocks of 256 bytes that an insert writes (mean; a block \
                 that is written again after a fence counts once), and buckets that a search for an absent key reads at a load of 0.8";
    let mut section = Section::new(title, "counted", &[]);
    if wants(plan, "counted: Turbo") {
        let make = || Ok(TurboHash::with_shards(&pool(256)?, "turbo", 4, KEYS * 4 / 3)?);
        changes(&mut section, "Turbo", make, [2.0, 1.0])?;
        let index = TurboHash::with_shards(&pool(64)?, "turbo", 0, FILLED - 100)?;
        absent(&mut section, "Turbo", &index, 1.4);
    }
    if wants(plan, "counted: Rewo") {
        let make = || Ok(RewoHash::with_shape(&pool(256)?, "rewo", 10, 12)?);
        changes(&mut section, "Rewo", make, [2.0, 2.0])?;
        absent(&mut section, "Rewo", &RewoHash::with_shape(&pool(64)?, "rewo", 10, 10)?, 2.0);
    }
    if wants(plan, "counted: Level") {
        let make = || Ok(LevelHash::create(&pool(256)?, "level", KEYS * 5 / 3)?);
        changes(&mut section, "Level", make, [2.0, 2.0])?;
    }
    Ok(section)
}

/// `most`: the fences that an insert and an update may cost.
fn changes<I>(section: &mut Section, name: &str, make: impl Fn() -> Outcome<I>, most: [f64; 2]) -> Outcome<()>
where
    I: PointIndex<Medium = TappedPmem, Kind = U64> + Stored<Medium = TappedPmem> + 'static,
{
    let costs = conformance::costs_of_single_changes(&make()?, KEYS);
    let [insert, update] = most.map(|most| Some(Bound::AtMost(most)));
    for (what, (_, most), bound) in
        [("insert", costs.insert, insert), ("update", costs.update, update), ("remove", costs.remove, None)]
    {
        section.rows.push(figure(format!("{name}, {what}: fences"), most.fences as f64, bound));
    }
    let index = make()?;
    let (mut blocks, mut fences) = (0, 0);
    for n in 0..KEYS {
        let (counts, ()) = index.pool().medium().during(|| add(&index, spread(n), n));
        (blocks, fences) = (blocks + counts.blocks_written, fences + counts.fences);
    }
    // The counter counts a block anew after each fence, so an insert with two fences counts its one
    // block twice.
    let mean = 1.0 + (blocks - fences) as f64 / KEYS as f64;
    section.rows.push(figure(format!("{name}, insert: blocks written"), mean, Some(Bound::AtMost(1.05))));
    Ok(())
}

fn absent<I>(section: &mut Section, name: &str, index: &I, most: f64)
where
    I: PointIndex<Medium = TappedShm, Kind = U64> + Stored<Medium = TappedShm> + 'static,
{
    (0..FILLED).for_each(|n| add(index, spread(n), n));
    let guard = index.pool().pin();
    let reading = || (FILLED..2 * FILLED).for_each(|n| assert_eq!(index.get(&guard, &spread(n)), None));
    // Root and directory stay among the blocks that count as cached.
    let blocks = index.pool().medium().during(reading).0.blocks_read as f64 / FILLED as f64;
    section.rows.push(figure(format!("{name}, absent get: buckets"), blocks, Some(Bound::AtMost(most))));
}
