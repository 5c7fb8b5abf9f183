//! What a record costs in memory over its key and value.

use crate::plan::{Plan, say};
use crate::records::{KEY_BYTES, VALUE_BYTES};
use crate::server::{self, RedisMode};
use crate::worker::Worker;
use terrace_bench::{Bound, Row, Section, process_private_bytes, process_resident_bytes};

type Outcome<T> = Result<T, Box<dyn std::error::Error>>;

/// Bytes over key and value a record, pool and process together.
pub(crate) fn section(plan: &Plan) -> Outcome<Option<Section>> {
    const NAME: &str = "bytes over key and value";
    if !plan.wants("memory", NAME) {
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
    let (ours, note) = ours(records)?;
    let redis = redis(records)?;
    let mut row = Row { ours: Some(over(ours)), peers: vec![Some(over(redis))], ..Row::new(NAME) };
    row.ratio = row.ours.zip(row.peers[0]).map(|(ours, redis)| ours / redis);
    row.note = Some(note);
    section.rows.push(row.judged(Bound::AtMost(48.0)));
    Ok(Some(section))
}

fn ours(records: u64) -> Outcome<(u64, String)> {
    let directory = tempfile::tempdir_in("/dev/shm")?;
    let worker = Worker::start(&directory.path().join("memory.pool"), records, false)?;
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
