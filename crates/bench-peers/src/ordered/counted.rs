//! The write-backs and fences of changes, counted, with what persists the record of a byte string.

use super::keys::Keys;
use super::lines::{Demand, Line, trees_of};
use super::maps::Tree;
use super::ours::{Art, BwTree, Hot, Masstree, OurMap, Ours, SpTree, pool_bytes};
use super::theirs::Theirs;
use super::{NAME, Outcome};
use crate::plan::{Plan, say};
use std::borrow::Borrow;
use std::ops::Range;
use terrace_bench::{Bound, FastFair, IntegerKeys, OrderedBaseline, Row, Section, StringKeys, Woart};
use terrace_index::PointIndex;
use terrace_medium::{MappedMedium, Mapping};
use terrace_pool::PoolOptions;
use terrace_testkit::{Counts, TappedPmem};

type Counted = TappedPmem;

/// Keys that are added one by one.
const SINGLE: u64 = 50_000;
/// Keys that are added from nothing.
const ALL: u64 = 1_000_000;
const PEERS: [&str; 2] = ["FAST & FAIR", "WOART"];

/// A tree whose accesses are counted.
trait CountedTree<K: Keys>: Tree<K> {
    fn medium(&self) -> &Counted;
    /// Figures of its nodes.
    fn nodes(&self) -> Vec<u64>;
    /// Whether a change that led from one state of its nodes to another made or replaced one.
    fn is_structural(before: &[u64], after: &[u64]) -> bool;
    /// Removes a present key; `None` if the tree has no removal.
    fn remove(&self, key: &K::Key) -> Option<bool>;
}

impl<T: Ours, K: Keys> CountedTree<K> for OurMap<T, K, Counted> {
    fn medium(&self) -> &Counted {
        self.index.pool().medium()
    }
    fn nodes(&self) -> Vec<u64> {
        let stats = self.index.stats(&self.index.pool().pin());
        stats.nodes.into_iter().chain([stats.resizes, stats.bytes]).collect()
    }
    fn is_structural(before: &[u64], after: &[u64]) -> bool {
        // A pair of an integer and its word takes this much; a new page of another size takes more.
        const PAIR: u64 = 16;
        let [.., bytes_before] = before else { return false };
        let [nodes @ .., bytes] = after else { return false };
        !before.starts_with(nodes) || bytes.abs_diff(*bytes_before) > PAIR
    }
    fn remove(&self, key: &K::Key) -> Option<bool> {
        Some(self.remove_key(key))
    }
}

/// A baseline with removal, or without.
trait Removing<K: Keys>: OrderedBaseline<Counted, K> {
    fn removed(&self, key: &K::Key) -> Option<bool>;
}

impl<K: Keys> Removing<K> for FastFair<Counted, K> {
    fn removed(&self, key: &K::Key) -> Option<bool> {
        Some(self.remove(key).is_some())
    }
}

impl<K: Keys> Removing<K> for Woart<Counted, K> {
    fn removed(&self, _: &K::Key) -> Option<bool> {
        None
    }
}

impl<K: Keys, B: Removing<K>> CountedTree<K> for Theirs<K, Counted, B> {
    fn medium(&self) -> &Counted {
        self.space.medium()
    }
    fn nodes(&self) -> Vec<u64> {
        vec![self.space.used()]
    }
    fn is_structural(before: &[u64], after: &[u64]) -> bool {
        // A leaf or a record takes this much at most; any node takes more.
        const LEAF_MOST: u64 = 64;
        after.iter().sum::<u64>() - before.iter().sum::<u64>() > LEAF_MOST
    }
    fn remove(&self, key: &K::Key) -> Option<bool> {
        self.tree.removed(key)
    }
}

fn tree<T: Ours, K: Keys>(keys: u64) -> Outcome<OurMap<T, K, Counted>> {
    Ok(OurMap::on(&PoolOptions::anonymous().size(pool_bytes::<K>(keys)).hash_seed(11).create()?))
}

fn baseline<K: Keys, B: Removing<K>>(keys: u64) -> Outcome<Theirs<K, Counted, B>> {
    Theirs::new(keys, |mapping: Mapping| Counted::new(mapping))
}

/// Write-backs and fences a change.
type Cost = [f64; 2];

/// The costs of a tree's changes.
struct Costs {
    /// An insert, an update and a removal that make and replace no node.
    outside: [Option<Cost>; 3],
    /// An insert, from nothing; `None` if that is not counted.
    all: Option<Cost>,
}

