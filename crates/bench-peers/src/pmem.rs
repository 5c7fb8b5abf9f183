//! P-CLHT on memory behind a volatile cache: the write-backs and fences of a change, and how close
//! its time comes to their bound.

use crate::ours::Ours;
use crate::plan::{Plan, say};
use std::collections::HashMap;
use std::time::Instant;
use terrace_bench::{Bound, Measure, Probe, Random, Row, Section, spread};
use terrace_conformance as conformance;
use terrace_index::{Inserted, PointIndex, Stored, U64, hash::Clht};
use terrace_medium::{MapError, MappedMedium, Pmem};
use terrace_testkit::TappedPmem;

const NAME: &str = "pmem";

/// Both tables of results.
pub(crate) fn sections(plan: &Plan) -> Result<Vec<Section>, MapError> {
    let sections = [counts(plan), times(plan)?];
    Ok(sections.into_iter().filter(|section| !section.rows.is_empty()).collect())
}

/// Write-backs and fences, counted.
fn counts(plan: &Plan) -> Section {
    const KEYS: u64 = 1_000_000;
    let title = "P-CLHT on Pmem, counted: the most that any single change of an inline pair cost outside a resize, and the mean of a million inserts \
                 from nothing";
    let mut section = Section::new(title, "a change", &[]);
    let mut row = |name: &str, figure: f64, bound: f64| {
        section.rows.push(Row { ours: Some(figure), ..Row::new(name) }.judged(Bound::AtMost(bound)));
    };
    if plan.wants(NAME, "counts") {
        say("pmem counts");
        let map = Ours::<TappedPmem>::new(KEYS / 10, KEYS / 10);
        let costs = conformance::costs_of_single_changes(&map.index, KEYS / 10);
        for (what, (_, most)) in
            [("insert", costs.insert), ("update", costs.update), ("remove", costs.remove)]
        {
            row(&format!("{what}: write-backs"), most.write_backs as f64, 1.0);
            row(&format!("{what}: fences"), most.fences as f64, 1.0);
        }
        let map = Ours::<TappedPmem>::new(0, KEYS);
        let all = conformance::costs_of_inserts(&map.index, KEYS);
        row("insert from nothing: write-backs", all.write_backs as f64 / KEYS as f64, 1.3);
        row("insert from nothing: fences", all.fences as f64 / KEYS as f64, 1.3);
    }
    section
}

/// A kind of change, timed and counted alike.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Change {
    Insert,
    Update,
    Remove,
}

/// An index that holds the keys `spread(0..keys)`; the last `batch` of them are removed and
/// inserted.
struct Filled<M: MappedMedium, I = Clht<M, U64>> {
    map: Ours<M, I>,
    keys: u64,
    batch: u64,
}

impl<M: MappedMedium, I: PointIndex<Medium = M, Kind = U64> + Stored<Medium = M>> Filled<M, I> {
    fn new(keys: u64) -> Self {
        let filled = Self { map: Ours::new(keys, keys), keys, batch: keys / 10 };
        (0..keys).for_each(|i| filled.insert(i));
        filled
    }

    fn index(&self) -> &I {
        &self.map.index
    }

    fn insert(&self, i: u64) {
        let inserted = self.index().insert(&self.index().pool().pin(), &spread(i), i);
        assert!(matches!(inserted, Ok(Inserted::New)), "a key was there, or the pool is full");
    }

    fn remove(&self, i: u64) {
        assert_eq!(self.index().remove(&self.index().pool().pin(), &spread(i)), Some(i));
    }

    fn update(&self, i: u64) {
        assert_eq!(self.index().update(&self.index().pool().pin(), &spread(i), i), Some(i));
    }

    /// The keys to remove and insert, in a different order each time.
    fn batch(&self, seed: u64) -> impl Iterator<Item = u64> {
        let start = Random::new(seed).below(self.batch);
        let first = self.keys - self.batch;
        (0..self.batch).map(move |i| first + (start + i) % self.batch)
    }

    /// Applies `change` to each key of a batch, inside `each`. All keys are present before and
    /// after.
    fn run<R>(&self, change: Change, seed: u64, each: impl FnOnce(&dyn Fn(u64), Vec<u64>) -> R) -> R {
        let keys: Vec<u64> = self.batch(seed).collect();
        match change {
            Change::Update => each(&|i| self.update(i), keys),
            Change::Insert => {
                keys.iter().for_each(|&i| self.remove(i));
                each(&|i| self.insert(i), keys)
            }
            Change::Remove => {
                let outcome = each(&|i| self.remove(i), keys.clone());
                keys.into_iter().for_each(|i| self.insert(i));
                outcome
            }
        }
    }
}

