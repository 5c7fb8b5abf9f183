//! On DRAM, by the clock: P-ART beside Rust's ordered maps, with integers and with strings.

use super::keys::Keys;
use super::maps::{Congee, Locked, Map, Masstree, SkipList};
use super::ours::ArtMap;
use super::wants;
use super::work::{SCANNED, Size, Work, filled, insert, remove, run, run_many};
use crate::hash::named;
use crate::plan::{Plan, say};
use std::marker::PhantomData;
use terrace_bench::{Bound, IntegerKeys, Measure, Row, Section, StringKeys};

const THREADS: [usize; 2] = [1, 2];
const UNIT: &str = "million operations/s";

/// A full map whose operations are timed.
trait Full {
    fn run(&self, work: Work, size: Size) -> f64;
    fn remove(&self, size: Size) -> f64;
}

struct FullMap<K, T>(T, PhantomData<fn() -> K>);

impl<K: Keys, T: Map<K>> Full for FullMap<K, T> {
    fn run(&self, work: Work, size: Size) -> f64 {
        run::<K, T>(&self.0, work, size)
    }
    fn remove(&self, size: Size) -> f64 {
        remove::<K, T>(&self.0, size)
    }
}

/// A kind of maps.
#[derive(Clone, Copy)]
struct Side {
    name: &'static str,
    fill: fn(u64) -> Box<dyn Full>,
    insert: fn(Size) -> f64,
}

impl Side {
    const fn of<K: Keys, T: Map<K> + 'static>(name: &'static str) -> Self {
        Self {
            name,
            fill: |keys| Box::new(FullMap(filled::<K, T>(keys), PhantomData)),
            insert: insert::<K, T>,
        }
    }
}

const INTEGERS: [Side; 5] = [
    Side::of::<IntegerKeys, ArtMap<IntegerKeys>>("ART"),
    Side::of::<IntegerKeys, Congee>("congee"),
    Side::of::<IntegerKeys, Masstree>("masstree"),
    Side::of::<IntegerKeys, SkipList<IntegerKeys>>("skip list"),
    Side::of::<IntegerKeys, Locked<IntegerKeys>>("BTreeMap"),
];

const STRINGS: [Side; 4] = [
    Side::of::<StringKeys, ArtMap<StringKeys>>("ART"),
    Side::of::<StringKeys, Masstree>("masstree"),
    Side::of::<StringKeys, SkipList<StringKeys>>("skip list"),
    Side::of::<StringKeys, Locked<StringKeys>>("BTreeMap"),
];

/// A kind of operation of the tables.
#[derive(Clone, Copy)]
enum Task {
    Full(Work),
    Insert,
    Remove,
}

