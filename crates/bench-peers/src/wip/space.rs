//! Room that dead data takes, and what ranges read because of it.

use super::tables::Tables;
use super::{NAME, SETUP, records};
use crate::files::{
    By, Outcome, Pair, Place, RECORD_BYTES, Side, Stored, alone, batch, beside, load_both, named, peers,
    settle, shape, value,
};
use crate::plan::Plan;
use std::time::Duration;
use terrace_bench::{Bound, Random};

const OVERWRITTEN: &str = "all records overwritten three times, uniformly";
const DELETED: &str = "nine tenths deleted, after a minute";
const SEEK: &str = "seek past 100,000 deleted keys";

pub(super) fn measure(plan: &Plan, place: &Place, tables: &mut Tables) -> Outcome<()> {
    for peer in peers(plan).filter(|peer| *peer == Side::RocksDb) {
        if [OVERWRITTEN, DELETED].iter().any(|what| plan.begins(NAME, &named(what, peer))) {
            dead(plan, &Pair::of(place, [Side::Ours, peer], SETUP)?, tables)?;
        }
    }
    if plan.begins(NAME, SEEK) {
        seek(plan, place, tables)?;
    }
    Ok(())
}

/// Space after overwrites and deletes, of a quarter of the records.
fn dead(plan: &Plan, pair: &Pair, tables: &mut Tables) -> Outcome<()> {
    let records = records(plan) / 4;
    load_both(pair.both(), records, By::Batches)?;
    for store in pair.both() {
        overwrite(store, records)?;
        store.flush()?;
        settle();
    }
    let live = records * RECORD_BYTES;
    row(OVERWRITTEN, pair, live, 1.6, tables);
    for store in pair.both() {
        delete_most(store, records)?;
        store.flush()?;
    }
    settle();
    std::thread::sleep(Duration::from_secs(if plan.quick { 1 } else { 60 }));
    row(DELETED, pair, live.div_ceil(10), 1.3, tables);
    Ok(())
}

fn row(what: &str, pair: &Pair, live: u64, most: f64, tables: &mut Tables) {
    let space = |store: &dyn Stored| store.figures().table_bytes as f64 / live as f64;
    let [ours, theirs] = pair.both().map(space);
    let row = beside(named(what, pair.peer), ours, theirs, None);
    tables.space.rows.push(row.judged(Bound::AtMost(most)));
}

fn overwrite(store: &dyn Stored, records: u64) -> Outcome<()> {
    let (shape, mut random) = (shape(), Random::new(9));
    for _ in 0..3 * records / 1000 {
        let pairs: Vec<_> = (0..1000)
            .map(|_| {
                let mut key = Vec::new();
                shape.key(random.below(records), &mut key);
                (key, value(&mut random))
            })
            .collect();
        store.write(&batch(&pairs))?;
    }
    Ok(())
}

fn delete_most(store: &dyn Stored, records: u64) -> Outcome<()> {
    let (shape, mut key) = (shape(), Vec::new());
    for number in (0..records).filter(|number| number % 10 != 0) {
        shape.key(number, &mut key);
        store.delete(&key)?;
    }
    Ok(())
}

/// Blocks that a range reads whose first 100,000 keys have been deleted.
fn seek(plan: &Plan, place: &Place, tables: &mut Tables) -> Outcome<()> {
    let (directory, mut random) = (place.fresh()?, Random::new(3));
    let deleted = if plan.quick { 10_000 } else { 100_000 };
    let key = |number: u64| format!("{number:016x}");
    let open = || Side::Ours.open(&directory.path().join("store"), SETUP);
    let store = open()?;
    for number in 0..3 * deleted {
        store.put(key(number).as_bytes(), &value(&mut random))?;
    }
    store.flush()?;
    settle();
    for number in deleted..2 * deleted {
        store.delete(key(number).as_bytes())?;
    }
    store.flush()?;
    settle();
    drop(store);
    let store = open()?;
    let mut found = Vec::new();
    let before = store.figures().blocks_read.unwrap_or(0);
    store.range(key(deleted).as_bytes(), true, 1, &mut |key, _| found = key.to_vec())?;
    let blocks = store.figures().blocks_read.unwrap_or(0) - before;
    if found != key(2 * deleted).into_bytes() {
        return Err("a seek past deleted keys has found another key than the first one behind them".into());
    }
    let name = format!("{SEEK}, cold");
    tables.counts.rows.push(alone(name, blocks as f64, Some(Bound::AtMost(4.0))));
    Ok(())
}
