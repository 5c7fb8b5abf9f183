//! Hits in DRAM of a store that is only read, beside the cache policy S3-FIFO (crate quick_cache)
//! over the same operations.

use super::tables::{Table, Tables};
use super::work::{VALUE_BYTES, dram, load, operations, record_bytes, shape, tier, user_bytes};
use super::{NAME, records};
use crate::files::{Outcome, Place, alone, beside};
use crate::plan::Plan;
use quick_cache::unsync::Cache;
use terrace::{ByteSize, Engine, Store};
use terrace_bench::{Bound, Choice, Workload, Zipfian};

const TABLE: Table = Table::beside(
    "Hits in DRAM, read-only, the last third of three times as many reads as there are records. S3-FIFO holds as many records as fit into DRAM beside our index. \
     Files in /dev/shm: a hit is one, wherever the others lie. `zipf` is over the records that there are; YCSB's goes on to 10^10, so a third of it is as good as uniform",
    "share",
    &["S3-FIFO"],
);
const INDEX: Table = Table::beside("The index in DRAM", "bytes a key", &["other"]);
/// Choices, the least share, and the least difference from S3-FIFO.
const LINES: [(&str, Choice, Option<f64>); 3] = [
    ("hits, zipf 0.99", Choice::Skewed(Zipfian::THETA), Some(0.8)),
    ("hits, zipf 0.99 of YCSB", Choice::Zipfian, None),
    ("hits, uniform", Choice::Uniform, None),
];
const BELOW: f64 = 0.02;

pub(super) fn measure(plan: &Plan, _: &Place, tables: &mut Tables) -> Outcome<()> {
    if !LINES.iter().any(|(what, ..)| plan.wants(NAME, what)) {
        return Ok(());
    }
    let (directory, records) = (Place::in_memory().fresh()?, records(plan));
    let memory = dram(records, user_bytes(VALUE_BYTES), 0.25);
    let options = Store::options().directory(directory.path().join("store")).engine(Engine::Tiered);
    let options = options.memory(ByteSize::bytes(memory));
    let store = options.create()?;
    load(&store, VALUE_BYTES, 0..records)?;
    let index = tier(&store)?.index_bytes;
    let bytes = index as f64 / records as f64;
    tables.add(INDEX, alone("index, all records put".into(), bytes, Some(Bound::AtMost(14.0))));
    drop(store);
    for (what, choice, least) in LINES {
        if !plan.begins(NAME, what) {
            continue;
        }
        // Opened anew, so that its cache begins empty.
        let store = options.open()?;
        let workload = Workload::reads_and_updates(100, choice);
        let ours = our_hits(&store, workload, records)?;
        let fitting = (memory - tier(&store)?.index_bytes) / record_bytes(VALUE_BYTES);
        let theirs = their_hits(workload, records, fitting);
        let row = beside(what.into(), ours, theirs, None);
        tables.add(TABLE, least.map_or(row.clone(), |least| row.judged(Bound::AtLeast(least))));
        let row = alone(format!("{what}, less S3-FIFO's"), ours - theirs, Some(Bound::AtLeast(-BELOW)));
        tables.add(TABLE, row);
    }
    Ok(())
}

fn our_hits(store: &Store, workload: Workload, records: u64) -> Outcome<f64> {
    let (shape, mut key, mut hits) = (shape(VALUE_BYTES), Vec::new(), 0);
    for (nth, operation) in (0..3 * records).zip(operations(workload, records, 1)) {
        if nth == 2 * records {
            hits = tier(store)?.hits;
        }
        shape.key(operation.record, &mut key);
        if store.get(&key)?.is_none() {
            return Err("a store has lost a key".into());
        }
    }
    Ok((tier(store)?.hits - hits) as f64 / records as f64)
}

fn their_hits(workload: Workload, records: u64, fitting: u64) -> f64 {
    let (mut cache, mut hits) = (Cache::new(fitting as usize), 0);
    for (nth, operation) in (0..3 * records).zip(operations(workload, records, 1)) {
        match cache.get(&operation.record) {
            Some(()) => hits += u64::from(nth >= 2 * records),
            None => cache.insert(operation.record, ()),
        }
    }
    hits as f64 / records as f64
}