impl Costs {
    /// In the order of the lines.
    fn figures(&self) -> Vec<Option<f64>> {
        let costs = self.outside.into_iter().chain([self.all]);
        costs.flat_map(|cost| [0, 1].map(|nth| cost.map(|cost| cost[nth]))).collect()
    }
}

fn cost(counts: Counts, changes: u64) -> Cost {
    [counts.write_backs, counts.fences].map(|figure| figure as f64 / changes as f64)
}

/// The mean cost of those changes of the keys numbered so that make and replace no node; `None` if
/// the tree has no such change, or hardly any.
fn outside<K: Keys, T: CountedTree<K>>(
    tree: &T,
    numbers: Range<u64>,
    change: impl Fn(&K::Key, u64) -> Option<bool>,
) -> Option<Cost> {
    let (mut sum, mut changes, all) = ([0.0; 2], 0.0, numbers.end - numbers.start);
    let mut before = tree.nodes();
    for number in numbers {
        let key = K::key(number);
        let (counts, changed) = tree.medium().during(|| change(key.borrow(), number));
        assert!(changed?, "a key was lost or made up, or there was no room for it");
        let after = tree.nodes();
        if !T::is_structural(&before, &after) {
            let one = cost(counts, 1);
            (sum, changes) = ([0, 1].map(|nth| sum[nth] + one[nth]), changes + 1.0);
        }
        before = after;
    }
    (changes > all as f64 / 100.0).then(|| sum.map(|sum| sum / changes))
}

fn costs<K: Keys, T: CountedTree<K>>(make: impl Fn(u64) -> Outcome<T>, plan: &Plan) -> Outcome<Costs> {
    let (tree, some) = (make(SINGLE)?, 0..SINGLE / 10);
    let outside = [
        outside(&tree, 0..SINGLE, |key, number| Some(tree.insert(key, number))),
        outside(&tree, some.clone(), |key, number| Some(tree.update(key, number + 1))),
        outside(&tree, some, |key, _| tree.remove(key)),
    ];
    let all = |tree: T| {
        let insert = |number| assert!(tree.insert(K::key(number).borrow(), number));
        cost(tree.medium().during(|| (0..ALL).for_each(insert)).0, ALL)
    };
    Ok(Costs { outside, all: counts_all::<K>(plan).then(|| make(ALL)).transpose()?.map(all) })
}

/// Whether inserts from nothing are counted: a quick run counts what is judged.
fn counts_all<K: Keys>(plan: &Plan) -> bool {
    !plan.quick || K::NAME == IntegerKeys::NAME
}

