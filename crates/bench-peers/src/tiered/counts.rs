//! Counts: what reads and writes ask of the files, and what the log costs.

use super::tables::{Table, Tables};
use super::work::{VALUE_BYTES, dram, get, load, operations, rate, shape, tier, user_bytes};
use super::{NAME, records, runner};
use crate::files::{Outcome, Place, Stored, THREADS, alone, alternate, rounds, run, settle};
use crate::plan::Plan;
use std::path::Path;
use std::time::{Duration, Instant};
use terrace::{ByteSize, Durability, Engine, Store, TierStats};
use terrace_bench::{Bound, Choice, Kind, Random, Seen, Workload, Zipfian};

const READS: Table = Table::beside("Reads of files, by the kernel's count", "unit in the row", &["other"]);
const WRITES: Table = Table::beside(
    "Writes to files: half gets, half puts, in a steady state. A write is a record of the log, or a record that a flush or a rewrite of a block writes; bytes are for each byte of keys and \
     values put",
    "unit in the row",
    &["other"],
);
const LOG: Table = Table::beside(
    "The price of the log: half gets, half puts, zipf 0.99, two threads; beside a store that keeps none",
    "thousand/s",
    &["no log"],
);
const SYNCS: Table = Table::beside(
    "Puts that survive a loss of power: puts for each sync of the log, over the number of writers",
    "share",
    &["other"],
);

const COLD: &str = "reads a cold get";
const ABSENT: &str = "reads an absent get";
/// Choices of the keys that are put; the most writes a put, bytes to blocks, and bytes in all.
const MIXES: [(&str, Choice, Option<f64>, f64, f64); 2] = [
    ("zipf 0.99", Choice::Skewed(Zipfian::THETA), Some(1.3), 0.5, 1.5),
    ("uniform", Choice::Uniform, None, 2.1, 3.2),
];
const PRICE: &str = "half gets, half puts, with the log";
const WRITERS: [u64; 3] = [2, 16, 64];

pub(super) fn measure(plan: &Plan, place: &Place, tables: &mut Tables) -> Outcome<()> {
    reads(plan, place, tables)?;
    writes(plan, place, tables)?;
    log_price(plan, place, tables)?;
    syncs(plan, place, tables)
}

/// A store of the suite's records, a fifth as many as the full size: counts do not depend on it.
fn loaded(plan: &Plan, directory: &Path, durability: Durability) -> Outcome<Store> {
    let memory = dram(few(plan), user_bytes(VALUE_BYTES), 0.25);
    let options = Store::options().directory(directory.join("store")).engine(Engine::Tiered);
    let store = options.memory(ByteSize::bytes(memory)).durability(durability).create()?;
    load(&store, VALUE_BYTES, 0..few(plan))?;
    settle();
    Ok(store)
}

fn few(plan: &Plan) -> u64 {
    (records(plan) / 5).max(400_000)
}

/// Calls of read(2) and its like that this process has made, and the bytes that came from disks.
fn kernel_reads() -> Outcome<[u64; 2]> {
    let text = std::fs::read_to_string("/proc/self/io")?;
    let figure = |name: &str| -> Outcome<u64> {
        let line = text.lines().find_map(|line| line.strip_prefix(name)).ok_or("no /proc/self/io")?;
        Ok(line.trim().parse()?)
    };
    Ok([figure("syscr:")?, figure("read_bytes:")?])
}

fn reads(plan: &Plan, place: &Place, tables: &mut Tables) -> Outcome<()> {
    if ![COLD, ABSENT].iter().any(|what| plan.begins(NAME, what)) {
        return Ok(());
    }
    let directory = place.fresh()?;
    let store = loaded(plan, directory.path(), Durability::Process)?;
    // Any number of gets will do.
    let gets = if plan.quick { 5_000 } else { 100_000 };
    let uniform = Workload::reads_and_updates(100, Choice::Uniform);
    let (kernel, before) = (kernel_reads()?, tier(&store)?);
    rate(&mut operations(uniform, few(plan), 1), gets, |key| get(&store, key))?;
    let (after_kernel, after) = (kernel_reads()?, tier(&store)?);
    let cold = (gets - (after.hits - before.hits)) as f64;
    let calls = (after_kernel[0] - kernel[0]) as f64 / cold;
    tables.add(READS, alone(COLD.into(), calls, Some(Bound::AtMost(1.02))));
    let bytes = (after_kernel[1] - kernel[1]) as f64 / cold;
    tables.add(READS, alone("bytes of the disk a cold get".into(), bytes, None));
    let absent = Workload::named("negative").ok_or("a workload is unknown")?;
    let kernel = kernel_reads()?;
    rate(&mut operations(absent, few(plan), 1), gets, |key| match store.get(key)? {
        None => Ok(()),
        Some(_) => Err("a store has made a key up".into()),
    })?;
    let calls = (kernel_reads()?[0] - kernel[0]) as f64 / gets as f64;
    tables.add(READS, alone(ABSENT.into(), calls, Some(Bound::AtMost(0.01))));
    Ok(())
}

