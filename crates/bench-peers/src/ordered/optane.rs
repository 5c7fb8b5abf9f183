//! The model of slow memory `optane-100`: our trees beside FAST & FAIR and WOART, under the
//! workloads of RECIPE.
//!
//! By the model's own count of its waits, as in `cargo peers slow`: exact, and the same on every
//! machine. The processor's work costs nothing there, nor do the locks of the baselines, which lie
//! in the memory of the process.

use super::keys::Keys;
use super::lines::{BEST, Demand, Line, trees_of};
use super::maps::Tree;
use super::ours::{Art, BwTree, Hot, Masstree, OurMap, Ours, SpTree, pool_bytes};
use super::theirs::Theirs;
use super::{NAME, Outcome};
use crate::plan::{Plan, say};
use std::borrow::Borrow;
use terrace_bench::{
    Bound, FastFair, IntegerKeys, Kind, Operation, Operations, OrderedBaseline, Row, Section, StringKeys,
    Woart, Workload,
};
use terrace_index::PointIndex;
use terrace_medium::{MappedMedium, Mapping, Pmem};
use terrace_pool::PoolOptions;
use terrace_testkit::{Profile, Slow, Traffic};

type Optane = Slow<Pmem>;

const PROFILE: Profile = Profile::OPTANE_100;
const FAST_FAIR: &str = "FAST & FAIR";
const WOART: &str = "WOART";
const PEERS: [&str; 2] = [FAST_FAIR, WOART];

/// RECIPE's workloads: their names in the tables and in general.
const WORKLOADS: [(&str, &str); 5] =
    [("load", "random-int"), ("A", "recipe-a"), ("B", "recipe-b"), ("C", "recipe-c"), ("E", "recipe-e")];

/// A workload, a tree or the best of them, and the least ratio over FAST & FAIR.
type Least = (&'static str, &'static str, f64);

const INTEGERS: &[Least] = &[("load", Art::NAME, 1.6), ("C", Hot::NAME, 1.5), ("E", BEST, 1.1)];
const STRINGS: &[Least] = &[("load", BEST, 4.0), ("A", BEST, 4.0), ("C", BEST, 4.0), ("E", BEST, 1.1)];

/// How many times the lines of HOT FAST & FAIR misses at least, in workload C.
const FEWER_OF_INTEGERS: f64 = 3.0;
const FEWER_OF_STRINGS: f64 = 8.0;
const SEED: u64 = 5;

/// The number of keys, and of the operations of each workload.
#[derive(Clone, Copy)]
struct Size {
    keys: u64,
    operations: u64,
}

impl Size {
    /// Keys at the end, if all operations are inserts.
    fn most(self) -> u64 {
        self.keys + WORKLOADS.len() as u64 * self.operations
    }
}

/// A tree on the model, of which one thread at a time uses a part.
trait ModelledTree<K: Keys>: Tree<K> {
    fn medium(&self) -> &Optane;
}

impl<T: Ours, K: Keys> ModelledTree<K> for OurMap<T, K, Optane> {
    fn medium(&self) -> &Optane {
        self.index.pool().medium()
    }
}

impl<K: Keys, B: OrderedBaseline<Optane, K>> ModelledTree<K> for Theirs<K, Optane, B> {
    fn medium(&self) -> &Optane {
        self.space.medium()
    }
}

fn optane(mapping: Mapping) -> Optane {
    Slow::counted(Pmem::new(mapping), PROFILE)
}

/// What an operation costs by the model, on the average.
#[derive(Clone, Copy)]
struct Cost {
    waited_ns: f64,
    lines_read: f64,
    /// The time in which the device moves the operation's blocks.
    busy_ns: f64,
}

impl Cost {
    fn of(traffic: Traffic, waited_ns: u64, operations: u64) -> Self {
        let an_operation = |count: u64| count as f64 / operations as f64;
        let moved = |blocks: u64, mb_per_s: u64| {
            an_operation(blocks * PROFILE.block_bytes) * 1000.0 / mb_per_s as f64
        };
        let reading = moved(traffic.blocks_read, PROFILE.read_mb_per_s);
        let writing = moved(traffic.blocks_written, PROFILE.write_mb_per_s);
        Self {
            waited_ns: an_operation(waited_ns),
            lines_read: an_operation(traffic.lines_read),
            busy_ns: reading.max(writing),
        }
    }

    /// Million operations a second of one thread.
    fn rate(self) -> f64 {
        1000.0 / self.waited_ns
    }

    /// Of two threads that wait side by side, as far as the device is fast enough.
    fn rate_of_two(self) -> f64 {
        (2.0 * self.rate()).min(1000.0 / self.busy_ns)
    }
}

/// The costs of each workload, one after the other.
fn costs<K: Keys>(tree: &dyn ModelledTree<K>, size: Size) -> Vec<Cost> {
    let mut keys = 0;
    let cost = |(_, name): (&str, &str)| {
        let workload = Workload::named(name).expect("the name of a workload");
        let operations = if workload.from_nothing { size.keys } else { size.operations };
        let there = keys;
        let (traffic, waited_ns, ()) = tree.medium().during(|| {
            for operation in Operations::new(workload, there, 0, 1, SEED).take(operations as usize) {
                keys += u64::from(operation.kind == Kind::Insert);
                apply(tree, operation);
            }
        });
        Cost::of(traffic, waited_ns, operations)
    };
    WORKLOADS.into_iter().map(cost).collect()
}

fn apply<K: Keys>(tree: &dyn ModelledTree<K>, operation: Operation) {
    let key = K::key(operation.record);
    let done = match operation.kind {
        Kind::Read => tree.get(key.borrow()) == Some(operation.record),
        Kind::Insert => tree.insert(key.borrow(), operation.record),
        Kind::Scan => tree.scan(key.borrow(), operation.records as usize) > 0,
        _ => false,
    };
    assert!(done, "{operation:?} did not do what it should");
}

