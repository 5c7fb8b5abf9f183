//! The time from `kill -9` under load to the first answered get.

use crate::plan::Plan;
use crate::records::{key, value};
use crate::worker::{Worker, pool_size};
use std::cell::Cell;
use std::path::Path;
use std::time::{Duration, Instant};
use terrace::{Index, Store};
use terrace_bench::{Bound, Row, Section};

type Outcome<T> = Result<T, Box<dyn std::error::Error>>;

const NAME: &str = "restart";

/// Opens stores of 1M, 10M and 20M records whose process was killed while writing.
pub(crate) fn section(plan: &Plan) -> Outcome<Section> {
    let title = "Restart: kill -9 under load, then open to first answered get, through the library; 16-byte keys, 64-byte values, a pool in \
                 /dev/shm, durability process";
    let mut section = Section::new(title, "ms", &[]);
    for (millions, bound) in [(1, None), (10, Some(100.0)), (20, None)] {
        let name = format!("{millions}M records");
        if !plan.begins(NAME, &name) {
            continue;
        }
        let row = row(plan, &name, plan.count(millions * 1_000_000))?;
        section.rows.push(match bound {
            Some(bound) => row.judged(Bound::AtMost(bound)),
            None => row,
        });
    }
    if let [one, .., twenty] = &section.rows[..]
        && let (Some(one), Some(twenty)) = (one.ours, twenty.ours)
    {
        // The time does not depend on the number of records; the difference is noise.
        let row = Row { ours: Some(twenty - one), ..Row::new("20M less 1M (flat)") };
        section.rows.push(row.judged(Bound::AtMost(10.0)));
    }
    Ok(section)
}

fn row(plan: &Plan, name: &str, records: u64) -> Outcome<Row> {
    let directory = tempfile::tempdir_in("/dev/shm")?;
    let pool = directory.path().join("restart.pool");
    // Created once; every round opens what the previous one left.
    drop(Worker::start(&pool, Index::Clht, records, false)?);
    let round = Cell::new(0);
    plan.row(
        name,
        &[&|| {
            round.set(round.get() + 1);
            restart(&pool, records, round.get())
        }],
    )
}

/// Milliseconds from open to the first answer, after a worker was killed while writing.
fn restart(pool: &Path, records: u64, round: u64) -> Outcome<f64> {
    let mut worker = Worker::start(pool, Index::Clht, records, true)?;
    std::thread::sleep(Duration::from_millis(200 + round * 7));
    worker.kill();
    let number = (round * 7919) % records;
    let start = Instant::now();
    let store = Store::options().path(pool).size(pool_size(records)).open()?;
    let right = store.get(key(number))?.is_some_and(|found| found[..] == value(number));
    let elapsed = start.elapsed();
    match right {
        true => Ok(elapsed.as_secs_f64() * 1e3),
        false => Err(format!("key {number} is not as it was written, after a kill").into()),
    }
}
