//! The time that an open takes: after a stop without a flush, and after a clean one.

use super::NAME;
use super::tables::Tables;
use crate::files::{Outcome, Place, alone, shape, value};
use crate::plan::Plan;
use std::hash::{BuildHasher, RandomState};
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;
use terrace::{ByteSize, Store};
use terrace_bench::{Bound, Random};
use terrace_engine::ManualClock;
use terrace_engine::{Durably, Engine, Put};
use terrace_medium::files::SystemFiles;
use terrace_wip::{Settings, Wip};

const REPLAY: &str = "replay of the log, MB/s";

/// Bytes of the log that is replayed.
fn log_bytes(plan: &Plan) -> u64 {
    if plan.quick { 16 << 20 } else { 512 << 20 }
}

pub(super) fn measure(plan: &Plan, place: &Place, tables: &mut Tables) -> Outcome<()> {
    if !plan.begins(NAME, REPLAY) {
        return Ok(());
    }
    let directory = place.fresh()?;
    let path = directory.path().join("store");
    let bytes = fill_log(&path, log_bytes(plan))?;
    let start = Instant::now();
    let store = options(&path).open()?;
    let seconds = start.elapsed().as_secs_f64();
    drop(store);
    tables.opens.rows.push(alone(REPLAY.into(), bytes as f64 / 1e6 / seconds, Some(Bound::AtLeast(400.0))));
    Ok(())
}

/// So much memory that no MemTable has to be flushed.
const MEMORY: u64 = 4 << 30;

fn options(path: &Path) -> terrace::Options {
    Store::options().directory(path).memory(ByteSize::bytes(MEMORY))
}

/// Writes a store whose data is in its log alone: none of its background work runs, and it is not
/// closed. Returns the bytes of the log.
fn fill_log(path: &Path, bytes: u64) -> Outcome<u64> {
    let chance = RandomState::new().hash_one(1);
    let store = Wip::create(
        SystemFiles,
        path,
        Settings::with_memory(MEMORY, Arc::new(ManualClock::default()), chance),
    )?;
    let (shape, mut random, mut number) = (shape(), Random::new(1), 0);
    loop {
        let pairs: Vec<_> = (number..number + 1000)
            .map(|number| {
                let mut key = Vec::new();
                shape.key(number, &mut key);
                (key, value(&mut random))
            })
            .collect();
        let puts: Vec<Put<'_>> =
            pairs.iter().map(|(key, value)| Put { key, value, expires_at: None }).collect();
        store.put_many(&puts, Durably::Store).into_iter().try_for_each(|done| done)?;
        number += 1000;
        let written = store.stats().disk.map_or(0, |disk| disk.log_bytes_written);
        if written >= bytes {
            return Ok(written);
        }
    }
}
