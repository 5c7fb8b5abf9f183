//! Tests: a log that became shorter than it was is damaged, as far as its ends were noted.

use super::*;
use terrace_disk::Ends;
use terrace_medium::files::Purpose;
use terrace_testkit::simfs::{Fault, Faulty, Handle};

const RECORDS: u64 = 60;

/// Opens the log, which notes its ends.
fn open_noting(files: &impl Handle) -> Result<Log, DiskError> {
    let replayed = read(files)?.1;
    let options = LogOptions { segment_bytes: SEGMENT, reserve_bytes: 0 };
    let log = Log::unopened(&files.handle(), directory(), STORE, options);
    let log = log.with_ends(Ends::open(&files.handle(), directory(), STORE)?);
    log.start(&replayed, false)?;
    Ok(log)
}

/// A log with so many records that were written, and notes of its ends.
fn written() -> (SimFs, Log) {
    let files = disk();
    let log = open_noting(&files).unwrap();
    (1..=RECORDS).for_each(|seq| _ = append(&log, &known(seq, 100)).unwrap());
    log.write(log.end()).unwrap();
    (files, log)
}

/// The files after the machine started again, with everything that was written.
fn restarted(files: &SimFs) -> SimFs {
    let copy = disk();
    let names = files.names();
    names.iter().for_each(|name| copy.put(name, &files.content(name).unwrap()));
    copy.crash(1);
    copy
}

fn set(files: &SimFs, path: &Path, change: impl FnOnce(&mut Vec<u8>)) {
    let mut bytes = files.content(path).unwrap();
    change(&mut bytes);
    files.remove(path).unwrap();
    files.put(path, &bytes);
}

fn error_of(files: &SimFs) -> String {
    read(files).map(|(records, _)| records.len()).expect_err("a log that is damaged").to_string()
}

/// Damages a log in each way, and expects an error that names the segment.
fn assert_damage_is_named(files: &SimFs) {
    let last = segments(files) as u64;
    assert!(last > 1);
    let damages: [fn(&mut Vec<u8>); 4] = [
        |bytes| bytes[300] ^= 1,
        |bytes| bytes.truncate(300),
        |bytes| bytes[300..].fill(0),
        |bytes| bytes.clear(),
    ];
    for number in 1..=last {
        let name = format!("{number:010}.log");
        for damage in damages {
            let files = files.fork();
            set(&files, &segment(number), damage);
            let says = error_of(&files);
            assert!(says.contains(&name), "{says}");
        }
        let files = files.fork();
        files.remove(&segment(number)).unwrap();
        let says = error_of(&files);
        assert!(says.contains(".log") && says.contains("missing"), "{says}");
    }
    let files = files.fork();
    (1..=last).for_each(|number| files.remove(&segment(number)).unwrap());
    assert!(error_of(&files).contains("missing"));
}

#[test]
fn damage_after_a_kill_is_told_from_a_torn_tail() {
    let (files, _log) = written();
    assert_eq!(read(&files).unwrap().0.len() as u64, RECORDS);
    assert_damage_is_named(&files);
}

#[test]
fn damage_after_a_close_is_named_when_the_machine_restarts() {
    let (files, log) = written();
    log.close().unwrap();
    files.crash(3);
    assert_eq!(read(&files).unwrap().0.len() as u64, RECORDS);
    assert_damage_is_named(&files);
}

/// What was not synced may be there though something before it is lost: that is no damage.
#[test]
fn sound_records_of_a_torn_tail_are_counted() {
    let (files, _log) = written();
    let files = restarted(&files);
    set(&files, &segment(1), |bytes| bytes[300] ^= 1);
    let (records, replayed) = read(&files).unwrap();
    assert_eq!(records, [known(1, 100)]);
    assert_eq!(replayed.tail.unwrap().records, RECORDS - 2);
}

#[test]
fn torn_tail_of_an_unwritten_record_is_no_damage() {
    let (files, log) = written();
    // A killed process may have written a part of a record, and not noted it.
    let last = segments(&files) as u64;
    let mut bytes = files.content(&segment(last)).unwrap();
    let used = bytes.iter().rposition(|&byte| byte != 0).unwrap();
    bytes[used + 16..used + 40].fill(7);
    set(&files, &segment(last), |content| *content = bytes);
    let (records, replayed) = read(&files).unwrap();
    assert_eq!(records.len() as u64, RECORDS);
    assert!(replayed.tail.is_some());
    drop(log);
}

#[test]
fn released_segments_are_not_missed_after_a_crash() {
    for seed in 0..20 {
        let (files, log) = written();
        log.sync(log.end()).unwrap();
        log.release(RECORDS / 2).unwrap();
        files.crash(seed);
        let (records, _) = read(&files).unwrap();
        assert!(records.len() < RECORDS as usize && records.last() == Some(&known(RECORDS, 100)));
        let first = (1..).find(|&number| files.content(&segment(number)).is_some()).unwrap();
        files.remove(&segment(first)).unwrap();
        assert!(error_of(&files).contains("missing"));
    }
}

#[test]
fn damaged_notes_are_as_good_as_none() {
    let (files, _log) = written();
    let path = directory().join("ENDS");
    let damages: [fn(&mut Vec<u8>); 3] =
        [|bytes| bytes.clear(), |bytes| bytes.fill(0xff), |bytes| bytes.truncate(100)];
    for damage in damages {
        let files = files.fork();
        set(&files, &path, damage);
        assert_eq!(read(&files).unwrap().0.len() as u64, RECORDS);
        drop(Ends::open(&files.handle(), directory(), STORE).unwrap());
        assert_eq!(files.open(&path, Purpose::Read).unwrap().length().unwrap(), 192);
    }
    // Another store's.
    drop(Ends::open(&files.handle(), directory(), STORE + 1).unwrap());
    assert_eq!(read(&files).unwrap().0.len() as u64, RECORDS);
}

