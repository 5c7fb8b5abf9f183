//! How close our indexes come to their lower bound: cache misses and fences.

use super::{ClhtHash, LevelHash, NAME, Outcome, RewoHash, TurboHash, add, wants};
use crate::hash::filled_map;
use crate::ours::Ours;
use crate::plan::Plan;
use crate::pmem::insert_beside_bound;
use crate::workload::{Size, Workload, run, run_many};
use std::collections::HashMap;
use terrace_bench::{Bound, Measure, Probe, Random, Row, Section, spread};
use terrace_index::{PointIndex, Stored, U64};
use terrace_medium::{Dram, Pmem};
use terrace_testkit::{TappedPmem, TappedShm};

const WITHIN: f64 = 1.5;
const GETS: [&str; 4] = ["bound: Turbo", "bound: CLHT", "bound: Level", "bound: Rewo"];
const INSERTS: [&str; 4] = ["pmem: Turbo", "pmem: CLHT", "pmem: Level", "pmem: Rewo"];

pub(super) fn sections(plan: &Plan) -> Outcome<Vec<Section>> {
    let wanted = |rows: &[&str]| rows.iter().any(|row| plan.wants(NAME, row));
    if !wanted(&GETS) && !wanted(&INSERTS) {
        return Ok(Vec::new());
    }
    let probe = Probe::new(plan.limits())?;
    let keys = plan.records();
    let mut sections = Vec::new();
    if wanted(&GETS) {
        sections.push(gets(plan, keys, &probe)?);
    }
    let title = format!(
        "Inserts on Pmem: {keys} keys, one thread, real write-backs and fences on memory that is not persistent. The bound: fences times a write-back and fence, \
         and lines missed times a dependent random read, both measured in turns with ours"
    );
    let mut section = Section::new(&title, "ns an insert", &["bound"]);
    let [turbo, clht, level, rewo] = INSERTS;
    type Counted = TappedPmem;
    if wants(plan, turbo) {
        let row = insert_beside_bound::<TurboHash<Pmem>, TurboHash<Counted>>(plan, turbo, keys, &probe);
        section.rows.push(row);
    }
    if wants(plan, clht) {
        let row = insert_beside_bound::<ClhtHash<Pmem>, ClhtHash<Counted>>(plan, clht, keys, &probe);
        section.rows.push(row);
    }
    if wants(plan, level) {
        let row = insert_beside_bound::<LevelHash<Pmem>, LevelHash<Counted>>(plan, level, keys, &probe);
        section.rows.push(row);
    }
    if wants(plan, rewo) {
        let row = insert_beside_bound::<RewoHash<Pmem>, RewoHash<Counted>>(plan, rewo, keys, &probe);
        section.rows.push(row);
    }
    sections.push(section);
    Ok(sections)
}

fn gets(plan: &Plan, keys: u64, probe: &Probe) -> Outcome<Section> {
    let title = format!(
        "Gets on DRAM, one thread, {keys} keys. The bound of a get: the lines that no cache holds times a dependent random read; of one of 16 that are asked for together: times a random line of \
         16 that are prefetched together, both measured in turns with ours"
    );
    let mut section = Section::new(&title, "ns a get", &["bound"]);
    let [turbo, clht, level, rewo] = GETS;
    let rows = &mut section.rows;
    if wants(plan, turbo) {
        rows.extend(rows_beside_bound::<TurboHash<Dram>, TurboHash<TappedShm>>(plan, turbo, keys, probe));
    }
    if wants(plan, clht) {
        rows.extend(rows_beside_bound::<ClhtHash<Dram>, ClhtHash<TappedShm>>(plan, clht, keys, probe));
    }
    if wants(plan, level) {
        rows.extend(rows_beside_bound::<LevelHash<Dram>, LevelHash<TappedShm>>(plan, level, keys, probe));
    }
    if wants(plan, rewo) {
        rows.extend(rows_beside_bound::<RewoHash<Dram>, RewoHash<TappedShm>>(plan, rewo, keys, probe));
    }
    Ok(section)
}

/// Single gets and batches of them, beside the bound.
fn rows_beside_bound<I, C>(plan: &Plan, name: &str, keys: u64, probe: &Probe) -> [Row; 2]
where
    I: PointIndex<Medium = Dram, Kind = U64> + Stored<Medium = Dram>,
    C: PointIndex<Medium = TappedShm, Kind = U64> + Stored<Medium = TappedShm>,
{
    let missed = uncached_lines::<C>(keys / 8);
    let map: Ours<Dram, I> = filled_map(keys);
    let size = Size { keys, operations: plan.count(5_000_000), threads: 1 };
    let mut single: [Measure<'_>; 2] = [
        Box::new(|| 1000.0 / run(&map, Workload::Get, size)),
        Box::new(|| missed * probe.dependent_read_ns()),
    ];
    let single = Row::from_measured(format!("{name}, get"), plan.runner().row(&mut single));
    let mut many: [Measure<'_>; 2] = [
        Box::new(|| 1000.0 / run_many(&map, size)),
        Box::new(|| missed * 1000.0 / probe.prefetched_reads_per_us()),
    ];
    let many = Row::from_measured(format!("{name}, get_many of 16"), plan.runner().row(&mut many));
    [single, many]
        .map(|row| row.noting(format!("{missed:.2} lines missed a get")).against(0, Bound::AtMost(WITHIN)))
}

/// Lines that a get of one of `keys` keys reads and that no cache holds.
fn uncached_lines<I>(keys: u64) -> f64
where
    I: PointIndex<Medium = TappedShm, Kind = U64> + Stored<Medium = TappedShm>,
{
    const SAMPLE: usize = 4000;
    // So many gets read a line of the table once or twice, and root and directory, which caches
    // hold, more often.
    const RARE: u32 = 4;
    let map = Ours::<TappedShm, I>::new(keys, keys);
    (0..keys).for_each(|n| add(&map.index, spread(n), n));
    let (medium, mut random) = (map.index.pool().medium(), Random::new(3));
    let mut lines = HashMap::<u64, u32>::new();
    for _ in 0..SAMPLE {
        let key = spread(random.below(keys));
        let (touched, _) = medium.touched(|| map.index.get(&map.index.pool().pin(), &key));
        touched.lines_read.iter().for_each(|&line| *lines.entry(line).or_default() += 1);
    }
    let missed: u32 = lines.values().filter(|&&gets| gets < RARE).sum();
    f64::from(missed) / SAMPLE as f64
}
