//! CLHT on DRAM beside concurrent maps for Rust programs.

use crate::maps::{DashMap, Map, Papaya, Scc};
use crate::ours::Ours;
use crate::plan::{Plan, say};
use crate::workload::{Size, Workload, fill, insert, run, run_many};
use terrace_bench::{Bound, Measure, Row, Section};
use terrace_medium::Dram;

const PEERS: [&str; 3] = ["papaya", "dashmap", "scc"];

/// Gets, absent gets, updates and inserts of 10M uniform 8-byte keys.
pub(crate) fn sections(plan: &Plan) -> Vec<Section> {
    let keys = plan.count(10_000_000);
    let title = format!(
        "CLHT on DRAM beside Rust's concurrent maps: {keys} uniform 8-byte keys and 8-byte values; a guard an operation; memory touched before, \
         huge pages asked for on every side"
    );
    let mut section = Section::new(&title, "million operations/s", &PEERS);
    let mut many = Section::new(
        "CLHT's get_many of 16, prefetched together, beside single gets of the same index",
        "million gets/s",
        &["single"],
    );
    filled(plan, keys, &mut section.rows, &mut many.rows);
    section.rows.extend(inserts(plan, keys));
    [section, many].into_iter().filter(|section| !section.rows.is_empty()).collect()
}

/// The row's name, its operation, and the bound over the best peer.
const FILLED: [(&str, Workload, f64); 3] = [
    ("get", Workload::Get, 1.5),
    ("get absent", Workload::GetAbsent, 1.0),
    ("update", Workload::Update, 1.5),
];

const MANY: &str = "get_many of 16";
const THREADS: [usize; 2] = [1, 2];

fn filled(plan: &Plan, keys: u64, rows: &mut Vec<Row>, many: &mut Vec<Row>) {
    let size = |threads| Size { keys, operations: plan.count(5_000_000), threads };
    let wanted = |what: &str| {
        THREADS.map(|threads| named(what, threads)).into_iter().filter(|n| plan.wants("hash", n)).count()
    };
    if FILLED.iter().map(|f| f.0).chain([MANY]).map(wanted).sum::<usize>() == 0 {
        return;
    }
    say("filling four maps");
    let ours: Ours<Dram> = filled_map(keys);
    let (papaya, dashmap, scc) =
        (filled_map::<Papaya>(keys), filled_map::<DashMap>(keys), filled_map::<Scc>(keys));
    for (what, workload, ratio) in FILLED {
        for threads in THREADS {
            let (name, size) = (named(what, threads), size(threads));
            let mut sides: [Measure<'_>; 4] = [
                Box::new(|| run(&ours, workload, size)),
                Box::new(|| run(&papaya, workload, size)),
                Box::new(|| run(&dashmap, workload, size)),
                Box::new(|| run(&scc, workload, size)),
            ];
            if let Some(row) = measure(plan, name, &mut sides) {
                rows.push(row.against_highest(Bound::AtLeast(ratio)));
            }
        }
    }
    for threads in THREADS {
        let (name, size) = (named(MANY, threads), size(threads));
        let mut sides: [Measure<'_>; 2] =
            [Box::new(|| run_many(&ours, size)), Box::new(|| run(&ours, Workload::Get, size))];
        many.extend(measure(plan, name, &mut sides).map(|row| row.against(0, Bound::AtLeast(2.0))));
    }
}

/// Measures a row, if it is wanted.
pub(crate) fn measure(plan: &Plan, name: String, sides: &mut [Measure<'_>]) -> Option<Row> {
    plan.wants("hash", &name).then(|| {
        say(&format!("hash {name}"));
        Row::from_measured(name, plan.runner().row(sides))
    })
}

pub(crate) fn named(what: &str, threads: usize) -> String {
    format!("{what}, {threads} thread{}", if threads == 1 { "" } else { "s" })
}

pub(crate) fn filled_map<M: Map>(keys: u64) -> M {
    let map = M::with_capacity(keys, keys);
    fill(&map, keys);
    map
}

fn inserts(plan: &Plan, keys: u64) -> Vec<Row> {
    let mut rows = Vec::new();
    for (what, presized) in [("insert, presized", true), ("insert growing", false)] {
        for threads in THREADS {
            let (name, size) = (named(what, threads), Size { keys, operations: keys, threads });
            if plan.wants("hash", &name) {
                // The first run is not timed: the allocator keeps the memory that is touched here,
                // and reuses it below.
                let _ = (
                    insert::<Papaya>(size, presized),
                    insert::<DashMap>(size, presized),
                    insert::<Scc>(size, presized),
                );
            }
            let mut sides: [Measure<'_>; 4] = [
                Box::new(|| insert::<Ours<Dram>>(size, presized)),
                Box::new(|| insert::<Papaya>(size, presized)),
                Box::new(|| insert::<DashMap>(size, presized)),
                Box::new(|| insert::<Scc>(size, presized)),
            ];
            let Some(row) = measure(plan, name, &mut sides) else { continue };
            if presized {
                rows.push(row.against_highest(Bound::AtLeast(1.5)));
            } else {
                let beside = |peer| Row { name: format!("{}: {peer}", row.name), ..row.clone() };
                rows.push(beside("papaya").against(0, Bound::AtLeast(2.0)));
                rows.push(Row { note: None, ..beside("dashmap") }.against(1, Bound::AtLeast(1.0)));
            }
        }
    }
    rows
}
