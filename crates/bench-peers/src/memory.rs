//! The memory that a record takes in addition to its key and value.

use crate::plan::{Plan, say};
use crate::records::{KEY_BYTES, VALUE_BYTES};
use crate::server::{self, RedisMode};
use crate::worker::Worker;
use terrace::Index;
use terrace_bench::{Bound, Row, Section, process_private_bytes, process_resident_bytes};

type Outcome<T> = Result<T, Box<dyn std::error::Error>>;

/// Bytes a record beyond key and value, pool and process together, with each index.
pub(crate) fn section(plan: &Plan) -> Outcome<Option<Section>> {
    let name = |index: Index| format!("bytes over key and value, {}", index.name());
    let wanted: Vec<Index> =
        Index::ALL.into_iter().filter(|&index| plan.wants("memory", &name(index))).collect();
    if wanted.is_empty() {
        return Ok(None);
    }
    let records = plan.count(10_000_000);
    say("memory");
    let title = format!(
        "Memory: {records} records of {KEY_BYTES} + {VALUE_BYTES} bytes. Ours: what the pool uses (its size less what is free) and the process's \
         private memory. Redis: its resident set"
    );
    let mut section = Section::new(&title, "bytes a record", &["redis"]);
    let over = |bytes: u64| bytes as f64 / records as f64 - (KEY_BYTES + VALUE_BYTES) as f64;
    let redis = over(redis(records)?);
    for index in wanted {
        let (ours, note) = ours(index, records)?;
        let mut row = Row { ours: Some(over(ours)), peers: vec![Some(redis)], ..Row::new(name(index)) };
        row.ratio = row.ours.map(|ours| ours / redis);
        row.note = Some(note);
        section.rows.push(match index {
            Index::Clht => row.judged(Bound::AtMost(48.0)),
            Index::Turbo => row.judged(Bound::AtMost(32.0)),
            _ => row,
        });
    }
    Ok(Some(section))
}

fn ours(index: Index, records: u64) -> Outcome<(u64, String)> {
    let directory = tempfile::tempdir_in("/dev/shm")?;
    let worker = Worker::start(&directory.path().join("memory.pool"), index, records, false)?;
    let pool: u64 = worker.said.trim().parse()?;
    let private = process_private_bytes(worker.pid()).ok_or("the worker is gone")?;
    let resident = process_resident_bytes(worker.pid()).ok_or("the worker is gone")?;
    let mib = |bytes: u64| bytes >> 20;
    let note = format!(
        "the pool uses {} MiB, the process has {} MiB of its own; resident in all, free pages of the pool that were once used among them: {} MiB",
        mib(pool),
        mib(private),
        mib(resident)
    );
    Ok((pool + private, note))
}

fn redis(records: u64) -> Outcome<u64> {
    let server = server::redis(RedisMode::No)?;
    server::fill(&server, records)?;
    Ok(process_resident_bytes(server.pid()).ok_or("redis-server is gone")?)
}
