//! What the disk can do, in this run.

use super::NAME;
use super::tables::{Table, Tables};
use crate::files::{Outcome, Place, alone, histogram, micros};
use crate::plan::Plan;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};
use terrace_bench::Random;
use terrace_medium::files::{DIRECT_BLOCK, Files, Purpose, StoredFile, SystemFiles};

const TABLE: Table = Table::beside("The disk's limits now", "unit in the row", &["other"]);
const PIECE: usize = 1 << 20;

pub(super) fn measure(plan: &Plan, place: &Place, tables: &mut Tables) -> Outcome<()> {
    if !plan.begins(NAME, "limits") {
        return Ok(());
    }
    let directory = place.fresh()?;
    let path = directory.path().join("file");
    let bytes: u64 = if plan.quick { 64 << 20 } else { 1 << 30 };
    let time = Duration::from_millis(if plan.quick { 100 } else { 1000 });
    let mut add = |what: &str, figure| tables.add(TABLE, alone(what.into(), figure, None));
    add("written in order and synced, MB/s", write_all(&path, bytes)?);
    add("read in order past the page cache, MB/s", read_all(&path, bytes)?);
    for threads in [1, 2, 32] {
        let (rate, p50) = random_reads(&path, bytes, threads, time)?;
        add(&format!("4 KiB read at random, {threads} threads, thousand/s"), rate);
        if threads == 1 {
            add("4 KiB read at random, p50, µs", p50);
        }
    }
    add("4 KiB written and synced, p50, µs", syncs(&path, time, false)?);
    add("4 KiB written and synced, processors busy, p50, µs", syncs(&path, time, true)?);
    Ok(())
}

fn write_all(path: &Path, bytes: u64) -> Outcome<f64> {
    let (file, mut piece, start) = (SystemFiles.create(path)?, vec![0; PIECE], Instant::now());
    Random::new(1).fill(&mut piece);
    for at in (0..bytes).step_by(PIECE) {
        file.write_all_at(&piece, at)?;
    }
    file.sync()?;
    Ok(bytes as f64 / 1e6 / start.elapsed().as_secs_f64())
}

fn read_all(path: &Path, bytes: u64) -> Outcome<f64> {
    let (file, mut piece, start) = (direct(path)?, vec![0; PIECE], Instant::now());
    for at in (0..bytes).step_by(PIECE) {
        file.read_exact_at(&mut piece, at)?;
    }
    Ok(bytes as f64 / 1e6 / start.elapsed().as_secs_f64())
}

fn direct(path: &Path) -> Outcome<Box<dyn StoredFile>> {
    Ok(SystemFiles.open(path, Purpose::ReadDirect)?)
}

/// Thousand reads a second of all threads, and the median of one in µs.
fn random_reads(path: &Path, bytes: u64, threads: u64, time: Duration) -> Outcome<(f64, f64)> {
    let (file, start) = (&direct(path)?, Instant::now());
    let read = |thread| -> Outcome<_> {
        let (mut random, mut seen, mut block) = (Random::new(thread), histogram(), [0; DIRECT_BLOCK]);
        while start.elapsed() < time {
            let (at, began) = (random.below(bytes / DIRECT_BLOCK as u64), Instant::now());
            file.read_exact_at(&mut block, at * DIRECT_BLOCK as u64)?;
            seen.saturating_record(began.elapsed().as_nanos() as u64);
        }
        Ok(seen)
    };
    let mut all = histogram();
    for seen in in_threads(threads, &read)? {
        all += seen;
    }
    Ok((all.len() as f64 / start.elapsed().as_secs_f64() / 1e3, micros(&all, 50.0)))
}

fn in_threads<T: Send>(threads: u64, work: &(impl Fn(u64) -> Outcome<T> + Sync)) -> Outcome<Vec<T>> {
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..threads).map(|thread| scope.spawn(move || work(thread))).collect();
        threads.into_iter().map(|thread| thread.join().expect("a thread panicked")).collect()
    })
}

/// The median of a sync in µs, beside threads that compute if `is_busy`.
fn syncs(path: &Path, time: Duration, is_busy: bool) -> Outcome<f64> {
    let (file, stop) = (SystemFiles.open(path, Purpose::Write)?, &AtomicBool::new(false));
    let (start, mut seen) = (Instant::now(), histogram());
    std::thread::scope(|scope| {
        for _ in 0..if is_busy { 2 } else { 0 } {
            scope.spawn(move || while !stop.load(Relaxed) {});
        }
        let synced = (|| {
            while start.elapsed() < time {
                let began = Instant::now();
                file.write_all_at(&[7; DIRECT_BLOCK], 0)?;
                file.sync_data()?;
                seen.saturating_record(began.elapsed().as_nanos() as u64);
            }
            Ok(())
        })();
        stop.store(true, Relaxed);
        synced
    })
    .map_err(|error: std::io::Error| error)?;
    Ok(micros(&seen, 50.0))
}
