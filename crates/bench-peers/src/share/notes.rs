//! The cost of lock intents: the same work in a shared and in an exclusive pool, on any index.

use crate::plan::Plan;
use std::time::Instant;
use terrace_bench::{Bound, Measure, Random, Row, Section, spread};
use terrace_index::{PointIndex, Stored, U64};
use terrace_medium::{MappedMedium, Mapping, Pmem, Shm};
use terrace_pool::{Pool, PoolOptions};
use terrace_testkit::ProcessGroup;

type Outcome<T> = Result<T, Box<dyn std::error::Error>>;

/// The costs on an index of this name, `S` on shared memory and `P` on persistent memory. `suite`
/// is the name of the suite.
pub(crate) fn section<S, P>(plan: &Plan, index: &str, suite: &str) -> Outcome<Section>
where
    S: PointIndex<Medium = Shm, Kind = U64> + Stored<Medium = Shm>,
    P: PointIndex<Medium = Pmem, Kind = U64> + Stored<Medium = Pmem>,
{
    let title = format!(
        "{index}: one thread, uniform 8-byte keys, each update with a record of 256 bytes: a shared pool, in which every lock is noted before it is tried, beside one that is not. \
         Paper: file 004, 5.2.2. Among hosts: a note is made durable before its lock is tried; pins have a barrier of their own on both sides"
    );
    let mut section = Section::new(&title, "M/s", &["not shared"]).ours_named("shared");
    for (updates, [with_gpf, without]) in [(100, [1.5, 3.4]), (50, [1.3, 2.3]), (5, [1.02, 1.2])] {
        let mut add = |medium: &str, row: &dyn Fn(String) -> Outcome<Row>| -> Outcome<()> {
            let name = format!("{index}: {medium}, {updates}% updates");
            if plan.begins(suite, &format!("notes: {name}")) {
                section.rows.push(row(name)?);
            }
            Ok(())
        };
        add("Shm", &|name| row::<Shm, S>(plan, name, updates, with_gpf, in_a_file))?;
        add("Pmem", &|name| row::<Pmem, P>(plan, name, updates, without, in_a_file))?;
        add("Pmem among hosts", &|name| row::<Pmem, P>(plan, name, updates, without, among_hosts))?;
    }
    Ok(section)
}

const RECORD: usize = 256;

/// Makes a pool of some bytes, shared or exclusive.
type MakePool<M> = fn(u64, bool) -> Outcome<Pool<M>>;

fn in_a_file<M: MappedMedium>(bytes: u64, shared: bool) -> Outcome<Pool<M>> {
    let directory = tempfile::tempdir_in("/dev/shm")?;
    let options = PoolOptions::at(directory.path().join("pool")).size(bytes).assume_persistent(true);
    // The mapping survives the removal of the file's name.
    Ok(options.shared(shared).huge_pages(true).create()?)
}

fn among_hosts(bytes: u64, shared: bool) -> Outcome<Pool<Pmem>> {
    let mapping = Mapping::anonymous(bytes as usize, 0)?;
    mapping.advise_huge_pages();
    let (options, medium) = (PoolOptions::anonymous(), Pmem::new(mapping));
    Ok(match shared {
        true => options.create_shared_on(medium, ProcessGroup::default().add().1)?,
        // Its pins do not rely on the kernel either.
        false => options.reproducible().create_on(medium)?,
    })
}

fn row<M, I>(plan: &Plan, name: String, updates: u64, at_most: f64, make: MakePool<M>) -> Outcome<Row>
where
    M: MappedMedium,
    I: PointIndex<Medium = M, Kind = U64> + Stored<Medium = M>,
{
    let size = [1_000_000, 500_000].map(|full| plan.count(full));
    let [keys, _] = size;
    let fill = |shared: bool| -> Outcome<I> {
        let pool = make((256 << 20) + keys * 800, shared)?;
        let index = I::create(&pool, "notes", keys).map_err(|error| error.to_string())?;
        (0..keys).try_for_each(|key| update(&index, key))?;
        Ok(index)
    };
    // Two of each: the machine treats their memory with larger differences than the intents cost.
    let (shared, alone) = (fill(true)?, fill(false)?);
    let (alone, shared) = ([alone, fill(false)?], [shared, fill(true)?]);
    let mut measure = [&shared, &alone].map(|indexes| -> Measure<'_> {
        let mut round = 0;
        Box::new(move || {
            round += 1;
            let rates = indexes.each_ref().map(|index| mixed(index, size, updates, round));
            2.0 / rates.map(f64::recip).iter().sum::<f64>()
        })
    });
    let row = Row::from_measured(name, plan.runner().row(&mut measure));
    Ok(row.against(0, Bound::AtLeast((1000.0 / at_most).round() / 1000.0)))
}

/// Gives the key with a number a new record, and retires the old one.
fn update<I: PointIndex<Kind = U64>>(index: &I, number: u64) -> Outcome<()> {
    let key = spread(number);
    let guard = index.pool().pin();
    let record = guard.alloc(RECORD).map_err(|full| full.to_string())?;
    record.stream_lines(0, &[[key; 8]; RECORD / 64]);
    let record = record.fenced(&guard.fence()).into_offset();
    if let Some(old) = index.upsert(&guard, &key, record).map_err(|full| full.to_string())? {
        guard.retire(old, RECORD);
    }
    Ok(())
}

fn mixed<I: PointIndex<Kind = U64>>(index: &I, [keys, operations]: [u64; 2], updates: u64, seed: u64) -> f64 {
    let mut random = Random::new(seed);
    let start = Instant::now();
    let mut done = 0;
    for _ in 0..operations {
        let number = random.below(keys);
        done += u64::from(match random.below(100) < updates {
            true => update(index, number).is_ok(),
            false => index.get(&index.pool().pin(), &spread(number)).is_some(),
        });
    }
    let rate = operations as f64 / start.elapsed().as_secs_f64() / 1e6;
    if done == operations { rate } else { f64::NAN }
}
