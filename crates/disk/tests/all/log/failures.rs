//! Tests: file systems that fail.

use super::*;
use crate::gated::Gated;
use terrace_medium::files::Purpose;
use terrace_testkit::simfs::{Fault, Faulty, Handle};

/// Runs a history in which any call may fail. Returns what was acknowledged, what was refused for
/// lack of room, and the error that ended the log.
fn run(files: &impl Handle) -> (Vec<Known>, Vec<Known>, Option<DiskError>) {
    let (mut kept, mut refused) = (Vec::new(), Vec::new());
    let log = match open_with(files, 1200) {
        Ok((_, log)) => log,
        Err(error) => return (kept, refused, Some(error)),
    };
    let mut last = None;
    for seq in 1..=14 {
        let record = known(seq, 200);
        let is_latched = last.is_some();
        let settled = append(&log, &record).and_then(|end| match seq % 3 {
            0 => log.sync(end),
            _ => log.write(end),
        });
        match settled {
            Ok(()) => {
                assert!(!is_latched, "nothing is acknowledged after a failure");
                kept.push(record);
            }
            Err(DiskError::Full { .. }) if !is_latched => refused.push(record),
            Err(error) => {
                let says = last.get_or_insert_with(|| error.clone()).to_string();
                assert!(!is_latched || error.to_string() == says, "{error}, not {says}");
                // A segment that cannot be created ends nothing.
                if !is_latched && log.write(0).is_ok() {
                    last = None;
                    refused.push(record);
                }
            }
        }
        if seq == 9 {
            let _ = log.release(3);
        }
        if seq % 4 == 0 {
            let _ = log.prepare();
        }
    }
    if log.sync(log.end()).is_ok() {
        assert_eq!(log.durable(), log.end());
    }
    (kept, refused, last)
}

#[test]
fn nth_call_that_fails_loses_nothing_acknowledged() {
    let counting = Faulty::counting(disk());
    run(&counting);
    let (mut full, mut ended) = (0, 0);
    for nth in 0..counting.calls() {
        for fault in Fault::ALL {
            let below = disk();
            let (kept, refused, last) = run(&Faulty::failing(below.clone(), nth, fault));
            full += usize::from(!refused.is_empty());
            ended += usize::from(last.is_some());
            let (records, _) = read(&below).unwrap();
            let is_there = |record: &Known| records.contains(record);
            let first = records.first().map_or(0, |record| record.0);
            assert!(first <= 3, "released too much");
            assert!(kept.iter().all(|record| record.0 < first || is_there(record)), "{nth} {fault:?}");
            assert!(!refused.iter().any(is_there), "{nth} {fault:?}: refused, and there all the same");
            assert!(records.is_sorted_by_key(|record| record.0));
            let (_, log) = open(&below).unwrap();
            append(&log, &known(50, 9)).unwrap();
            log.sync(log.end()).unwrap();
            below.crash(nth);
            let (after, _) = read(&below).unwrap();
            assert_eq!(after, [&records[..], &[known(50, 9)]].concat());
        }
    }
    assert!(full > 3 && ended > 10, "{full} full, {ended} ended");
}

#[test]
fn failed_sync_ends_the_log() {
    for nth in 0..40 {
        let files = disk();
        files.fail_sync(nth);
        let Ok((_, log)) = open_with(&files, 1200) else { continue };
        let mut synced = Vec::new();
        let mut error = None;
        for seq in 1..=20 {
            let record = known(seq, 200);
            let result = append(&log, &record).and_then(|end| log.sync(end));
            assert!(error.is_none() || result.is_err(), "a failed sync is not retried");
            match result {
                Ok(()) => synced.push(record),
                Err(new) => error = Some(new),
            }
        }
        files.crash(nth);
        let (records, _) = read(&files).unwrap();
        assert!(records.len() >= synced.len() && records.starts_with(&synced));
    }
}

/// An attempt to allocate what the file system lacks may take as long as filling it.
#[test]
fn full_disk_is_asked_for_its_room_and_not_filled() {
    let disk = disk();
    let files = Gated::new(disk.clone());
    disk.set_capacity(3 * SEGMENT + 100);
    let (_, log) = open(&files).unwrap();
    let refused = |seq: u64| matches!(append(&log, &known(seq, 300)), Err(DiskError::Full { .. }));
    let first = (1..).find(|&seq| refused(seq)).unwrap();
    let before = files.allocations();
    assert!((0..50).all(|_| refused(first)));
    assert_eq!(files.allocations(), before);
    disk.set_capacity(1 << 30);
    assert!(!refused(first) && files.allocations() > before);
}