fn writes(plan: &Plan, place: &Place, tables: &mut Tables) -> Outcome<()> {
    for (name, choice, most, of_blocks, in_all) in MIXES {
        let what = format!("writes a put, {name}");
        if !plan.begins(NAME, &what) {
            continue;
        }
        let directory = place.fresh()?;
        let store = loaded(plan, directory.path(), Durability::Process)?;
        let work = |seed, count| mixed(&store, choice, few(plan), (seed, count));
        work(1, few(plan))?;
        let before = tier(&store)?;
        let puts = work(2, few(plan))?;
        store.flush()?;
        let after = tier(&store)?;
        let user = (after.written_bytes - before.written_bytes) as f64;
        let blocks = (after.flushed_bytes + after.rewritten_bytes
            - before.flushed_bytes
            - before.rewritten_bytes) as f64;
        let log = (after.log_bytes_written - before.log_bytes_written) as f64;
        let record = on_the_tier(&after, few(plan));
        let writes = 1.0 + blocks / record / puts as f64;
        tables.add(WRITES, alone(what, writes, most.map(Bound::AtMost)));
        let row = |what: &str, figure, most| alone(format!("{what}, {name}"), figure, most);
        tables.add(WRITES, row("bytes to blocks", blocks / user, Some(Bound::AtMost(of_blocks))));
        tables
            .add(WRITES, row("bytes to blocks and log", (blocks + log) / user, Some(Bound::AtMost(in_all))));
    }
    Ok(())
}

/// Bytes of a record on the tier, with its entry.
fn on_the_tier(tier: &TierStats, records: u64) -> f64 {
    (tier.block_bytes - tier.dead_bytes.min(tier.block_bytes)) as f64 / records as f64
}

/// Does so many gets and puts by halves. Returns the number of puts.
fn mixed(store: &Store, choice: Choice, records: u64, (seed, count): (u64, u64)) -> Outcome<u64> {
    let (shape, mut key) = (shape(VALUE_BYTES), Vec::new());
    let (mut random, mut value, mut puts) = (Random::new(seed), [0; VALUE_BYTES], 0);
    let workload = Workload::reads_and_updates(50, choice);
    for operation in operations(workload, records, seed).take(count as usize) {
        shape.key(operation.record, &mut key);
        if operation.kind == Kind::Read {
            get(store, &key)?;
        } else {
            random.fill(&mut value);
            store.put(&key, value)?;
            puts += 1;
        }
    }
    Ok(puts)
}

fn log_price(plan: &Plan, place: &Place, tables: &mut Tables) -> Outcome<()> {
    if !plan.begins(NAME, PRICE) {
        return Ok(());
    }
    let directories = [place.fresh()?, place.fresh()?];
    let stores = [
        loaded(plan, directories[0].path(), Durability::Process)?,
        loaded(plan, directories[1].path(), Durability::None)?,
    ];
    let time = Duration::from_millis(if plan.quick { 500 } else { 4000 });
    let workload = Workload::reads_and_updates(50, Choice::Skewed(Zipfian::THETA));
    let once = |side: usize, round| {
        let store: &dyn Stored = &stores[side];
        let seen = run(store, &shape(VALUE_BYTES), workload, few(plan), round, time)?;
        Ok(seen.iter().map(Seen::operations).sum::<u64>() as f64 / time.as_secs_f64() / 1e3)
    };
    (0..2).try_for_each(|side| once(side, 100).map(drop))?;
    let measured = alternate(runner(plan), once)?;
    tables.add(LOG, rounds(format!("{PRICE}, {THREADS} threads"), measured, Some(Bound::AtLeast(0.75))));
    Ok(())
}

fn syncs(plan: &Plan, place: &Place, tables: &mut Tables) -> Outcome<()> {
    for writers in WRITERS {
        let name = format!("puts a sync over writers, {writers} writers");
        if !plan.begins(NAME, &name) {
            continue;
        }
        let directory = place.fresh()?;
        let options = Store::options().directory(directory.path().join("store")).engine(Engine::Tiered);
        let store = options.memory(ByteSize::mib(64)).durability(Durability::Power).create()?;
        let before = tier(&store)?.syncs;
        let puts = put_for(&store, writers, Duration::from_millis(if plan.quick { 500 } else { 5000 }))?;
        let syncs = tier(&store)?.syncs - before;
        let share = puts as f64 / syncs as f64 / writers as f64;
        tables.add(SYNCS, alone(name, share, Some(Bound::AtLeast(0.9))));
    }
    Ok(())
}

/// Puts of so many threads, each of which waits for its own.
fn put_for(store: &Store, writers: u64, time: Duration) -> Outcome<u64> {
    let start = Instant::now();
    let work = &|writer: u64| -> Outcome<u64> {
        let (shape, mut random) = (shape(0), Random::new(writer));
        let (mut key, mut value, mut puts) = (Vec::new(), [0; VALUE_BYTES], 0);
        while start.elapsed() < time {
            shape.key(random.below(100_000), &mut key);
            random.fill(&mut value);
            store.put(&key, value)?;
            puts += 1;
        }
        Ok(puts)
    };
    let puts: Vec<Outcome<u64>> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..writers).map(|writer| scope.spawn(move || work(writer))).collect();
        threads.into_iter().map(|thread| thread.join().expect("a writer panicked")).collect()
    });
    puts.into_iter().sum()
}
