//! The write-backs and fences of changes, counted, with what persists the record of a byte string.

use super::keys::Keys;
use super::maps::Tree;
use super::ours::{ArtMap, pool_bytes};
use super::theirs::Theirs;
use super::{Outcome, wants};
use crate::plan::Plan;
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

impl<K: Keys> CountedTree<K> for ArtMap<K, Counted> {
    fn medium(&self) -> &Counted {
        self.index.pool().medium()
    }
    fn nodes(&self) -> Vec<u64> {
        let stats = self.index.stats(&self.index.pool().pin());
        stats.nodes.into_iter().chain([stats.resizes]).collect()
    }
    fn is_structural(before: &[u64], after: &[u64]) -> bool {
        before != after
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

fn art<K: Keys>(keys: u64) -> Outcome<ArtMap<K, Counted>> {
    Ok(ArtMap::on(&PoolOptions::anonymous().size(pool_bytes::<K>(keys)).hash_seed(11).create()?))
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
    /// An insert, from nothing.
    all: Cost,
}

fn cost(counts: Counts, changes: u64) -> Cost {
    [counts.write_backs, counts.fences].map(|figure| figure as f64 / changes as f64)
}

/// The mean cost of those changes of the keys numbered so that make and replace no node; `None` if
/// the tree has no such change.
fn outside<K: Keys, T: CountedTree<K>>(
    tree: &T,
    numbers: Range<u64>,
    change: impl Fn(&K::Key, u64) -> Option<bool>,
) -> Option<Cost> {
    let (mut sum, mut changes) = ([0.0; 2], 0.0);
    for number in numbers {
        let (key, before) = (K::key(number), tree.nodes());
        let (counts, changed) = tree.medium().during(|| change(key.borrow(), number));
        assert!(changed?, "a key was lost or made up, or there was no room for it");
        if !T::is_structural(&before, &tree.nodes()) {
            let one = cost(counts, 1);
            (sum, changes) = ([0, 1].map(|nth| sum[nth] + one[nth]), changes + 1.0);
        }
    }
    Some(sum.map(|sum| sum / changes))
}

fn costs<K: Keys, T: CountedTree<K>>(make: impl Fn(u64) -> Outcome<T>) -> Outcome<Costs> {
    let (tree, some) = (make(SINGLE)?, 0..SINGLE / 10);
    let outside = [
        outside(&tree, 0..SINGLE, |key, number| Some(tree.insert(key, number))),
        outside(&tree, some.clone(), |key, number| Some(tree.update(key, number + 1))),
        outside(&tree, some, |key, _| tree.remove(key)),
    ];
    let tree = make(ALL)?;
    let all = || (0..ALL).for_each(|number| assert!(tree.insert(K::key(number).borrow(), number)));
    Ok(Costs { outside, all: cost(tree.medium().during(all).0, ALL) })
}

const CHANGES: [&str; 3] = ["insert", "update", "remove"];
const FIGURES: [&str; 2] = ["write-backs", "fences"];

pub(super) fn sections(plan: &Plan) -> Outcome<Vec<Section>> {
    let title = |what: &str| {
        format!(
            "Counted on Pmem, random keys, the record of a byte string included (one write-back and one fence of ours): {what}"
        )
    };
    let columns = |what: &str| Section::new(&title(what), "a change", &PEERS).ours_named("ART");
    let mut outside = columns(&format!(
        "the mean of changes that make and replace no node, in a tree of up to {SINGLE} keys"
    ));
    let mut all = columns(&format!("the mean of {ALL} inserts into an empty tree"));
    let mut add = |[of_outside, of_all]: [Vec<Row>; 2]| {
        outside.rows.extend(of_outside);
        all.rows.extend(of_all);
    };
    if wants(plan, "counted: integers") {
        add(rows::<IntegerKeys>([2.05, 1.05, 1.05], Some([2.7, 2.1]))?);
    }
    if wants(plan, "counted: strings") {
        add(rows::<StringKeys>([2.05, 2.05, 1.05], None)?);
    }
    Ok(vec![outside, all])
}

/// The rows of both tables. `most`: the costs that ours may have.
fn rows<K: Keys>(most: [f64; 3], most_of_all: Option<Cost>) -> Outcome<[Vec<Row>; 2]> {
    let sides = [
        costs(art::<K>)?,
        costs(baseline::<K, FastFair<Counted, K>>)?,
        costs(baseline::<K, Woart<Counted, K>>)?,
    ];
    let row = |name: String, figures: [Option<f64>; 3], bound: Option<f64>| {
        let row = Row { ours: figures[0], peers: figures[1..].to_vec(), ..Row::new(name) };
        match bound {
            Some(most) => row.judged(Bound::AtMost(most)),
            None => row,
        }
    };
    let mut outside = Vec::new();
    for (change, (what, most)) in CHANGES.into_iter().zip(most).enumerate() {
        for (nth, figure) in FIGURES.into_iter().enumerate() {
            let figures = sides.each_ref().map(|side| side.outside[change].map(|cost| cost[nth]));
            outside.push(row(format!("{}, {what}: {figure}", K::NAME), figures, Some(most)));
        }
    }
    let mut all = Vec::new();
    for (nth, figure) in FIGURES.into_iter().enumerate() {
        let figures = sides.each_ref().map(|side| Some(side.all[nth]));
        all.push(row(format!("{}, insert: {figure}", K::NAME), figures, most_of_all.map(|most| most[nth])));
    }
    Ok([outside, all])
}
