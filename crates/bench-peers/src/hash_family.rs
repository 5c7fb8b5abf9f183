//! The hash indexes beside each other, and beside the concurrent maps that a Rust program would use otherwise.

use crate::hash::{filled_map, measure, named};
use crate::maps::{DashMap, Papaya, Scc};
use crate::ours::Ours;
use crate::plan::{Plan, say};
use crate::workload::{Size, Workload, insert, run, run_many};
use terrace_bench::{Bound, Measure, Row, Section, spread};
use terrace_index::hash::Turbo;
use terrace_index::{Inserted, PointIndex, U64};
use terrace_medium::{Dram, Pmem};
use terrace_pool::PoolOptions;
use terrace_testkit::{Counting, conformance};

const NAME: &str = "hash";
const PEERS: [&str; 4] = ["CLHT", "papaya", "dashmap", "scc"];
const CLHT: usize = 0;
const THREADS: [usize; 2] = [1, 2];

type Clht = Ours<Dram>;
type TurboHash = Ours<Dram, Turbo<Dram, U64>>;

/// Times on DRAM, then what is counted.
pub(crate) fn sections(plan: &Plan) -> Result<Vec<Section>, Box<dyn std::error::Error>> {
    let keys = plan.count(10_000_000);
    let title = format!(
        "TurboHash on DRAM beside CLHT and Rust's concurrent maps: {keys} uniform 8-byte keys and 8-byte values; a guard an operation; memory touched before, \
         huge pages asked for on every side"
    );
    let mut times = Section::new(&title, "million operations/s", &PEERS);
    times.rows.extend(filled(plan, keys));
    times.rows.extend(inserts(plan, keys));
    let sections = [times, counted(plan)?];
    Ok(sections.into_iter().filter(|section| !section.rows.is_empty()).collect())
}

/// What is done to full maps, and what must hold over CLHT and over the best of the others.
const FILLED: [(&str, Workload, f64); 3] = [
    ("get", Workload::Get, 1.0),
    ("get absent", Workload::GetAbsent, 1.2),
    ("update", Workload::Update, 1.0),
];
const OVER_OTHERS: f64 = 1.5;