/// The lower bound of a change: fences and uncached lines.
#[derive(Clone, Copy, Debug)]
struct Needs {
    fences: f64,
    lines_missed: f64,
}

/// Counts them over an index as full as the timed one.
fn needs<I>(filled: &Filled<TappedPmem, I>, change: Change) -> Needs
where
    I: PointIndex<Medium = TappedPmem, Kind = U64> + Stored<Medium = TappedPmem>,
{
    let medium = filled.index().pool().medium();
    filled.run(change, 1, |apply, keys| {
        let sample = (keys.len() / 2).min(2000);
        let mut lines = HashMap::<u64, u32>::new();
        let mut touched = Vec::new();
        for &i in &keys[..sample] {
            let (these, ()) = medium.touched(|| apply(i));
            let these: Vec<u64> = these.lines_read.union(&these.lines_written).copied().collect();
            these.iter().for_each(|&line| *lines.entry(line).or_default() += 1);
            touched.extend(these);
        }
        // Lines that every tenth change touches (the root, this thread's slot) stay in the cache.
        let cold = touched.iter().filter(|line| (lines[line] as usize) < sample / 10).count();
        let (counts, ()) = medium.during(|| keys[sample..].iter().for_each(|&i| apply(i)));
        Needs {
            fences: counts.fences as f64 / (keys.len() - sample) as f64,
            lines_missed: cold as f64 / sample as f64,
        }
    })
}

/// Nanoseconds a change, beside the bound.
fn times(plan: &Plan) -> Result<Section, MapError> {
    let keys = plan.count(10_000_000);
    let title = format!(
        "P-CLHT on Pmem, timed: {keys} keys, one thread, real write-backs and fences on memory that is not persistent. The bound: fences \
         times a write-back and fence, and lines missed times a dependent random read, both measured in turns with ours"
    );
    let mut section = Section::new(&title, "ns a change", &["bound"]);
    let changes = [("insert", Change::Insert), ("update", Change::Update), ("remove", Change::Remove)];
    if !changes.iter().any(|(name, _)| plan.wants(NAME, name)) {
        return Ok(section);
    }
    say("pmem times");
    let (probe, filled) = (Probe::new(plan.limits())?, Filled::<Pmem>::new(keys));
    let counted = Filled::<TappedPmem>::new(keys / 8);
    for (name, change) in changes {
        if plan.wants(NAME, name) {
            let needs = needs(&counted, change);
            section.rows.push(beside_bound(plan, name, (&filled, change), &probe, needs));
        }
    }
    Ok(section)
}

/// A row: nanoseconds a change beside its bound.
fn beside_bound<I: PointIndex<Medium = Pmem, Kind = U64> + Stored<Medium = Pmem>>(
    plan: &Plan,
    name: &str,
    (filled, change): (&Filled<Pmem, I>, Change),
    probe: &Probe,
    needs: Needs,
) -> Row {
    let mut seed = 0;
    let ours: Measure<'_> = Box::new(|| {
        seed += 1;
        filled.run(change, seed, |apply, keys| {
            let start = Instant::now();
            keys.iter().for_each(|&i| apply(i));
            start.elapsed().as_nanos() as f64 / keys.len() as f64
        })
    });
    let bound: Measure<'_> = Box::new(|| {
        needs.fences * probe.persist_cached_ns() + needs.lines_missed * probe.dependent_read_ns()
    });
    let row = Row::from_measured(name, plan.runner().row(&mut [ours, bound]));
    let needs = format!("{:.2} fences and {:.2} lines missed a change", needs.fences, needs.lines_missed);
    row.noting(needs).against(0, Bound::AtMost(1.5))
}

/// The row of inserts into an index of `keys` keys.
pub(crate) fn insert_beside_bound<I, C>(plan: &Plan, name: &str, keys: u64, probe: &Probe) -> Row
where
    I: PointIndex<Medium = Pmem, Kind = U64> + Stored<Medium = Pmem>,
    C: PointIndex<Medium = TappedPmem, Kind = U64> + Stored<Medium = TappedPmem>,
{
    let needs = needs(&Filled::<TappedPmem, C>::new(keys / 8), Change::Insert);
    beside_bound(plan, name, (&Filled::<Pmem, I>::new(keys), Change::Insert), probe, needs)
}