/// The costs of a tree's workloads.
type Named = (&'static str, fn(Size) -> Outcome<Vec<Cost>>);

fn ours<K: Keys>() -> [Named; 5] {
    [
        (Art::NAME, of_tree::<Art, K>),
        (Hot::NAME, of_tree::<Hot, K>),
        (Masstree::NAME, of_tree::<Masstree, K>),
        (BwTree::NAME, of_tree::<BwTree, K>),
        (SpTree::NAME, of_tree::<SpTree, K>),
    ]
}

fn theirs<K: Keys>() -> [Named; 2] {
    [(FAST_FAIR, of_baseline::<K, FastFair<Optane, K>>), (WOART, of_baseline::<K, Woart<Optane, K>>)]
}

fn of_tree<T: Ours, K: Keys>(size: Size) -> Outcome<Vec<Cost>> {
    let bytes = pool_bytes::<K>(size.most()) as usize;
    let mapping = Mapping::anonymous(bytes, bytes)?;
    mapping.advise_huge_pages();
    let pool = PoolOptions::anonymous().hash_seed(1).create_on(optane(mapping))?;
    Ok(costs(&OurMap::<T, K, Optane>::on(&pool), size))
}

fn of_baseline<K: Keys, B: OrderedBaseline<Optane, K>>(size: Size) -> Outcome<Vec<Cost>> {
    Ok(costs(&Theirs::<K, Optane, B>::new(size.most(), optane)?, size))
}

pub(super) fn sections(plan: &Plan) -> Outcome<Vec<Section>> {
    let size = Size { keys: plan.records() / 10, operations: plan.records() / 100 };
    let section = |what: &str, unit: &str, peers: &[&str]| {
        let title = format!(
            "Our trees beside those that RECIPE compares with, on {}: {what}; {} keys, then {} operations of each workload (writes are inserts, scans read 1 to 100 keys)",
            PROFILE.name, size.keys, size.operations
        );
        Section::new(&title, unit, peers)
    };
    let unit = "million operations/s, modelled";
    let lines = "one thread, lines an operation that pass the modelled cache of 512 KiB";
    let mut tables = [
        section("one thread", unit, &PEERS),
        section("two threads, of which WOART's lock lets one work", unit, &PEERS[1..]),
        section(lines, "media lines", &PEERS),
    ];
    rows::<IntegerKeys>(plan, &mut tables, size)?;
    rows::<StringKeys>(plan, &mut tables, size)?;
    Ok(tables.into())
}

/// The lines of a workload in the tables of one thread, of two threads, and of media lines.
fn lines<K: Keys>(workload: &'static str) -> [Line; 3] {
    let is_integers = K::NAME == IntegerKeys::NAME;
    let of = |all: &[Least]| -> Vec<Demand> {
        let of_workload = all.iter().filter(|(on, ..)| *on == workload);
        of_workload.map(|(_, tree, least)| Demand::over(FAST_FAIR, tree, Bound::AtLeast(*least))).collect()
    };
    let rates = if is_integers { INTEGERS } else { STRINGS };
    let fewer = if is_integers { FEWER_OF_INTEGERS } else { FEWER_OF_STRINGS };
    let fewer = Demand::over(FAST_FAIR, Hot::NAME, Bound::AtMost((1000.0 / fewer).round() / 1000.0));
    let locked = Demand::over(WOART, Art::NAME, Bound::AtLeast(1.8));
    let fewer = (workload == "C").then_some(fewer).into_iter().collect();
    let line = |demands| Line::new("optane", format!("{}: {workload}", K::NAME), demands);
    [line(of(rates)), line(vec![locked]), line(fewer)]
}

/// Adds the rows of a kind of keys to all tables.
fn rows<K: Keys>(plan: &Plan, tables: &mut [Section; 3], size: Size) -> Outcome<()> {
    let lines = WORKLOADS.map(|(workload, _)| lines::<K>(workload));
    let trees = trees_of(plan, lines.as_flattened());
    if trees.is_empty() {
        return Ok(());
    }
    let costs = |(tree, costs): Named| -> Outcome<(&'static str, Vec<Cost>)> {
        say(&format!("{NAME} optane: {tree}: {}", K::NAME));
        Ok((tree, costs(size)?))
    };
    let wanted = ours::<K>().into_iter().filter(|(tree, _)| trees.contains(tree));
    let ours = wanted.map(costs).collect::<Outcome<Vec<_>>>()?;
    let [fast_fair, woart] = theirs::<K>().map(costs);
    let ((_, fast_fair), (_, woart)) = (fast_fair?, woart?);
    for (nth, lines) in lines.iter().enumerate() {
        let found = |ours_of: &dyn Fn(Cost) -> f64, peers: &[f64]| {
            let peers: Vec<_> = peers.iter().copied().map(Some).collect();
            let row = |cost| Row { ours: Some(ours_of(cost)), peers: peers.clone(), ..Row::new("") };
            ours.iter().map(|(tree, costs)| (*tree, row(costs[nth]))).collect()
        };
        let (fast_fair, woart) = (fast_fair[nth], woart[nth]);
        let all = [
            found(&Cost::rate, &[fast_fair.rate(), woart.rate()]),
            found(&Cost::rate_of_two, &[woart.rate()]),
            found(&|cost| cost.lines_read, &[fast_fair.lines_read, woart.lines_read]),
        ];
        for ((table, line), found) in tables.iter_mut().zip(lines).zip(all) {
            let peers: Vec<_> = table.peers.iter().map(String::as_str).collect();
            let rows = line.rows(plan, &peers, found);
            table.rows.extend(rows);
        }
    }
    Ok(())
}