fn filled(plan: &Plan, keys: u64) -> Vec<Row> {
    let mut rows = Vec::new();
    let many = "get_many of 16";
    let whats = FILLED.map(|filled| filled.0).into_iter().chain([many]);
    if !whats.flat_map(|what| THREADS.map(|threads| named(what, threads))).any(|name| plan.wants(NAME, &name))
    {
        return rows;
    }
    say("filling five maps");
    let (turbo, clht): (TurboHash, Clht) = (filled_map(keys), filled_map(keys));
    let (papaya, dashmap, scc) =
        (filled_map::<Papaya>(keys), filled_map::<DashMap>(keys), filled_map::<Scc>(keys));
    let size = |threads| Size { keys, operations: plan.count(5_000_000), threads };
    for (what, workload, over_clht) in FILLED {
        for threads in THREADS {
            let size = size(threads);
            let mut sides: [Measure<'_>; 5] = [
                Box::new(|| run(&turbo, workload, size)),
                Box::new(|| run(&clht, workload, size)),
                Box::new(|| run(&papaya, workload, size)),
                Box::new(|| run(&dashmap, workload, size)),
                Box::new(|| run(&scc, workload, size)),
            ];
            let others = (workload != Workload::GetAbsent).then_some(OVER_OTHERS);
            rows.extend(
                measure(plan, named(what, threads), &mut sides)
                    .into_iter()
                    .flat_map(|row| judged(&row, over_clht, others)),
            );
        }
    }
    for threads in THREADS {
        let size = size(threads);
        let mut sides: [Measure<'_>; 2] =
            [Box::new(|| run_many(&turbo, size)), Box::new(|| run_many(&clht, size))];
        rows.extend(
            measure(plan, named(many, threads), &mut sides).map(|row| row.against(CLHT, Bound::AtLeast(1.0))),
        );
    }
    rows
}

/// A row twice: against CLHT, and against the best of the others.
fn judged(row: &Row, over_clht: f64, over_others: Option<f64>) -> Vec<Row> {
    let clht =
        Row { name: format!("{}: CLHT", row.name), ..row.clone() }.against(CLHT, Bound::AtLeast(over_clht));
    let best = (1..PEERS.len()).max_by(|&one, &other| {
        row.peers[one].partial_cmp(&row.peers[other]).unwrap_or(std::cmp::Ordering::Equal)
    });
    let others = over_others.zip(best).map(|(ratio, best)| {
        Row { name: format!("{}: {}", row.name, PEERS[best]), note: None, ..row.clone() }
            .against(best, Bound::AtLeast(ratio))
    });
    [Some(clht), others].into_iter().flatten().collect()
}

fn inserts(plan: &Plan, keys: u64) -> Vec<Row> {
    let mut rows = Vec::new();
    for (what, presized) in [("insert, presized", true), ("insert growing", false)] {
        for threads in THREADS {
            let (name, size) = (named(what, threads), Size { keys, operations: keys, threads });
            if !plan.wants(NAME, &name) {
                continue;
            }
            // Once without a clock: the allocator keeps the memory that is touched here, and hands it out again below.
            let _ = (
                insert::<Papaya>(size, presized),
                insert::<DashMap>(size, presized),
                insert::<Scc>(size, presized),
            );
            let mut sides: [Measure<'_>; 5] = [
                Box::new(|| insert::<TurboHash>(size, presized)),
                Box::new(|| insert::<Clht>(size, presized)),
                Box::new(|| insert::<Papaya>(size, presized)),
                Box::new(|| insert::<DashMap>(size, presized)),
                Box::new(|| insert::<Scc>(size, presized)),
            ];
            rows.extend(
                measure(plan, name, &mut sides)
                    .into_iter()
                    .flat_map(|row| judged(&row, 1.0, Some(OVER_OTHERS))),
            );
        }
    }
    rows
}

/// What a change of TurboHash costs, how long its paths are and what it takes of memory: counted, so the same in every run.
fn counted(plan: &Plan) -> Result<Section, Box<dyn std::error::Error>> {
    let title = "TurboHash, counted: the most that a change costs on Pmem outside a rehash; 256-byte blocks that a search for an absent key reads; bytes of table a key";
    let mut section = Section::new(title, "", &[]);
    let mut row = |name: String, figure: f64, bound: Option<Bound>| {
        let row = Row { ours: Some(figure), ..Row::new(&name) };
        section.rows.push(match bound {
            Some(bound) => row.judged(bound),
            None => row,
        });
    };
    if !plan.wants(NAME, "counted") {
        return Ok(section);
    }
    say("hash counted");
    const KEYS: u64 = 100_000;
    let costs = conformance::costs_of_single_changes(&few_shards::<Counting<Pmem>>(KEYS)?, KEYS);
    for (what, (_, most), bound) in
        [("insert", costs.insert, 2.0), ("update", costs.update, 1.0), ("remove", costs.remove, 1.0)]
    {
        row(format!("{what}: fences"), most.fences as f64, Some(Bound::AtMost(bound)));
        row(format!("{what}: write-backs"), most.write_backs as f64, None);
    }
    for percent in [50, 60, 70, 80, 85] {
        let path = absent_path(percent)?;
        row(
            format!("absent get, {percent}% full: blocks"),
            path,
            (percent == 80).then_some(Bound::AtMost(1.4)),
        );
    }
    let (average, at_least, at_most) = bytes_a_key(plan.count(4_000_000));
    row("bytes a key just before growth".into(), at_least, Some(Bound::AtMost(24.0)));
    row("bytes a key, mean while growing from nothing".into(), average, None);
    row("bytes a key, most while growing from nothing".into(), at_most, None);
    Ok(section)
}

fn few_shards<M: terrace_medium::MappedMedium>(
    keys: u64,
) -> Result<Turbo<M, U64>, Box<dyn std::error::Error>> {
    let pool = PoolOptions::anonymous().size(256 << 20).create()?;
    Ok(Turbo::with_shards(&pool, "bench", 4, keys)?)
}

/// Blocks that a search for an absent key reads in 16 shards of 64 buckets that are so full.
fn absent_path(percent: u64) -> Result<f64, Box<dyn std::error::Error>> {
    const SLOTS: u64 = 16 * 64 * 14;
    let index = few_shards::<Counting<Dram>>(SLOTS * 4 / 5)?;
    let guard = index.pool().pin();
    let keys = SLOTS * percent / 100;
    for i in 0..keys {
        assert_eq!(index.insert(&guard, &spread(i), i)?, Inserted::New);
    }
    let reading = || (keys..2 * keys).for_each(|i| assert_eq!(index.get(&guard, &spread(i)), None));
    let (counts, ()) = index.pool().medium().during(reading);
    // Three words of each bucket, and one for the shard's place; keys that have the tag by chance make it a little more.
    Ok((counts.loads - keys) as f64 / 3.0 / keys as f64)
}

/// Bytes of table a key while a table grows from nothing to `keys` keys, from a thousandth of them on: the mean, the least and the most.
fn bytes_a_key(keys: u64) -> (f64, f64, f64) {
    let map: TurboHash = Ours::new(0, keys);
    let guard = map.index.pool().pin();
    let (mut sum, mut least, mut most, mut samples) = (0.0, f64::MAX, 0.0f64, 0.0);
    for i in 0..keys {
        map.index.insert(&guard, &spread(i), i).expect("room");
        if i >= keys / 100 && i % (keys / 400).max(1) == 0 {
            let stats = map.index.stats(&guard);
            let bytes = stats.bytes as f64 / stats.keys as f64;
            (sum, least, most, samples) = (sum + bytes, least.min(bytes), most.max(bytes), samples + 1.0);
        }
    }
    (sum / samples, least, most)
}
