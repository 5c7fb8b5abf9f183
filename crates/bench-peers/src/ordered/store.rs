//! Ranges of the store beside LMDB's cursor, and single keys over our trees beside those over
//! P-CLHT.

use super::lines::{Demand, Line, apart, trees_of};
use super::ours::{Art, Ours, TREES};
use super::{NAME, Outcome};
use crate::plan::{Plan, say};
use crate::records::{key, value};
use crate::share::lmdb::Lmdb;
use crate::share::rate;
use crate::worker::pool_size;
use std::hint::black_box;
use std::ops::ControlFlow;
use std::path::Path;
use terrace::{Direction, Index, Put, Store};
use terrace_bench::{Bound, Measure, Row, Section};

/// Records of a range.
const RANGED: usize = 50;

/// An operation on a key, with a value to put; returns whether it has succeeded.
type Work = fn(&Store, &[u8], &[u8]) -> bool;

const LMDB: &str = "LMDB";
const CLHT: &str = "clht";

pub(super) fn sections(plan: &Plan) -> Outcome<Vec<Section>> {
    let records = plan.count(10_000_000);
    let title = format!(
        "The store over our trees beside LMDB's cursor: ranges of 50 records from a random key on, {records} records of 16 + 64 bytes in /dev/shm, one thread; LMDB in one read transaction, ours \
         with checksums verified; the keys were put in their order, or in another"
    );
    let mut ranges = Section::new(&title, "million ranges/s", &[LMDB]);
    for (order, step) in [("put in order", 1), ("put out of order", STEP)] {
        ranges.rows.extend(ranges_of(plan, order, records, step)?);
    }
    Ok(vec![ranges, puts(plan, records)?])
}

/// The distance of the numbers of two keys that are put one after the other: a prime.
const STEP: u64 = 7_368_787;

/// All numbers below `records`, each a step behind the one before.
fn numbers(records: u64, step: u64) -> impl Iterator<Item = u64> {
    (0..records).map(move |nth| (u128::from(nth) * u128::from(step) % u128::from(records)) as u64)
}

/// A store with these records.
fn filled(path: &Path, index: Index, records: u64, step: u64) -> Outcome<Store> {
    let store =
        Store::options().path(path).index(index).size(pool_size(records)).expected_keys(records).create()?;
    let mut numbers = numbers(records, step);
    loop {
        let pairs: Vec<_> = numbers.by_ref().take(64).map(|number| (key(number), value(number))).collect();
        if pairs.is_empty() {
            store.upkeep().collapse_huge_pages();
            return Ok(store);
        }
        let puts: Vec<_> = pairs.iter().map(|(key, value)| Put { key, value, expires_at: None }).collect();
        store.put_many(&puts).into_iter().try_for_each(|done| done)?;
    }
}

/// A store over each of these trees.
fn stores(directory: &Path, trees: &[&'static str], records: u64, step: u64) -> Outcome<Stores> {
    let store = |tree: &&'static str| {
        let index = Index::named(tree).ok_or("there is no such index")?;
        Ok((*tree, filled(&directory.join(tree), index, records, step)?))
    };
    trees.iter().map(store).collect()
}

type Stores = Vec<(&'static str, Store)>;

/// A peer, and what it does in place of [`Work`].
type Peer<'p> = (&'static str, &'p dyn Fn(&[u8], &[u8]) -> bool);

/// The number of operations and of records.
type Size = [u64; 2];

/// The rows of a line: the stores at their work in one run with the peer.
fn rows(plan: &Plan, line: &Line, size: Size, stores: &Stores, work: Work, peer: Peer<'_>) -> Vec<Row> {
    let trees = line.begin(plan);
    if trees.is_empty() {
        return Vec::new();
    }
    let wanted = stores.iter().filter(|(tree, _)| trees.contains(tree));
    let ours = wanted.map(|(_, store)| measure(size, move |key, value| work(store, key, value)));
    let mut sides: Vec<_> = ours.chain([measure(size, peer.1)]).collect();
    line.rows(plan, &[peer.0], apart(&trees, &plan.runner().row(&mut sides)))
}

/// The rate of an operation on random keys, on others each time.
fn measure<'m>([operations, records]: Size, mut each: impl FnMut(&[u8], &[u8]) -> bool + 'm) -> Measure<'m> {
    let mut seed = 0;
    Box::new(move || {
        seed += 1;
        rate(operations, records, seed, &mut each)
    })
}

