//! How full our indexes get before they grow, and the memory that a record takes.

use super::{ClhtHash, LevelHash, NAME, Outcome, RewoHash, TurboHash, add, figure, pool, wants};
use crate::ours::Ours;
use crate::plan::Plan;
use terrace_bench::{Bound, Row, Section, spread};
use terrace_index::{IndexStats, PointIndex, Stored, U64, ordered::Art};
use terrace_medium::Dram;

const EXPANSIONS: usize = 6;
const BYTES_MOST: f64 = 24.0;

pub(super) fn sections(plan: &Plan) -> Outcome<Vec<Section>> {
    Ok(vec![loads(plan)?, bytes(plan)])
}

fn loads(plan: &Plan) -> Outcome<Section> {
    let title = "Load factor just before each of the first six expansions of a small table (of one shard of TurboHash; of Rewo-Hash, each doubling of all tables together)";
    let mut section = Section::new(title, "keys a slot", &["2nd", "4th", "6th"]).ours_named("least of six");
    let double = |buckets: u64| (buckets + 1).next_power_of_two();
    if wants(plan, "load of Level") {
        let index = LevelHash::<Dram>::create(&pool(64)?, "level", 2000)?;
        section.rows.push(load_row("Level", &index, |buckets| buckets, 0.90));
    }
    if wants(plan, "load of Rewo") {
        let index = RewoHash::<Dram>::with_shape(&pool(256)?, "rewo", 10, 7)?;
        section.rows.push(load_row("Rewo", &index, double, 0.92));
    }
    if wants(plan, "load of Turbo") {
        let index = TurboHash::<Dram>::with_shards(&pool(64)?, "turbo", 0, 500)?;
        section.rows.push(load_row("Turbo", &index, |buckets| buckets, 0.85));
    }
    Ok(section)
}

/// `passed` computes, from the buckets that an expansion made, how many must be exceeded for the
/// next expansion to count.
fn load_row<I: PointIndex<Kind = U64>>(
    name: &str,
    index: &I,
    passed: impl Fn(u64) -> u64,
    least: f64,
) -> Row {
    let guard = index.pool().pin();
    let mut before = index.stats(&guard);
    let (mut loads, mut buckets) = (Vec::new(), before.buckets);
    for n in 0.. {
        add(index, spread(n), n);
        let now = index.stats(&guard);
        if now.buckets > buckets {
            loads.push(before.load_factor());
            if loads.len() == EXPANSIONS {
                break;
            }
            while index.maintain(&guard) {}
            buckets = passed(now.buckets).max(index.stats(&guard).buckets);
        }
        before = index.stats(&guard);
    }
    let lowest = loads.iter().copied().reduce(f64::min);
    let row = Row { peers: [1, 3, 5].map(|nth| Some(loads[nth])).into(), ..Row::new(name) };
    Row { ours: lowest, ..row }.judged(Bound::AtLeast(least))
}

fn bytes(plan: &Plan) -> Section {
    let keys = plan.records() * 2 / 5;
    let title = format!(
        "Bytes of table (of tree) a record of 8 + 8 bytes, those 16 included, while a table grows from nothing to {keys} keys, from a hundredth of them on"
    );
    let columns = ["mean", "most"];
    let mut section = Section::new(&title, "bytes a record", &columns).ours_named("just before growth");
    if plan.wants(NAME, "bytes of Turbo") {
        section.rows.push(bytes_row::<TurboHash<Dram>>(plan, "Turbo", keys, Some(BYTES_MOST)));
    }
    if plan.wants(NAME, "bytes of Level") {
        section.rows.push(bytes_row::<LevelHash<Dram>>(plan, "Level", keys, Some(BYTES_MOST)));
    }
    if plan.wants(NAME, "bytes of Rewo") {
        section.rows.push(bytes_row::<RewoHash<Dram>>(plan, "Rewo", keys, Some(BYTES_MOST)));
    }
    if plan.wants(NAME, "bytes of CLHT") {
        section.rows.push(bytes_row::<ClhtHash<Dram>>(plan, "CLHT", keys, None));
    }
    if plan.wants(NAME, "bytes of ART") {
        section.rows.push(bytes_row::<Art<Dram, U64>>(plan, "ART", keys, None));
    }
    section
}

fn bytes_row<I: PointIndex<Medium = Dram, Kind = U64> + Stored<Medium = Dram>>(
    plan: &Plan,
    name: &str,
    keys: u64,
    most_allowed: Option<f64>,
) -> Row {
    let _ = wants(plan, &format!("bytes of {name}"));
    let map = Ours::<Dram, I>::new(0, keys);
    let guard = map.index.pool().pin();
    let bytes = |stats: IndexStats| stats.bytes as f64 / stats.keys as f64;
    let (mut sum, mut least, mut most, mut samples) = (0.0, f64::MAX, 0.0f64, 0.0);
    for n in 0..keys {
        add(&map.index, spread(n), n);
        if n >= keys / 100 && n % (keys / 2000).max(1) == 0 {
            let bytes = bytes(map.index.stats(&guard));
            (sum, least, most, samples) = (sum + bytes, least.min(bytes), most.max(bytes), samples + 1.0);
        }
    }
    let row = figure(name, least, most_allowed.map(Bound::AtMost));
    Row { peers: vec![Some(sum / samples), Some(most)], ..row }
}
