//! The model of slow memory `optane-100`: P-ART beside FAST & FAIR and WOART under the workloads of
//! RECIPE.
//!
//! By the model's own count of its waits, as in `cargo peers slow`: exact, and the same on every
//! machine. The processor's work costs nothing there, nor do the locks of the baselines, which lie
//! in the memory of the process.

use super::keys::Keys;
use super::maps::Tree;
use super::ours::{ArtMap, pool_bytes};
use super::theirs::Theirs;
use super::{Outcome, wants};
use crate::plan::Plan;
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
const PEERS: [&str; 2] = ["FAST & FAIR", "WOART"];
/// The name of a workload in the tables and in general, and the least ratio over FAST & FAIR with
/// integers and with strings.
type Line = (&'static str, &'static str, (Option<f64>, Option<f64>));

/// RECIPE's workloads.
const WORKLOADS: [Line; 5] = [
    ("load", "random-int", (Some(1.6), Some(4.0))),
    ("A", "recipe-a", (None, Some(4.0))),
    ("B", "recipe-b", (None, None)),
    ("C", "recipe-c", (None, Some(4.0))),
    ("E", "recipe-e", (None, None)),
];
const SEED: u64 = 5;

/// The number of keys, and of the operations of each workload.
#[derive(Clone, Copy)]
struct Size {
    keys: u64,
    operations: u64,
}

/// A tree on the model, of which one thread at a time uses a part.
trait ModelledTree<K: Keys>: Tree<K> {
    fn medium(&self) -> &Optane;
}

impl<K: Keys> ModelledTree<K> for ArtMap<K, Optane> {
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

fn art<K: Keys>(keys: u64) -> Outcome<Box<dyn ModelledTree<K>>> {
    let bytes = pool_bytes::<K>(keys) as usize;
    let mapping = Mapping::anonymous(bytes, bytes)?;
    mapping.advise_huge_pages();
    Ok(Box::new(ArtMap::on(&PoolOptions::anonymous().hash_seed(1).create_on(optane(mapping))?)))
}

fn baseline<K: Keys, B: OrderedBaseline<Optane, K> + 'static>(
    keys: u64,
) -> Outcome<Box<dyn ModelledTree<K>>> {
    Ok(Box::new(Theirs::<K, Optane, B>::new(keys, optane)?))
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
    let cost = |(_, name, _): Line| {
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

pub(super) fn sections(plan: &Plan) -> Outcome<Vec<Section>> {
    let size = Size { keys: plan.records() / 10, operations: plan.records() / 100 };
    let title = |what: &str| {
        format!(
            "P-ART beside the trees that RECIPE compares with, on {}: {what}; {} keys, then {} operations of each workload (writes are inserts, scans read 1 to 100 keys)",
            PROFILE.name, size.keys, size.operations
        )
    };
    let unit = "million operations/s, modelled";
    let section =
        |what: &str, unit: &str, peers: &[&str]| Section::new(&title(what), unit, peers).ours_named("ART");
    let mut tables = [
        section("one thread", unit, &PEERS),
        section("two threads, of which WOART's lock lets one work", unit, &PEERS[1..]),
        section(
            "one thread, lines an operation that pass the modelled cache of 512 KiB",
            "media lines",
            &PEERS,
        ),
    ];
    if wants(plan, "optane: integers") {
        rows::<IntegerKeys>(&mut tables, size)?;
    }
    if wants(plan, "optane: strings") {
        rows::<StringKeys>(&mut tables, size)?;
    }
    Ok(tables.into())
}

/// Adds the rows of a kind of keys to all tables.
fn rows<K: Keys>([one, two, lines]: &mut [Section; 3], size: Size) -> Outcome<()> {
    let most = size.keys + WORKLOADS.len() as u64 * size.operations;
    let sides = [
        costs(&*art::<K>(most)?, size),
        costs(&*baseline::<K, FastFair<Optane, K>>(most)?, size),
        costs(&*baseline::<K, Woart<Optane, K>>(most)?, size),
    ];
    for (nth, (what, _, least)) in WORKLOADS.into_iter().enumerate() {
        let costs = sides.each_ref().map(|side| side[nth]);
        let name = format!("{}: {what}", K::NAME);
        let row = |figures: &[f64]| {
            let peers = figures[1..].iter().copied().map(Some).collect();
            Row { ours: Some(figures[0]), peers, ..Row::new(name.clone()) }
        };
        let is_integers = K::NAME == IntegerKeys::NAME;
        let rates = row(&costs.map(Cost::rate));
        one.rows.push(match if is_integers { least.0 } else { least.1 } {
            Some(least) => rates.against(0, Bound::AtLeast(least)),
            None => rates,
        });
        let of_two = row(&[costs[0].rate_of_two(), costs[2].rate()]);
        two.rows.push(of_two.against(0, Bound::AtLeast(1.8)));
        lines.rows.push(row(&costs.map(|cost| cost.lines_read)));
    }
    Ok(())
}
