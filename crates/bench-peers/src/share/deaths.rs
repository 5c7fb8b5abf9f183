//! How long a process waits for a lock whose holder was killed.
//!
//! The holder is this program again. It puts an existing key on a medium that stops its process
//! just after the store to the key's bucket, while it holds the bucket's lock. Another process puts
//! the same key and waits. Then the holder is killed.

use super::{NEIGHBOUR, Outcome, filled, options, read_some};
use crate::plan::{Plan, say};
use crate::records::{key, value};
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};
use terrace::Store;
use terrace_bench::{Bound, Row, Section, median};
use terrace_testkit::process::{Point, PointAction, Victim, points_of};
use terrace_testkit::{TappedShm, stopping};

/// The work of a neighbour that will be killed.
pub(super) const HOLDS: &str = "holds";
const NAME: &str = "death of a lock's holder";

pub(super) fn section(plan: &Plan) -> Outcome<Section> {
    let title = "From SIGKILL of a process that holds a bucket's lock, in the middle of a put, to the end of another one's put of the same key, which waits for it; in /dev/shm";
    let mut section = Section::new(title, "ms", &[]);
    for (records, deaths) in [(1000, 500), (plan.count(10_000_000), 200)] {
        if plan.wants(super::NAME, &format!("{NAME}, {records} records")) {
            say(&format!("{} death, {records} records", super::NAME));
            section.rows.extend(rows(records, plan.count(deaths).max(5))?);
        }
    }
    Ok(section)
}

fn rows(records: u64, deaths: u64) -> Outcome<[Row; 3]> {
    let directory = tempfile::tempdir_in("/dev/shm")?;
    let path = directory.path().join("death.pool");
    let store = filled(&path, records)?;
    let point = inside_a_put()?;
    let mut times =
        (0..deaths).map(|_| death(&store, &path, records, &point)).collect::<Outcome<Vec<f64>>>()?;
    times.sort_by(f64::total_cmp);
    let p99 = times[(times.len() * 99 / 100).min(times.len() - 1)];
    let row =
        |what: &str, time: f64| Row { ours: Some(time), ..Row::new(format!("{records} records, {what}")) };
    Ok([
        row(&format!("median of {deaths}"), median(&times)),
        row("p99", p99).judged(Bound::AtMost(5.0)),
        row("longest", times[times.len() - 1]),
    ])
}

/// The first store of a put to the bucket of a present key.
fn inside_a_put() -> Outcome<Point> {
    let directory = tempfile::tempdir_in("/dev/shm")?;
    let path = directory.path().join("point.pool");
    let store = stopping(|| options(&path, 1).expiry_thread(false).open_or_create_on::<TappedShm>())?;
    store.put(key(0), value(0))?;
    let mut put = Ok(());
    let points = points_of(|| put = store.put(key(0), value(1)));
    put?;
    let mut in_the_bucket = points.into_iter().filter(|point| point.file.contains("index/src/hash/clht"));
    match (in_the_bucket.next(), in_the_bucket.next()) {
        (Some(point), None) => Ok(point),
        _ => {
            Err("a put that replaces a value stores to the index at another number of places than one".into())
        }
    }
}

/// Runs a holder, which stops in the middle of its first put.
pub(super) fn hold(path: &Path, records: u64) -> Outcome<()> {
    let store = stopping(|| options(path, records).open_or_create_on::<TappedShm>())?;
    // It has used the store, so it owns memory that recovery must take back.
    read_some(&store, records, 1);
    store.put(key(0), value(0))?;
    Err("it should have stopped".into())
}

/// Milliseconds from the kill to the end of the put.
fn death(store: &Store, path: &Path, records: u64, point: &Point) -> Outcome<f64> {
    let mut holder = Command::new(std::env::current_exe()?);
    holder.args([NEIGHBOUR.as_ref(), HOLDS.as_ref(), path.as_os_str(), records.to_string().as_ref()]);
    let holder = Victim::of(holder.env(Point::VARIABLE, point.to_variable(PointAction::Stop)))?;
    if !holder.wait_until_stopped()? {
        return Err("the holder has ended before it held the lock".into());
    }
    let (waiting, has_begun) = channel();
    let is_through = AtomicBool::new(false);
    std::thread::scope(|threads| {
        let survivor = threads.spawn(|| {
            let _ = waiting.send(());
            let put = store.put(key(0), value(0));
            let end = Instant::now();
            is_through.store(true, SeqCst);
            put.map(|()| end)
        });
        let _ = has_begun.recv();
        std::thread::sleep(Duration::from_millis(2));
        let has_waited = !is_through.load(SeqCst);
        let killed = Instant::now();
        holder.kill_nowait();
        let end = survivor.join().map_err(|_| "the survivor failed")??;
        holder.wait();
        if !has_waited {
            return Err("the holder did not hold what the survivor needed".into());
        }
        Ok(end.duration_since(killed).as_secs_f64() * 1e3)
    })
}