/// The least ratio over a peer, with one thread and with two.
type Least = (&'static str, [f64; 2]);

/// A row of a table for one thread, and one for two.
struct Line {
    what: &'static str,
    task: Task,
    least: &'static [Least],
}

const INTEGER_LINES: [Line; 5] = [
    Line {
        what: "get",
        task: Task::Full(Work::Get),
        least: &[("congee", [2.0, 1.7]), ("masstree", [1.5, 1.5])],
    },
    Line { what: "get absent", task: Task::Full(Work::GetAbsent), least: &[("congee", [1.4, 1.4])] },
    Line { what: "update", task: Task::Full(Work::Update), least: &[("congee", [2.0, 1.6])] },
    Line { what: "remove", task: Task::Remove, least: &[("congee", [1.5, 1.2])] },
    Line { what: "insert growing", task: Task::Insert, least: &[("congee", [1.4, 1.4])] },
];

const STRING_LINES: [Line; 5] = [
    Line {
        what: "get",
        task: Task::Full(Work::Get),
        least: &[("masstree", [1.5, 1.5]), ("BTreeMap", [4.0, 4.0])],
    },
    Line { what: "get absent", task: Task::Full(Work::GetAbsent), least: &[] },
    Line { what: "update", task: Task::Full(Work::Update), least: &[] },
    Line { what: "remove", task: Task::Remove, least: &[] },
    Line { what: "insert growing", task: Task::Insert, least: &[] },
];

const SCAN: &str = "scan of 50";
const SCAN_LEAST: &[Least] = &[("BTreeMap", [1.3, 3.0])];

pub(super) fn sections(plan: &Plan) -> Vec<Section> {
    let [integers, integer_scans] = beside::<IntegerKeys>(plan, &INTEGERS, &INTEGER_LINES);
    let [strings, string_scans] = beside::<StringKeys>(plan, &STRINGS, &STRING_LINES);
    vec![integers, integer_scans, strings, string_scans, own(plan)]
}

/// A row's name in the choice of rows.
fn name_of<K: Keys>(what: &str, threads: usize) -> String {
    format!("{}: {}", K::NAME, named(what, threads))
}

/// The table of operations, and the table of scans.
fn beside<K: Keys>(plan: &Plan, sides: &[Side], lines: &[Line]) -> [Section; 2] {
    let keys = plan.records();
    let fair = "a guard an operation; memory touched before, huge pages asked for on every side";
    let records = match K::NAME {
        "strings" => "YCSB's keys of 24 bytes, ours in records of 32 with their value",
        _ => "random 8-byte keys and 8-byte values",
    };
    let peers: Vec<&str> = sides[1..].iter().map(|side| side.name).collect();
    let table = |what: &str, unit: &str| {
        let title = format!("P-ART on DRAM beside Rust's ordered maps, {what}: {keys} {records}; {fair}");
        Section::new(&title, unit, &peers).ours_named(sides[0].name)
    };
    let (mut operations, mut scans) = (
        table("single keys", UNIT),
        table("50 keys and values in order, from a random key on", "million scans/s"),
    );
    let scan = Line { what: SCAN, task: Task::Full(Work::Scan), least: SCAN_LEAST };
    let wanted = |line: &&Line| {
        THREADS.iter().any(|&threads| plan.wants(super::NAME, &name_of::<K>(line.what, threads)))
    };
    let of_full = |line: &&Line| !matches!(line.task, Task::Insert);
    if lines.iter().chain([&scan]).filter(of_full).any(|line| wanted(&line)) {
        say(&format!("{}: filling {} maps with {}", super::NAME, sides.len(), K::NAME));
        let full: Vec<_> = sides.iter().map(|side| (side.fill)(keys)).collect();
        for line in lines.iter().filter(of_full) {
            operations.rows.extend(rows::<K>(plan, sides, &full, line));
        }
        scans.rows.extend(rows::<K>(plan, sides, &full, &scan));
    }
    for line in lines.iter().filter(|line| !of_full(line)) {
        operations.rows.extend(rows::<K>(plan, sides, &[], line));
    }
    [operations, scans]
}

/// The rows of a line: one for each number of threads and each peer that it is judged against.
fn rows<K: Keys>(plan: &Plan, sides: &[Side], full: &[Box<dyn Full>], line: &Line) -> Vec<Row> {
    let keys = plan.records();
    let mut rows = Vec::new();
    for (nth, threads) in THREADS.into_iter().enumerate() {
        if !wants(plan, &name_of::<K>(line.what, threads)) {
            continue;
        }
        let operations = match line.task {
            Task::Full(Work::Scan) => plan.count(200_000),
            Task::Full(_) => plan.count(3_000_000),
            Task::Insert => keys,
            Task::Remove => keys / 20,
        };
        let size = Size { keys, operations, threads };
        if matches!(line.task, Task::Insert) {
            // The first run is not timed: the allocator keeps the memory that is touched here, and
            // reuses it below.
            sides.iter().skip(1).for_each(|side| _ = (side.insert)(size));
        }
        let mut measures: Vec<Measure<'_>> = Vec::new();
        for (nth, side) in sides.iter().enumerate() {
            measures.push(match line.task {
                Task::Full(work) => Box::new(move || full[nth].run(work, size)),
                Task::Insert => Box::new(move || (side.insert)(size)),
                Task::Remove => Box::new(move || full[nth].remove(size)),
            });
        }
        let row = Row::from_measured(named(line.what, threads), plan.runner().row(&mut measures));
        rows.extend(against(sides, row, line.least, nth));
    }
    rows
}

/// The row, judged against the first peer, and a copy for each of the others.
fn against(sides: &[Side], row: Row, least: &[Least], nth: usize) -> Vec<Row> {
    let peer = |name: &str| sides.iter().position(|side| side.name == name).map_or(0, |at| at - 1);
    let mut rows: Vec<Row> = (least.iter())
        .map(|(name, least)| {
            let row = Row { name: format!("{}: {name}", row.name), ..row.clone() };
            row.against(peer(name), Bound::AtLeast(least[nth]))
        })
        .collect();
    if rows.is_empty() {
        rows.push(row);
    }
    rows
}

/// P-ART beside itself: reads together beside single ones, strings beside integers.
fn own(plan: &Plan) -> Section {
    let title = format!(
        "P-ART's get_many of 16 beside its own gets, and its strings beside its own integers: {} keys of either kind",
        plan.records()
    );
    let mut section = Section::new(&title, UNIT, &["beside"]);
    let names = ["integers: get_many of 16", "strings: get_many of 16", "strings over integers"];
    if !names.iter().any(|what| THREADS.iter().any(|&threads| plan.wants(super::NAME, &named(what, threads))))
    {
        return section;
    }
    let keys = plan.records();
    say(&format!("{}: filling two trees", super::NAME));
    let (integers, strings): (ArtMap<IntegerKeys>, ArtMap<StringKeys>) =
        (filled::<IntegerKeys, _>(keys), filled::<StringKeys, _>(keys));
    for threads in THREADS {
        let size = Size { keys, operations: plan.count(3_000_000) / 16 * 16, threads };
        let get_integers = || run::<IntegerKeys, _>(&integers, Work::Get, size);
        let get_strings = || run::<StringKeys, _>(&strings, Work::Get, size);
        let pairs: [[Measure<'_>; 2]; 3] = [
            [Box::new(|| run_many(&integers, size)), Box::new(get_integers)],
            [Box::new(|| run_many(&strings, size)), Box::new(get_strings)],
            [Box::new(get_strings), Box::new(get_integers)],
        ];
        for ((what, mut sides), least) in names.into_iter().zip(pairs).zip([2.2, 2.2, 0.75]) {
            let name = named(what, threads);
            if wants(plan, &name) {
                let row = Row::from_measured(name, plan.runner().row(&mut sides));
                section.rows.push(row.against(0, Bound::AtLeast(least)));
            }
        }
    }
    section
}

const _: () = assert!(SCANNED == 50, "the name of the row of scans");
