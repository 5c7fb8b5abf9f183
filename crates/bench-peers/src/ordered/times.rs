//! On DRAM, by the clock: our trees beside Rust's ordered maps and beside themselves, with integers
//! and with strings.

use super::keys::Keys;
use super::lines::{BEST, Demand, Line, apart, in_pairs};
use super::ours::{Art, BwTree, Hot, Masstree, Ours};
use super::sides::{BTREE_MAP, CONGEE, CRATE, Side, ours, peers_of_integers, peers_of_strings};
use super::work::{SCANNED, Size, Work};
use crate::hash::named;
use crate::plan::Plan;
use terrace_bench::{Bound, IntegerKeys, Measure, Measured, Row, Section, StringKeys};

const THREADS: [usize; 2] = [1, 2];
const UNIT: &str = "million operations/s";
const ART: &str = Art::NAME;
const HOT: &str = Hot::NAME;
const MASSTREE: &str = Masstree::NAME;
const BW_TREE: &str = BwTree::NAME;

/// A peer, a tree or the best of them, and the least ratio with one thread and with two.
type Least = (&'static str, &'static str, [f64; 2]);

/// Rows with one thread, and with two.
struct Timed {
    what: &'static str,
    work: Work,
    least: &'static [Least],
}

const INTEGERS: [Timed; 6] = [
    Timed {
        what: "insert growing",
        work: Work::Insert,
        least: &[
            (CONGEE, ART, [1.4, 1.4]),
            (CONGEE, HOT, [0.7, 0.7]),
            (CONGEE, MASSTREE, [0.9, 0.9]),
            (CONGEE, BW_TREE, [0.8, 0.8]),
        ],
    },
    Timed {
        what: "get",
        work: Work::Get,
        least: &[
            (CONGEE, ART, [2.0, 1.7]),
            (CONGEE, HOT, [1.5, 1.3]),
            (CONGEE, MASSTREE, [1.3, 1.2]),
            (CONGEE, BW_TREE, [1.0, 1.0]),
            (CRATE, MASSTREE, [1.1, 1.1]),
            (CRATE, BEST, [1.5, 1.5]),
        ],
    },
    Timed {
        what: "get absent",
        work: Work::GetAbsent,
        least: &[
            (CONGEE, ART, [1.4, 1.4]),
            (CONGEE, HOT, [0.8, 0.8]),
            (CONGEE, MASSTREE, [0.7, 0.7]),
            (CONGEE, BW_TREE, [0.5, 0.5]),
        ],
    },
    Timed {
        what: "update",
        work: Work::Update,
        least: &[
            (CONGEE, ART, [2.0, 1.6]),
            (CONGEE, HOT, [1.5, 1.2]),
            (CONGEE, MASSTREE, [1.2, 0.96]),
            (CONGEE, BW_TREE, [0.8, 0.64]),
        ],
    },
    Timed {
        what: "remove",
        work: Work::Remove,
        least: &[
            (CONGEE, ART, [1.5, 1.2]),
            (CONGEE, HOT, [1.2, 0.96]),
            (CONGEE, MASSTREE, [1.0, 0.8]),
            (CONGEE, BW_TREE, [0.7, 0.56]),
        ],
    },
    SCAN,
];

const SCAN: Timed = Timed {
    what: "scan of 50",
    work: Work::Scan,
    least: &[
        (BTREE_MAP, ART, [1.3, 3.0]),
        (BTREE_MAP, HOT, [1.3, 3.0]),
        (BTREE_MAP, MASSTREE, [2.4, 6.0]),
        (BTREE_MAP, BW_TREE, [2.0, 5.0]),
        (CRATE, MASSTREE, [1.2, 1.2]),
    ],
};

const STRINGS: [Timed; 6] = [
    Timed { what: "insert growing", work: Work::Insert, least: &[] },
    Timed {
        what: "get",
        work: Work::Get,
        least: &[(CRATE, BEST, [1.5, 1.5]), (BTREE_MAP, BEST, [4.0, 4.0])],
    },
    Timed { what: "get absent", work: Work::GetAbsent, least: &[] },
    Timed { what: "update", work: Work::Update, least: &[] },
    Timed { what: "remove", work: Work::Remove, least: &[] },
    SCAN,
];

/// Of the comparisons of a tree with itself.
const SINGLE: &str = "single gets";
const OWN_INTEGERS: &str = "integers";

const MANY: Timed = Timed {
    what: "get_many of 16",
    work: Work::GetMany,
    least: &[
        (SINGLE, ART, [2.2, 2.2]),
        (SINGLE, HOT, [2.5, 2.5]),
        (SINGLE, MASSTREE, [2.5, 2.5]),
        (SINGLE, BW_TREE, [2.0, 2.0]),
    ],
};

const OVER_INTEGERS: Timed = Timed {
    what: "get of strings",
    work: Work::Get,
    least: &[(OWN_INTEGERS, ART, [0.75, 0.75]), (OWN_INTEGERS, HOT, [0.75, 0.75])],
};

impl Timed {
    /// The line for one of `THREADS`.
    fn line<K: Keys>(&self, nth: usize) -> Line {
        let demand = |least: &Least| Demand::over(least.0, least.1, Bound::AtLeast(least.2[nth]));
        let demands = self.least.iter().map(demand).collect();
        Line::new(K::NAME, named(self.what, THREADS[nth]), demands)
    }

