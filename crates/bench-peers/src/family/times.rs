//! On DRAM, by the clock: our indexes beside each other and beside Rust's concurrent maps.

use super::{ClhtHash, LevelHash, NAME, RewoHash, TurboHash};
use crate::hash::{filled_map, measure, named};
use crate::maps::{DashMap, Papaya, Scc};
use crate::ours::Ours;
use crate::plan::{Plan, say};
use crate::workload::{Size, Workload, insert, run, run_many};
use terrace_bench::{Bound, Measure, Row, Section};
use terrace_index::{U64, ordered::Art};
use terrace_medium::Dram;

const PEERS: [&str; 7] = ["CLHT", "Level", "Rewo", "ART", "papaya", "dashmap", "scc"];
const CLHT: usize = 0;
/// The first peer that is not ours.
const OTHERS: usize = 4;
const THREADS: [usize; 2] = [1, 2];

type TurboMap = Ours<Dram, TurboHash<Dram>>;
type ClhtMap = Ours<Dram, ClhtHash<Dram>>;
type LevelMap = Ours<Dram, LevelHash<Dram>>;
type RewoMap = Ours<Dram, RewoHash<Dram>>;
/// Of the ordered indexes, to show what order costs.
type ArtMap = Ours<Dram, Art<Dram, U64>>;

pub(super) fn sections(plan: &Plan) -> [Section; 2] {
    let keys = plan.records();
    let title = |beside: &str| {
        format!(
            "TurboHash on DRAM beside {beside}: {keys} uniform 8-byte keys and 8-byte values; a guard an operation; memory touched before, huge pages asked for on \
             every side; both tables from the same runs"
        )
    };
    let unit = "million operations/s";
    let mut ours =
        Section::new(&title("our other hash indexes and P-ART"), unit, &PEERS[..OTHERS]).ours_named("Turbo");
    let mut others =
        Section::new(&title("Rust's concurrent maps"), unit, &PEERS[OTHERS..]).ours_named("Turbo");
    for judged in filled(plan, keys).into_iter().chain(inserts(plan, keys)) {
        ours.rows.push(judged.0);
        others.rows.extend(judged.1);
    }
    [ours, others]
}

/// A row judged against our other indexes, and one judged against the foreign maps.
type Judged = (Row, Option<Row>);

/// Operations on full maps, and the bounds over CLHT and over the best foreign map.
const FILLED: [(&str, Workload, f64); 3] = [
    ("get", Workload::Get, 1.0),
    ("get absent", Workload::GetAbsent, 1.2),
    ("update", Workload::Update, 1.0),
];
const OVER_OTHERS: f64 = 1.5;

fn filled(plan: &Plan, keys: u64) -> Vec<Judged> {
    let mut rows = Vec::new();
    let many = "get_many of 16";
    let whats = FILLED.map(|filled| filled.0).into_iter().chain([many]);
    if !whats.flat_map(|what| THREADS.map(|threads| named(what, threads))).any(|name| plan.wants(NAME, &name))
    {
        return rows;
    }
    say("filling eight maps");
    let (turbo, clht): (TurboMap, ClhtMap) = (filled_map(keys), filled_map(keys));
    let (level, rewo, art): (LevelMap, RewoMap, ArtMap) =
        (filled_map(keys), filled_map(keys), filled_map(keys));
    let (papaya, dashmap, scc) =
        (filled_map::<Papaya>(keys), filled_map::<DashMap>(keys), filled_map::<Scc>(keys));
    let size = |threads| Size { keys, operations: plan.count(5_000_000), threads };
    for (what, workload, over_clht) in FILLED {
        for threads in THREADS {
            let size = size(threads);
            let mut sides: [Measure<'_>; 8] = [
                Box::new(|| run(&turbo, workload, size)),
                Box::new(|| run(&clht, workload, size)),
                Box::new(|| run(&level, workload, size)),
                Box::new(|| run(&rewo, workload, size)),
                Box::new(|| run(&art, workload, size)),
                Box::new(|| run(&papaya, workload, size)),
                Box::new(|| run(&dashmap, workload, size)),
                Box::new(|| run(&scc, workload, size)),
            ];
            let others = (workload != Workload::GetAbsent).then_some(OVER_OTHERS);
            rows.extend(
                measure(plan, named(what, threads), &mut sides)
                    .into_iter()
                    .map(|row| judged(&row, over_clht, others)),
            );
        }
    }
    for threads in THREADS {
        let size = size(threads);
        let mut sides: [Measure<'_>; 5] = [
            Box::new(|| run_many(&turbo, size)),
            Box::new(|| run_many(&clht, size)),
            Box::new(|| run_many(&level, size)),
            Box::new(|| run_many(&rewo, size)),
            Box::new(|| run_many(&art, size)),
        ];
        rows.extend(
            measure(plan, named(many, threads), &mut sides)
                .map(|row| (row.against(CLHT, Bound::AtLeast(1.0)), None)),
        );
    }
    rows
}

/// A row twice: against CLHT, and against the best foreign map.
fn judged(row: &Row, over_clht: f64, over_others: Option<f64>) -> Judged {
    let (ours, others) = row.peers.split_at(OTHERS);
    let beside = |peers: &[Option<f64>]| Row { peers: peers.to_vec(), ..row.clone() };
    let others = beside(others);
    (
        beside(ours).against(CLHT, Bound::AtLeast(over_clht)),
        Some(match over_others {
            Some(ratio) => others.against_highest(Bound::AtLeast(ratio)),
            None => others,
        }),
    )
}

fn inserts(plan: &Plan, keys: u64) -> Vec<Judged> {
    let mut rows = Vec::new();
    for (what, presized) in [("insert, presized", true), ("insert growing", false)] {
        for threads in THREADS {
            let (name, size) = (named(what, threads), Size { keys, operations: keys, threads });
            if !plan.wants(NAME, &name) {
                continue;
            }
            // The first run is not timed: the allocator keeps the memory that is touched here, and
            // reuses it below.
            let _ = (
                insert::<Papaya>(size, presized),
                insert::<DashMap>(size, presized),
                insert::<Scc>(size, presized),
            );
            let mut sides: [Measure<'_>; 8] = [
                Box::new(|| insert::<TurboMap>(size, presized)),
                Box::new(|| insert::<ClhtMap>(size, presized)),
                Box::new(|| insert::<LevelMap>(size, presized)),
                Box::new(|| insert::<RewoMap>(size, presized)),
                Box::new(|| insert::<ArtMap>(size, presized)),
                Box::new(|| insert::<Papaya>(size, presized)),
                Box::new(|| insert::<DashMap>(size, presized)),
                Box::new(|| insert::<Scc>(size, presized)),
            ];
            rows.extend(
                measure(plan, name, &mut sides).into_iter().map(|row| judged(&row, 1.0, Some(OVER_OTHERS))),
            );
        }
    }
    rows
}