#[test]
fn full_disk_refuses_records_until_there_is_room() {
    let files = disk();
    files.set_capacity(3 * SEGMENT + 100);
    let (_, log) = open(&files).unwrap();
    let (mut kept, mut refused) = (Vec::new(), 0);
    for seq in 1..=60 {
        let record = known(seq, 300);
        match append(&log, &record) {
            Ok(end) => {
                log.write(end).unwrap();
                kept.push(record);
            }
            Err(error) => {
                let says = error.to_string();
                assert!(says.contains("no room for /store/0000000004.log"), "{says}");
                refused += 1;
            }
        }
        if seq == 50 {
            files.set_capacity(5 * SEGMENT);
        }
    }
    assert!(refused > 5 && kept.last().unwrap().0 == 60);
    log.close().unwrap();
    assert_eq!(open(&files).unwrap().0, kept);
}

#[test]
fn log_on_a_full_disk_opens_for_reading() {
    let files = disk();
    let (_, log) = open(&files).unwrap();
    append(&log, &known(1, 300)).unwrap();
    log.close().unwrap();
    files.set_capacity(500);
    let (records, log) = open(&files).unwrap();
    assert_eq!(records, [known(1, 300)]);
    assert!(matches!(append(&log, &known(2, 1)), Err(DiskError::Full { .. })));
    files.set_capacity(1 << 20);
    log.sync(append(&log, &known(2, 1)).unwrap()).unwrap();
    assert_eq!(read(&files).unwrap().0, [known(1, 300), known(2, 1)]);
}

/// A copy-on-write file system may lack room for a write to space that is allocated.
#[test]
fn write_without_room_takes_its_records_out() {
    let mut taken_out = 0;
    for nth in 0..60 {
        let below = disk();
        let files = Faulty::failing(below.clone(), nth, Fault::Full);
        let Ok((_, log)) = open(&files) else { continue };
        let ends: Vec<u64> = (1..=30).filter_map(|seq| append(&log, &known(seq, 500)).ok()).collect();
        if log.write(0).is_err() {
            // Another call than a write has failed, and that has ended the log.
            continue;
        }
        let full: Vec<bool> = ends
            .iter()
            .map(|&end| match log.write(end) {
                Ok(()) => false,
                Err(DiskError::Full { .. }) => true,
                Err(error) => panic!("{error}"),
            })
            .collect();
        // None of them reached the files, or all before the first that is refused.
        assert!(full.is_sorted());
        let more = known(77, 10);
        let settle = || append(&log, &more).and_then(|end| log.sync(end));
        // The call that fails may be one of these.
        if let Err(error) = settle().or_else(|_| settle()) {
            assert!(log.write(0).is_err(), "{error}");
            continue;
        }
        ends.iter().zip(&full).for_each(|(&end, &full)| assert_eq!(log.write(end).is_err(), full));
        let (records, _) = read(&below).unwrap();
        assert_eq!(records.len(), full.iter().filter(|full| !**full).count() + 1);
        assert_eq!(records.last(), Some(&more));
        taken_out += usize::from(full.contains(&true));
    }
    assert!(taken_out >= 4, "{taken_out}");
}

#[test]
fn short_writes_are_completed() {
    let below = disk();
    let files = Faulty::counting(below.clone()).short(5);
    let (_, log) = open(&files).unwrap();
    let records: Vec<Known> = (1..30).map(|seq| known(seq, 700)).collect();
    records.iter().for_each(|record| _ = append(&log, record).unwrap());
    log.sync(log.end()).unwrap();
    assert_eq!(read(&below).unwrap().0, records);
    assert_eq!(read(&files).unwrap().0, records);
}

/// A directory is opened to be synced, which may fail where all else goes well.
#[test]
fn missing_descriptor_for_a_directory_ends_nothing() {
    const MOST: usize = 30;
    let below = disk();
    let files = Faulty::limited(below.clone(), MOST);
    let other = Path::new("/store/other");
    drop(files.create(other).unwrap());
    let take = |left: usize| {
        let count = MOST - left - files.open_files();
        (0..count).map(|_| files.open(other, Purpose::Read).unwrap()).collect::<Vec<_>>()
    };
    let (_, log) = open(&files).unwrap();
    // One is left for the next segment, and none for the directory.
    let taken = take(1);
    let mut records = Vec::new();
    let refused = (1..).find_map(|seq| {
        records.push(known(seq, 500));
        append(&log, records.last().unwrap()).err()
    });
    let refused = refused.expect("a segment is full");
    assert!(
        refused.lacks_descriptors().is_some() && refused.to_string().contains("sync /store"),
        "{refused}"
    );
    records.pop();
    drop(taken);
    for seq in records.len() as u64 + 1..30 {
        records.push(known(seq, 500));
        append(&log, records.last().unwrap()).unwrap();
    }
    log.sync(log.end()).unwrap();
    assert_eq!(read(&below).unwrap().0, records);
    let taken = take(0);
    let refused = log.release(20).expect_err("the directory cannot be opened");
    assert!(refused.lacks_descriptors().is_some(), "{refused}");
    drop(taken);
    log.release(20).unwrap();
    records.push(known(30, 500));
    append(&log, records.last().unwrap()).unwrap();
    log.sync(log.end()).unwrap();
    let (left, _) = read(&below).unwrap();
    assert!(left.len() < 20 && records.ends_with(&left));
}