    fn size(&self, plan: &Plan, threads: usize) -> Size {
        let keys = plan.records();
        let operations = match self.work {
            Work::Insert => keys,
            Work::Remove => keys / 20,
            Work::Scan => plan.count(200_000),
            Work::GetMany => plan.count(3_000_000) / 16 * 16,
            Work::Get | Work::GetAbsent | Work::Update => plan.count(3_000_000),
        };
        Size { keys, operations, threads }
    }
}

pub(super) fn sections(plan: &Plan) -> Vec<Section> {
    let (integers, strings) = (ours::<IntegerKeys>(), ours::<StringKeys>());
    let mut sections = beside::<IntegerKeys>(plan, &integers, &peers_of_integers(), &INTEGERS).to_vec();
    sections.push(many::<IntegerKeys>(plan, &integers));
    sections.extend(beside::<StringKeys>(plan, &strings, &peers_of_strings(), &STRINGS));
    sections.push(many::<StringKeys>(plan, &strings));
    sections.push(over_integers(plan, &strings, &integers));
    sections
}

/// The table of operations, and the table of scans.
fn beside<K: Keys>(plan: &Plan, ours: &[Side], peers: &[Side], timed: &[Timed]) -> [Section; 2] {
    let keys = plan.records();
    let fair = "a guard an operation; memory touched before, huge pages asked for on every side";
    let records = match K::NAME {
        "strings" => "YCSB's keys of 24 bytes, ours in records of 32 with their value",
        _ => "random 8-byte keys and 8-byte values",
    };
    let names: Vec<&str> = peers.iter().map(|side| side.name).collect();
    let table = |what: &str, unit: &str| {
        let title = format!("Our trees on DRAM beside Rust's ordered maps, {what}: {keys} {records}; {fair}");
        Section::new(&title, unit, &names)
    };
    let mut operations = table("single keys", UNIT);
    let mut scans = table("50 keys and values in order, from a random key on", "million scans/s");
    for timed in timed {
        let section = if timed.work == Work::Scan { &mut scans } else { &mut operations };
        for (nth, threads) in THREADS.into_iter().enumerate() {
            let (line, size) = (timed.line::<K>(nth), timed.size(plan, threads));
            let trees = line.begin(plan);
            if !trees.is_empty() {
                let measured = together(plan, of(&trees, ours), peers, timed.work, size);
                section.rows.extend(line.rows(plan, &names, apart(&trees, &measured)));
            }
        }
    }
    [operations, scans]
}

/// The sides of these trees.
fn of<'s>(trees: &[&str], ours: &'s [Side]) -> Vec<&'s Side> {
    ours.iter().filter(|side| trees.contains(&side.name)).collect()
}

/// A run of our sides and all peers.
fn together<'s>(
    plan: &Plan,
    mut sides: Vec<&'s Side>,
    peers: &'s [Side],
    work: Work,
    size: Size,
) -> Measured {
    if work == Work::Insert {
        // The first run is not timed: the allocator keeps the memory that is touched here, and
        // reuses it below.
        peers.iter().for_each(|side| _ = side.run(work, size));
    }
    sides.extend(peers);
    let with_work: Vec<_> = sides.into_iter().map(|side| (side, work)).collect();
    alternately(plan, &with_work, size)
}

/// A run of sides, each at its work.
fn alternately(plan: &Plan, sides: &[(&Side, Work)], size: Size) -> Measured {
    sides.iter().for_each(|(side, work)| side.prepare(*work, size));
    let measure = |&(side, work)| -> Measure<'_> { Box::new(move || Side::run(side, work, size)) };
    plan.runner().row(&mut sides.iter().map(measure).collect::<Vec<_>>())
}

/// Reads together beside single ones.
fn many<K: Keys>(plan: &Plan, ours: &[Side]) -> Section {
    let title = format!("get_many of 16 of our trees beside their own gets: {} {}", plan.records(), K::NAME);
    let mut section = Section::new(&title, UNIT, &[SINGLE]);
    section.rows = pairs::<K>(plan, &MANY, &[SINGLE], [ours, ours]);
    section
}

/// Strings beside integers.
fn over_integers(plan: &Plan, strings: &[Side], integers: &[Side]) -> Section {
    let title = format!(
        "Strings in our trees beside integers in the same ones: {} keys of either kind",
        plan.records()
    );
    let mut section = Section::new(&title, UNIT, &[OWN_INTEGERS]);
    section.rows = pairs::<StringKeys>(plan, &OVER_INTEGERS, &[OWN_INTEGERS], [strings, integers]);
    section
}

/// The rows of trees beside themselves: at the line's work, and at single gets.
fn pairs<K: Keys>(plan: &Plan, timed: &Timed, peer: &[&str], [ours, own]: [&[Side]; 2]) -> Vec<Row> {
    let mut rows = Vec::new();
    for (nth, threads) in THREADS.into_iter().enumerate() {
        let line = timed.line::<K>(nth);
        let trees = line.begin(plan);
        if trees.is_empty() {
            continue;
        }
        let pairs = of(&trees, ours).into_iter().zip(of(&trees, own));
        let sides: Vec<_> = pairs.flat_map(|(ours, own)| [(ours, timed.work), (own, Work::Get)]).collect();
        let measured = alternately(plan, &sides, timed.size(plan, threads));
        rows.extend(line.rows(plan, peer, in_pairs(&trees, &measured)));
    }
    rows
}

const _: () = assert!(SCANNED == 50, "the name of the row of scans");
