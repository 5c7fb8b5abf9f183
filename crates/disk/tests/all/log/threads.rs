//! Tests: several threads append and sync.

use super::*;
use crate::gated::Gated;
use std::thread;

#[test]
fn one_sync_serves_all_that_wait() {
    let files = Gated::new(disk());
    let (_, log) = open(&files).unwrap();
    let before = files.syncs();
    files.close();
    thread::scope(|scope| {
        let (log, files) = (&log, &files);
        scope.spawn(move || log.sync(append(log, &known(1, 10)).unwrap()).unwrap());
        files.wait_for(before + 1);
        // The first one runs. Others append and write meanwhile.
        let first = log.written();
        log.write(append(log, &known(2, 10)).unwrap()).unwrap();
        assert!(log.written() > first && log.durable() < first);
        let ends: Vec<u64> = (3..10).map(|seq| append(log, &known(seq, 10)).unwrap()).collect();
        for end in ends {
            scope.spawn(move || log.sync(end).unwrap());
        }
        files.open_gate();
    });
    assert_eq!(log.durable(), log.end());
    assert_eq!(files.syncs(), before + 2, "one of the first record, one of all the others");
}

#[test]
fn sync_covers_nothing_written_after_it_began() {
    let below = disk();
    let files = Gated::new(below.clone());
    let (_, log) = open(&files).unwrap();
    let before = files.syncs();
    files.close();
    thread::scope(|scope| {
        let (log, files) = (&log, &files);
        let one = append(log, &known(1, 10)).unwrap();
        scope.spawn(move || log.sync(one).unwrap());
        files.wait_for(before + 1);
        let two = append(log, &known(2, 10)).unwrap();
        log.write(two).unwrap();
        files.open_gate();
        log.sync(two).unwrap();
        assert_eq!(log.durable(), two);
    });
    assert_eq!(files.syncs(), before + 2);
    below.crash(3);
    assert_eq!(read(&below).unwrap().0.len(), 2);
}

#[test]
fn records_of_many_threads_are_all_there() {
    const THREADS: u64 = 8;
    const EACH: u64 = 60;
    let files = disk();
    let (_, log) = open(&files).unwrap();
    thread::scope(|scope| {
        for thread in 0..THREADS {
            let log = &log;
            scope.spawn(move || {
                for nth in 0..EACH {
                    let record = known(thread * EACH + nth + 1, 100 + (nth * 7) as usize);
                    let end = append(log, &record).unwrap();
                    match nth % 4 {
                        0 => log.sync(end).unwrap(),
                        1 => _ = log.prepare().unwrap(),
                        _ => log.write(end).unwrap(),
                    }
                    assert!(nth % 4 != 0 || log.durable() >= end);
                }
            });
        }
    });
    log.sync(log.end()).unwrap();
    let (records, replayed) = read(&files).unwrap();
    assert_eq!(replayed.end, log.end());
    let mut seqs: Vec<u64> = records.iter().map(|record| record.0).collect();
    assert!((0..THREADS).all(|thread| {
        let of = |seq: &&u64| (**seq - 1) / EACH == thread;
        seqs.iter().filter(of).is_sorted()
    }));
    seqs.sort_unstable();
    assert_eq!(seqs, (1..=THREADS * EACH).collect::<Vec<_>>());
}

#[test]
fn full_disk_under_many_threads_refuses_and_keeps() {
    let files = disk();
    files.set_capacity(6 * SEGMENT);
    let (_, log) = open(&files).unwrap();
    let results: Vec<Vec<(u64, bool)>> = thread::scope(|scope| {
        let work = |thread: u64| {
            let log = &log;
            let put = move |nth| {
                let record = known(thread * 100 + nth, 200);
                let settled = append(log, &record).and_then(|end| log.write(end));
                assert!(matches!(settled, Ok(()) | Err(DiskError::Full { .. })));
                (record.0, settled.is_ok())
            };
            scope.spawn(move || (1..=50).map(put).collect())
        };
        let threads: Vec<_> = (0..4).map(work).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    let mut kept: Vec<u64> = results.into_iter().flatten().filter(|put| put.1).map(|put| put.0).collect();
    let mut seqs: Vec<u64> = read(&files).unwrap().0.iter().map(|record| record.0).collect();
    kept.sort_unstable();
    seqs.sort_unstable();
    assert_eq!(seqs, kept);
    assert!(kept.len() > 60 && kept.len() < 200);
}
