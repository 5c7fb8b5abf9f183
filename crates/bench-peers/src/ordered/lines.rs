//! Lines of tables: a figure of each of our trees, and what it must reach.
//!
//! A line makes a row for each tree and bound, and one for the best of the trees if it has a bound
//! for that. Each tree's rows are chosen by a name of their own, so that only its side is measured.

use super::NAME;
use super::ours::{Art, Masstree, Ours, TREES};
use crate::plan::{Plan, say};
use terrace_bench::{Bound, Measured, Row};

/// Stands for the best of our trees.
pub(super) const BEST: &str = "best";

/// A bound on the figure of a tree, or of the best of them.
#[derive(Clone, Copy)]
pub(super) struct Demand {
    tree: &'static str,
    /// The peer by whose figure it is divided; `None` if the figure itself is judged.
    over: Option<&'static str>,
    bound: Bound,
}

impl Demand {
    /// A ratio to a peer.
    pub(super) const fn over(peer: &'static str, tree: &'static str, bound: Bound) -> Self {
        Self { tree, over: Some(peer), bound }
    }

    /// A figure.
    pub(super) const fn of(tree: &'static str, bound: Bound) -> Self {
        Self { tree, over: None, bound }
    }
}

/// Something that is measured on each tree.
pub(super) struct Line {
    /// The part of the suite.
    part: &'static str,
    /// The name of its rows, without the tree's.
    what: String,
    demands: Vec<Demand>,
    /// The trees that have rows.
    among: Vec<&'static str>,
}

/// The unjudged rows of some trees.
pub(super) type Found = Vec<(&'static str, Row)>;

impl Line {
    /// A line with rows of all trees.
    pub(super) fn new(part: &'static str, what: String, demands: Vec<Demand>) -> Self {
        Self { part, what, demands, among: TREES.to_vec() }
    }

    /// A line with rows of those trees that stores are advised to have, and of those that `--only`
    /// names.
    pub(super) fn of_stores(plan: &Plan, part: &'static str, what: String, demands: Vec<Demand>) -> Self {
        let is_named = |tree: &str| plan.only.as_ref().is_some_and(|only| only.contains(tree));
        let is_usual = |tree: &str| [Art::NAME, Masstree::NAME].contains(&tree);
        let among = TREES.into_iter().filter(|tree| is_usual(tree) || is_named(tree)).collect();
        Self { part, what, demands, among }
    }

    /// The name by which a tree's rows are chosen.
    fn name(&self, tree: &str) -> String {
        format!("{}: {tree}: {}", self.part, self.what)
    }

    fn wants(&self, plan: &Plan, tree: &str) -> bool {
        plan.wants(NAME, &self.name(tree))
    }

    fn asks_for_best(&self) -> bool {
        self.demands.iter().any(|demand| demand.tree == BEST)
    }

    /// The trees that must be measured for the wanted rows.
    pub(super) fn trees(&self, plan: &Plan) -> Vec<&'static str> {
        let are_all = self.asks_for_best() && self.wants(plan, BEST);
        self.among.iter().copied().filter(|tree| are_all || self.wants(plan, tree)).collect()
    }

    /// As [`Line::trees`]; prints the names of the rows, since their measurement begins.
    pub(super) fn begin(&self, plan: &Plan) -> Vec<&'static str> {
        let trees = self.trees(plan);
        let best = self.asks_for_best().then_some(BEST);
        for tree in trees.iter().copied().chain(best).filter(|tree| self.wants(plan, tree)) {
            say(&format!("{NAME} {}", self.name(tree)));
        }
        trees
    }

    /// The wanted rows, judged.
    pub(super) fn rows(&self, plan: &Plan, peers: &[&str], mut found: Found) -> Vec<Row> {
        if self.asks_for_best() && found.len() == TREES.len() {
            found.extend(best(&found));
        }
        found.retain(|(tree, _)| self.wants(plan, tree));
        found.iter().flat_map(|(tree, row)| self.judged(tree, row, peers)).collect()
    }

    /// A row for each bound on the tree, or one that is not judged.
    fn judged(&self, tree: &str, row: &Row, peers: &[&str]) -> Vec<Row> {
        let row = Row { name: format!("{tree}: {}", self.what), ..row.clone() };
        let demands = self.demands.iter().filter(|demand| demand.tree == tree);
        let judged = demands.map(|demand| match demand.over {
            None => row.clone().judged(demand.bound),
            Some(peer) => {
                let nth = peers.iter().position(|name| *name == peer).expect("a column of the table");
                let name = format!("{} over {peer}", row.name);
                Row { name, ..row.clone() }.against(nth, demand.bound)
            }
        });
        let judged: Vec<_> = judged.collect();
        if judged.is_empty() { vec![row] } else { judged }
    }
}

/// The row of the tree with the highest figure.
fn best(found: &Found) -> Option<(&'static str, Row)> {
    let figure = |row: &Row| row.ours.unwrap_or(f64::NEG_INFINITY);
    let (tree, row) = found.iter().max_by(|a, b| figure(&a.1).total_cmp(&figure(&b.1)))?;
    Some((BEST, row.clone().noting((*tree).to_owned())))
}

/// The trees that are measured for any of the lines.
pub(super) fn trees_of(plan: &Plan, lines: &[Line]) -> Vec<&'static str> {
    let is_wanted = |tree: &&str| lines.iter().any(|line| line.trees(plan).contains(tree));
    TREES.into_iter().filter(is_wanted).collect()
}

/// The rows of a run whose first sides are those of the trees, and whose others are their peers'.
pub(super) fn apart(trees: &[&'static str], measured: &Measured) -> Found {
    let peers = trees.len()..measured.medians.len();
    let of = |nth| of_sides(measured, &std::iter::once(nth).chain(peers.clone()).collect::<Vec<_>>());
    trees.iter().enumerate().map(|(nth, tree)| (*tree, of(nth))).collect()
}

/// The row of a run whose sides are those of a tree and its only peer, of each tree in turn.
pub(super) fn in_pairs(trees: &[&'static str], measured: &Measured) -> Found {
    let pairs = trees.iter().enumerate();
    pairs.map(|(nth, tree)| (*tree, of_sides(measured, &[2 * nth, 2 * nth + 1]))).collect()
}

/// The row of some sides of a run, ours first.
fn of_sides(measured: &Measured, sides: &[usize]) -> Row {
    let medians = sides.iter().map(|&side| measured.medians[side]).collect();
    let figures = sides.iter().map(|&side| measured.figures[side].clone()).collect();
    Row::from_measured("", Measured { medians, figures, ..measured.clone() })
}