/// What a salvage finds, and the number of damages.
fn salvaged(files: &SimFs) -> (Vec<Known>, usize) {
    let (mut records, mut errors) = (Vec::new(), 0);
    terrace_disk::salvage_log(&files.handle(), directory(), STORE, &mut |record| match record {
        Ok(record) => records.push((record.first_seq, record.count, record.payload.to_vec())),
        Err(_) => errors += 1,
    });
    (records, errors)
}

#[test]
fn record_behind_a_damaged_header_is_salvaged() {
    let (files, log) = written();
    log.close().unwrap();
    let seqs = |files: &SimFs| {
        let (records, errors) = salvaged(files);
        (records.iter().map(|record| record.0).collect::<Vec<u64>>(), errors)
    };
    let all: Vec<u64> = (1..=RECORDS).collect();
    assert_eq!(seqs(&files), (all.clone(), 0));
    // A record takes 144 bytes; this is the second one's header, and then its payload.
    for at in 72 + 144..72 + 144 + 140 {
        let files = files.fork();
        set(&files, &segment(1), |bytes| bytes[at] ^= 4);
        let expected: Vec<u64> = all.iter().copied().filter(|&seq| seq != 2).collect();
        assert_eq!(seqs(&files), (expected, 1), "{at}");
    }
    // Nothing behind the end tells that it is lost.
    let last = segments(&files) as u64;
    set(&files, &segment(last), |bytes| bytes.truncate(100));
    let (found, errors) = seqs(&files);
    assert!(found.len() < all.len() && errors == 1);
}

/// An open drops what lies behind a hole, and gives the numbers again.
#[test]
fn salvage_leaves_out_what_an_open_has_dropped() {
    let (files, _log) = written();
    let files = restarted(&files);
    set(&files, &segment(1), |bytes| bytes[72 + 3 * 144 + 50] ^= 1);
    let (mut expected, log) = open(&files).unwrap();
    assert_eq!(expected, [1, 2, 3].map(|seq| known(seq, 100)));
    for seq in 4..7 {
        expected.push(known(seq, 30));
        append(&log, &expected[expected.len() - 1]).unwrap();
    }
    log.write(log.end()).unwrap();
    assert_eq!(salvaged(&files), (expected.clone(), 0));
    // The last record that counts is damaged, which nothing behind it hides.
    let damaged = files.fork();
    set(&damaged, &segment(1), |bytes| bytes[72 + 2 * 144 + 50] ^= 1);
    let sound = [&expected[..2], &expected[3..]].concat();
    assert_eq!(salvaged(&damaged), (sound, 1));
    // Without the head, the first record cannot be proved.
    set(&files, &segment(1), |bytes| bytes[20] ^= 1);
    assert_eq!(salvaged(&files), (expected[1..].to_vec(), 1));
}

#[test]
fn notes_stay_true_in_a_session_without_a_boot() {
    let (files, log) = written();
    log.sync(log.end()).unwrap();
    drop(log);
    let without = Faulty::counting(files.clone()).without_boot();
    let log = open_noting(&without).unwrap();
    (1..=RECORDS).for_each(|seq| _ = append(&log, &known(RECORDS + seq, 100)).unwrap());
    log.sync(log.end()).unwrap();
    log.release(RECORDS / 2).unwrap();
    let (kept, _) = read(&files).unwrap();
    assert_eq!(kept.last(), Some(&known(2 * RECORDS, 100)));
    drop(log);
    // What was written in it counts no more than after a power loss.
    let last = segments_to(&files);
    set(&files, &segment(last), |bytes| bytes[300] ^= 1);
    assert!(error_of(&files).contains("damaged"), "it was synced");
    // None is made for it.
    let fresh = Faulty::counting(disk()).without_boot();
    open_noting(&fresh).unwrap();
    assert!(!fresh.is_taken(&directory().join("ENDS")).unwrap());
}

/// The number of the last segment with records.
fn segments_to(files: &SimFs) -> u64 {
    let is_used = |number: &u64| {
        files.content(&segment(*number)).is_some_and(|bytes| bytes.iter().any(|&byte| byte != 0))
    };
    (1..100).filter(is_used).max().unwrap()
}

#[test]
fn segment_stays_until_its_removal_is_noted() {
    let run = |files: &Faulty| -> Result<(), DiskError> {
        let log = open_noting(files)?;
        for seq in 1..=RECORDS {
            append(&log, &known(seq, 100))?;
        }
        log.sync(log.end())?;
        log.release(RECORDS / 2)
    };
    let counting = Faulty::counting(disk());
    run(&counting).unwrap();
    let mut refused = 0;
    for nth in 0..counting.calls() {
        let below = disk();
        let done = run(&Faulty::failing(below.clone(), nth, Fault::Full));
        refused += usize::from(done.is_err());
        let records = read(&below).map(|(records, _)| records).map_err(|error| error.to_string());
        assert!(records.is_ok(), "{nth}: {records:?}");
        assert!(done.is_err() || records.unwrap().last() == Some(&known(RECORDS, 100)), "{nth}");
        // It is tried again.
        let log = open_noting(&below).unwrap();
        log.release(RECORDS / 2).unwrap();
        drop(log);
        read(&below).unwrap();
    }
    assert!(refused > 3, "{refused}");
}