/// The costs of a tree.
type Named = (&'static str, fn(&Plan) -> Outcome<Costs>);

fn ours<K: Keys>() -> [Named; 5] {
    [
        (Art::NAME, |plan| costs(tree::<Art, K>, plan)),
        (Hot::NAME, |plan| costs(tree::<Hot, K>, plan)),
        (Masstree::NAME, |plan| costs(tree::<Masstree, K>, plan)),
        (BwTree::NAME, |plan| costs(tree::<BwTree, K>, plan)),
        (SpTree::NAME, |plan| costs(tree::<SpTree, K>, plan)),
    ]
}

fn theirs<K: Keys>() -> [Named; 2] {
    [
        (PEERS[0], |plan| costs(baseline::<K, FastFair<Counted, K>>, plan)),
        (PEERS[1], |plan| costs(baseline::<K, Woart<Counted, K>>, plan)),
    ]
}

const CHANGES: [&str; 4] = ["insert", "update", "remove", "all inserts"];
const FIGURES: [&str; 2] = ["write-backs", "fences"];
/// Lines of changes outside changes of the structure.
const OUTSIDE: usize = 3 * FIGURES.len();

/// Stands for a cost that is not judged.
const ANY: f64 = f64::INFINITY;

/// What the changes of a tree may cost, in write-backs and in fences: outside changes of its
/// structure, the record of a byte string included, and on the average of inserts from nothing.
struct Most {
    tree: &'static str,
    integers: [f64; 3],
    strings: [f64; 3],
    all_integers: Cost,
}

/// A few changes take a new slab of the pool, too.
const SLABS: f64 = 0.05;

impl Most {
    /// In the order of the lines.
    fn figures<K: Keys>(&self) -> Vec<f64> {
        let (outside, all) = match K::NAME == IntegerKeys::NAME {
            true => (self.integers, self.all_integers),
            false => (self.strings, [ANY; 2]),
        };
        outside.into_iter().flat_map(|most| [most + SLABS; 2]).chain(all).collect()
    }
}

const MOST: [Most; 5] = [
    Most { tree: Art::NAME, integers: [2.0, 1.0, 1.0], strings: [2.0, 2.0, 1.0], all_integers: [2.7, 2.1] },
    // Each insert replaces a node.
    Most { tree: Hot::NAME, integers: [ANY, 1.0, 1.0], strings: [ANY, 2.0, 1.0], all_integers: [6.6, 2.1] },
    Most {
        tree: Masstree::NAME,
        integers: [2.0, 1.0, 1.0],
        strings: [3.0, 2.0, 1.0],
        all_integers: [2.8, 2.35],
    },
    Most {
        tree: BwTree::NAME,
        integers: [2.0, 2.0, 2.0],
        strings: [3.0, 3.0, 2.0],
        all_integers: [5.0, 2.3],
    },
    Most {
        tree: SpTree::NAME,
        integers: [3.0, 1.0, 1.0],
        strings: [4.0, 2.0, 1.0],
        all_integers: [4.2, 2.2],
    },
];

pub(super) fn sections(plan: &Plan) -> Outcome<Vec<Section>> {
    let columns = |what: &str| {
        let title = format!(
            "Counted on Pmem, random keys, the record of a byte string included (one write-back and one fence of ours): {what}"
        );
        Section::new(&title, "a change", &PEERS)
    };
    let mut outside = columns(&format!(
        "the mean of changes that make and replace no node, in a tree of up to {SINGLE} keys"
    ));
    let mut all = columns(&format!("the mean of {ALL} inserts into an empty tree"));
    for [of_outside, of_all] in [rows::<IntegerKeys>(plan)?, rows::<StringKeys>(plan)?] {
        outside.rows.extend(of_outside);
        all.rows.extend(of_all);
    }
    Ok(vec![outside, all])
}

/// A line for each change and figure.
fn lines<K: Keys>() -> Vec<Line> {
    let names = CHANGES.iter().flat_map(|change| FIGURES.map(|figure| format!("{change}: {figure}")));
    let line = |(nth, name): (usize, String)| {
        let bounds = MOST.iter().map(|most| (most.tree, most.figures::<K>()[nth]));
        let bounds = bounds.filter(|(_, most)| most.is_finite());
        let demands = bounds.map(|(tree, most)| Demand::of(tree, Bound::AtMost(most))).collect();
        Line::new("counted", format!("{}, {name}", K::NAME), demands)
    };
    names.enumerate().map(line).collect()
}

/// The rows of both tables.
fn rows<K: Keys>(plan: &Plan) -> Outcome<[Vec<Row>; 2]> {
    let mut lines = lines::<K>();
    if !counts_all::<K>(plan) {
        lines.truncate(OUTSIDE);
    }
    let trees = trees_of(plan, &lines);
    if trees.is_empty() {
        return Ok([Vec::new(), Vec::new()]);
    }
    let figures = |(name, costs): Named| -> Outcome<_> {
        say(&format!("{NAME} counted: {name}: {}", K::NAME));
        Ok((name, costs(plan)?.figures()))
    };
    let wanted = ours::<K>().into_iter().filter(|(tree, _)| trees.contains(tree));
    let sides = wanted.map(figures).collect::<Outcome<Vec<_>>>()?;
    let peers = theirs::<K>().into_iter().map(figures).collect::<Outcome<Vec<_>>>()?;
    let rows_of = |(nth, line): (usize, &Line)| {
        let peers: Vec<_> = peers.iter().map(|(_, figures)| figures[nth]).collect();
        let row = |ours: &[Option<f64>]| Row { ours: ours[nth], peers: peers.clone(), ..Row::new("") };
        let found = sides.iter().map(|(tree, ours)| (*tree, row(ours))).collect();
        line.rows(plan, &PEERS, found)
    };
    let (outside, all) = lines.split_at(OUTSIDE);
    let of = |first: usize, lines: &[Line]| (first..).zip(lines).flat_map(rows_of).collect();
    Ok([of(0, outside), of(OUTSIDE, all)])
}
