//! Room on the disk and bytes written, while all records are put ten times, uniformly.

use super::tables::{Table, Tables};
use super::work::dram;
use super::{NAME, records};
use crate::files::{
    By, Outcome, Pair, Place, RECORD_BYTES, Setup, Side, Stored, VALUE_BYTES, alone, beside, load_both,
    named, peers, settle, shape,
};
use crate::plan::Plan;
use terrace_bench::{Bound, Random};

const SPACE: Table = Table::beside(
    "Bytes of blocks or tables while each of a tenth of the records is put ten times, uniformly, and then removed. Looked at a hundred times. Files in /dev/shm: bytes do not depend on the disk",
    "times live",
    &["RocksDB"],
);
const WRITTEN: Table =
    Table::beside("Bytes written meanwhile for each byte of keys and values put", "bytes", &["RocksDB"]);

const NAMES: [&str; 4] =
    ["space, mean", "space, most", "space, mean, over keys and values", "written, with the log"];
/// Bytes of a record of 16 + 100 bytes in a block, with its place and its entry.
const ON_TIER: u64 = 152 + 8 + 32;
const LOOKS: u64 = 100;
const TIMES: u64 = 10;

pub(super) fn measure(plan: &Plan, _: &Place, tables: &mut Tables) -> Outcome<()> {
    let peer = peers(plan).find(|peer| *peer == Side::RocksDb).unwrap_or(Side::Ours);
    if !NAMES.iter().any(|what| plan.begins(NAME, &named(what, peer))) {
        return Ok(());
    }
    let records = (records(plan) / 10).max(400_000);
    let setup = Setup { memory: dram(records, RECORD_BYTES, 0.25) as usize, is_synced: false };
    let pair = Pair::of(&Place::in_memory(), [Side::Tiered, peer], setup)?;
    load_both(pair.both(), records, By::TwoThreads)?;
    let [ours, theirs] = pair.both().map(|store| overwrite(store, records));
    let (ours, theirs) = (ours?, theirs?);
    let (records, user) = (records as f64, (records * RECORD_BYTES) as f64);
    let on_tier = records * ON_TIER as f64;
    let row = |nth: usize, ours, theirs, most: Option<f64>| {
        let row = beside(named(NAMES[nth], peer), ours, theirs, None);
        most.map_or(row.clone(), |most| row.judged(Bound::AtMost(most)))
    };
    tables.add(SPACE, row(0, ours.mean / on_tier, theirs.mean / user, Some(1.45)));
    tables.add(SPACE, row(1, ours.most / on_tier, theirs.most / user, None));
    tables.add(SPACE, row(2, ours.mean / user, theirs.mean / user, None));
    let put = user * TIMES as f64;
    let (ours, theirs) = (ours.written / put, theirs.written / put);
    tables.add(WRITTEN, beside(named(NAMES[3], peer), ours, theirs, Some(Bound::AtMost(0.5))));
    removed(&*pair.stores[0], records as u64, setup, tables)
}

/// What was seen while records were overwritten.
struct Seen {
    mean: f64,
    most: f64,
    written: f64,
}

fn overwrite(store: &dyn Stored, records: u64) -> Outcome<Seen> {
    let written = |store: &dyn Stored| {
        let figures = store.figures();
        figures.tables_written.unwrap_or(0) + figures.log_written
    };
    let (shape, mut random, before) = (shape(), Random::new(9), written(store));
    let (mut key, mut value, mut sizes) = (Vec::new(), [0; VALUE_BYTES], Vec::new());
    for _ in 0..LOOKS {
        for _ in 0..records * TIMES / LOOKS {
            shape.key(random.below(records), &mut key);
            random.fill(&mut value);
            store.put(&key, &value)?;
        }
        sizes.push(store.figures().table_bytes as f64);
    }
    store.flush()?;
    settle();
    let mean = sizes.iter().sum::<f64>() / sizes.len() as f64;
    let most = sizes.into_iter().fold(0.0, f64::max);
    Ok(Seen { mean, most, written: (written(store) - before) as f64 })
}

/// What is left on the disk when all records were removed.
fn removed(store: &dyn Stored, records: u64, setup: Setup, tables: &mut Tables) -> Outcome<()> {
    let (shape, mut key) = (shape(), Vec::new());
    for number in 0..records {
        shape.key(number, &mut key);
        store.delete(&key)?;
    }
    store.flush()?;
    settle();
    // A block is a sixteenth of DRAM, and a power of two.
    let block = (setup.memory as u64 / 16).next_power_of_two();
    let blocks = store.figures().table_bytes as f64 / block as f64;
    let name = "blocks' worth of bytes left when all is removed".to_owned();
    tables.add(SPACE, alone(name, blocks, Some(Bound::AtMost(2.0))));
    Ok(())
}