/// Ranges without copies, and as an iterator.
fn ranges_of(plan: &Plan, order: &str, records: u64, step: u64) -> Outcome<Vec<Row>> {
    let demands = TREES.map(|tree| Demand::over(LMDB, tree, Bound::AtLeast(1.0)));
    let lines = ["range by cursor", "range, copied"]
        .map(|what| Line::of_stores(plan, "store", format!("{what}, {order}"), demands.to_vec()));
    let trees = trees_of(plan, &lines);
    if trees.is_empty() {
        return Ok(Vec::new());
    }
    say(&format!("{NAME}: filling {} and {LMDB}", trees.join(", ")));
    let directory = tempfile::tempdir_in("/dev/shm")?;
    let stores = stores(directory.path(), &trees, records, step)?;
    let theirs = directory.path().join("lmdb");
    std::fs::create_dir(&theirs)?;
    let lmdb = Lmdb::open(&theirs, records)?;
    lmdb.fill(numbers(records, step))?;
    let snapshot = lmdb.snapshot()?;
    let by_lmdb = |from: &[u8], _: &[u8]| {
        let mut all = 0;
        let found = lmdb.range(&snapshot, from, RANGED, |key, value| all ^= fold(key, value));
        black_box(all);
        found.is_ok_and(|found| found > 0)
    };
    // The last ranges are shorter.
    let works: [Work; 2] =
        [|store, from, _| by_cursor(store, from) > 0, |store, from, _| copied(store, from) > 0];
    let size = [plan.count(200_000), records];
    let rows_of = |(line, work)| rows(plan, line, size, &stores, work, (LMDB, &by_lmdb));
    Ok(lines.iter().zip(works).flat_map(rows_of).collect())
}

fn fold(key: &[u8], value: &[u8]) -> u64 {
    super::keys::fold(key) ^ super::keys::fold(value)
}

fn by_cursor(store: &Store, from: &[u8]) -> usize {
    let (mut found, mut all) = (0, 0);
    let Ok(mut cursor) = store.range_cursor(from.., Direction::Forward) else { return 0 };
    let visited = cursor.visit(RANGED, &mut |key, entry| {
        (found, all) = (found + 1, all ^ fold(key, entry.value));
        ControlFlow::Continue(())
    });
    black_box(all);
    if visited.is_ok() { found } else { 0 }
}

fn copied(store: &Store, from: &[u8]) -> usize {
    let (mut found, mut all) = (0, 0);
    for entry in store.range(from..).take(RANGED) {
        let Ok((key, value)) = entry else { return 0 };
        (found, all) = (found + 1, all ^ fold(&key, &value));
    }
    black_box(all);
    found
}

/// Single keys over our trees beside those over P-CLHT.
fn puts(plan: &Plan, records: u64) -> Outcome<Section> {
    let title = format!(
        "Single puts and gets through the store over our trees, beside P-CLHT made for all keys: {records} records of 16 + 64 bytes in /dev/shm, one thread"
    );
    let mut section = Section::new(&title, "M/s", &[CLHT]);
    // A put over ART takes at most 1.8 times as long.
    let demands = [Demand::over(CLHT, Art::NAME, Bound::AtLeast(0.556))];
    let lines = ["put of a present key", "get"]
        .map(|what| Line::of_stores(plan, "store", what.to_owned(), demands.to_vec()));
    let trees = trees_of(plan, &lines);
    if trees.is_empty() {
        return Ok(section);
    }
    say(&format!("{NAME}: filling {} and {CLHT}", trees.join(", ")));
    let directory = tempfile::tempdir_in("/dev/shm")?;
    let stores = stores(directory.path(), &trees, records, STEP)?;
    let clht = filled(&directory.path().join(CLHT), Index::Clht, records, STEP)?;
    let works: [Work; 2] = [
        |store, key, value| store.put(key, value).is_ok(),
        |store, key, _| matches!(store.get(key), Ok(Some(_))),
    ];
    let size = [plan.count(1_000_000), records];
    for (line, work) in lines.iter().zip(works) {
        let by_clht = |key: &[u8], value: &[u8]| work(&clht, key, value);
        section.rows.extend(rows(plan, line, size, &stores, work, (CLHT, &by_clht)));
    }
    Ok(section)
}
