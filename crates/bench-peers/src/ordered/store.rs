//! Ranges of the store beside LMDB's cursor, and writes over ART beside those over P-CLHT.

use super::{NAME, Outcome, wants};
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

/// Reads a range from a key on; returns how many records it has.
type Ranged<'s> = dyn Fn(&[u8]) -> usize + 's;

/// An operation on a key, with a value to put; returns whether it has succeeded.
type Work = fn(&Store, &[u8], &[u8]) -> bool;

pub(super) fn sections(plan: &Plan) -> Outcome<Vec<Section>> {
    let records = plan.count(10_000_000);
    let title = format!(
        "The store over ART beside LMDB's cursor: ranges of 50 records from a random key on, {records} records of 16 + 64 bytes in /dev/shm, one thread; LMDB in one read transaction, ours \
         with checksums verified; the keys were put in their order, or in another"
    );
    let mut ranges = Section::new(&title, "million ranges/s", &["LMDB"]);
    for (order, step) in [("put in order", 1), ("put out of order", STEP)] {
        let names = ["range by cursor", "range, copied"].map(|what| format!("store: {what}, {order}"));
        if names.iter().any(|name| plan.wants(NAME, name)) {
            ranges.rows.extend(ranges_of(plan, names, records, step)?);
        }
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

/// Ranges without copies, and as an iterator.
fn ranges_of(plan: &Plan, names: [String; 2], records: u64, step: u64) -> Outcome<Vec<Row>> {
    say(&format!("{NAME} filling a store and LMDB"));
    let directory = tempfile::tempdir_in("/dev/shm")?;
    let store = filled(&directory.path().join("store.pool"), Index::Art, records, step)?;
    let theirs = directory.path().join("lmdb");
    std::fs::create_dir(&theirs)?;
    let lmdb = Lmdb::open(&theirs, records)?;
    lmdb.fill(numbers(records, step))?;
    let snapshot = lmdb.snapshot()?;
    let operations = plan.count(200_000);
    // The last ranges are shorter.
    let rate = |seed, each: &dyn Fn(&[u8]) -> usize| rate(operations, records, seed, |key, _| each(key) > 0);
    let ours: [&Ranged<'_>; 2] = [&|from| by_cursor(&store, from), &|from| copied(&store, from)];
    let cursor = |from: &[u8]| {
        let mut all = 0;
        let found = lmdb.range(&snapshot, from, RANGED, |key, value| all ^= fold(key, value));
        black_box(all);
        found.unwrap_or(0)
    };
    let mut rows = Vec::new();
    for (name, ours) in names.into_iter().zip(ours) {
        if wants(plan, &name) {
            let (mut seed, mut their_seed) = (0, 0);
            let mut sides: [Measure<'_>; 2] = [
                Box::new(|| {
                    seed += 1;
                    rate(seed, ours)
                }),
                Box::new(|| {
                    their_seed += 1;
                    rate(their_seed, &cursor)
                }),
            ];
            let row = Row::from_measured(name, plan.runner().row(&mut sides));
            rows.push(row.against(0, Bound::AtLeast(1.0)));
        }
    }
    Ok(rows)
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

/// Puts over ART beside those over P-CLHT.
fn puts(plan: &Plan, records: u64) -> Outcome<Section> {
    let title = format!(
        "Single puts and gets through the store over ART, beside P-CLHT made for all keys: {records} records of 16 + 64 bytes in /dev/shm, one thread"
    );
    let mut section = Section::new(&title, "M/s", &["CLHT"]).ours_named("ART");
    let names = ["put of a present key", "get"];
    if !names.iter().any(|name| plan.wants(NAME, &format!("store: {name}"))) {
        return Ok(section);
    }
    say(&format!("{NAME} filling two stores"));
    let directory = tempfile::tempdir_in("/dev/shm")?;
    let store = |index: Index| filled(&directory.path().join(index.name()), index, records, STEP);
    let stores = [store(Index::Art)?, store(Index::Clht)?];
    let operations = plan.count(1_000_000);
    let works: [Work; 2] = [
        |store, key, value| store.put(key, value).is_ok(),
        |store, key, _| matches!(store.get(key), Ok(Some(_))),
    ];
    // A put over ART takes at most 1.8 times as long.
    for ((name, work), least) in names.into_iter().zip(works).zip([0.556, 0.556]) {
        if !wants(plan, &format!("store: {name}")) {
            continue;
        }
        let mut sides = stores.each_ref().map(|store| -> Measure<'_> {
            let mut seed = 0;
            Box::new(move || {
                seed += 1;
                rate(operations, records, seed, |key, value| work(store, key, value))
            })
        });
        let row = Row::from_measured(name, plan.runner().row(&mut sides));
        section.rows.push(row.against(0, Bound::AtLeast(least)));
    }
    Ok(section)
}
