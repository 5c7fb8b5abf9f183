//! Tests: a log gives back what was appended, and tells a torn tail from damage.

mod crashes;
mod damage;
mod ends;
mod failures;
mod threads;

use proptest::prelude::*;
use std::path::{Path, PathBuf};
use terrace_disk::{DiskError, Log, LogOptions, Need, Replayed, replay};
use terrace_medium::files::Files;
use terrace_testkit::simfs::{Handle, SimFs};

pub(crate) const STORE: u64 = 0x7e88_ace0;
const SEGMENT: u64 = 4096;

/// First seq, count and payload of a record.
type Known = (u64, u32, Vec<u8>);

fn directory() -> &'static Path {
    Path::new("/store")
}

fn disk() -> SimFs {
    SimFs::new(["/store"])
}

fn segment(number: u64) -> PathBuf {
    directory().join(format!("{number:010}.log"))
}

fn read(files: &impl Handle) -> Result<(Vec<Known>, Replayed), DiskError> {
    let mut records = Vec::new();
    let replayed = replay(&files.handle(), directory(), STORE, &mut |record| {
        records.push((record.first_seq, record.count, record.payload.to_vec()));
        Ok(true)
    })?;
    assert_eq!(replayed.records, records.len() as u64);
    Ok((records, replayed))
}

fn open_with(files: &impl Handle, segment_bytes: u64) -> Result<(Vec<Known>, Log), DiskError> {
    let (records, replayed) = read(files)?;
    let options = LogOptions { segment_bytes, reserve_bytes: 0 };
    let log = Log::open(&files.handle(), directory(), STORE, options, &replayed, false)?;
    Ok((records, log))
}

fn open(files: &impl Handle) -> Result<(Vec<Known>, Log), DiskError> {
    open_with(files, SEGMENT)
}

/// The record with the number `seq`.
fn known(seq: u64, len: usize) -> Known {
    (seq, 1, (0..len).map(|nth| (seq * 31 + nth as u64) as u8 | 1).collect())
}

fn append(log: &Log, record: &Known) -> Result<u64, DiskError> {
    let (one, other) = record.2.split_at(record.2.len() / 3);
    log.append((record.0, record.1.into()), &[one, other], Need::Room)
}

/// Number of segments in the directory.
fn segments(files: &SimFs) -> usize {
    files.names().iter().filter(|path| path.extension().is_some_and(|name| name == "log")).count()
}

#[derive(Clone, Debug)]
enum Step {
    Append(usize),
    Write,
    Sync,
    Prepare,
    Reopen,
    Close,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        8 => (0..400usize).prop_map(Step::Append),
        1 => (0..9000usize).prop_map(Step::Append),
        2 => Just(Step::Write),
        2 => Just(Step::Sync),
        2 => Just(Step::Prepare),
        1 => Just(Step::Reopen),
        1 => Just(Step::Close),
    ];
    prop::collection::vec(step, 0..80)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(150))]

    #[test]
    fn log_gives_back_what_was_appended(steps in steps()) {
        let files = disk();
        let (_, mut log) = open(&files).unwrap();
        let mut expected: Vec<Known> = Vec::new();
        for step in steps {
            match step {
                Step::Append(len) => {
                    expected.push(known(expected.len() as u64 + 1, len));
                    append(&log, &expected[expected.len() - 1]).unwrap();
                }
                Step::Write => log.write(log.end()).unwrap(),
                Step::Sync => log.sync(log.end()).unwrap(),
                Step::Prepare => _ = log.prepare().unwrap(),
                Step::Reopen | Step::Close => {
                    if matches!(step, Step::Close) { log.close() } else { log.write(log.end()) }.unwrap();
                    let (records, new) = open(&files).unwrap();
                    prop_assert_eq!(&records, &expected);
                    log = new;
                }
            }
            prop_assert!(log.durable() <= log.written() && log.written() <= log.end());
        }
        log.write(log.end()).unwrap();
        let (records, replayed) = read(&files).unwrap();
        prop_assert_eq!(replayed.tail, None);
        prop_assert_eq!(replayed.last_seq, expected.len() as u64);
        prop_assert_eq!(replayed.bytes, expected.iter().map(|record| record.2.len() as u64).sum::<u64>());
        prop_assert_eq!(records, expected);
    }
}

#[test]
fn segment_is_prepared_ahead() {
    let files = disk();
    let (_, log) = open(&files).unwrap();
    assert!(!log.prepare().unwrap(), "the first one is there");
    append(&log, &known(1, 100)).unwrap();
    assert!(!log.prepare().unwrap(), "hardly any is used");
    append(&log, &known(2, 1900)).unwrap();
    assert!(log.prepare().unwrap());
    assert!(!log.prepare().unwrap(), "one is enough");
    let syncs = files.sync_count();
    (3..6).for_each(|seq| _ = append(&log, &known(seq, 1000)).unwrap());
    log.write(log.end()).unwrap();
    assert_eq!(files.sync_count(), syncs, "neither an append nor a write syncs");
    assert_eq!(segments(&files), 2);
    log.sync(log.end()).unwrap();
    assert_eq!(files.sync_count(), syncs + 2, "both segments");
    assert_eq!(log.durable(), log.end());
}

#[test]
fn full_disk_takes_records_that_make_room_only() {
    let files = disk();
    files.set_capacity(64 << 10);
    let options = LogOptions { segment_bytes: 16 << 10, reserve_bytes: 16 << 10 };
    let open = || {
        let (records, replayed) = read(&files).unwrap();
        (records, Log::open(&files.handle(), directory(), STORE, options, &replayed, false).unwrap())
    };
    let add = |log: &Log, seq: u64, need| log.append((seq, 1), &[&[7; 1000]], need);
    let (_, log) = open();
    let refused = (1..).find(|&seq| add(&log, seq, Need::Room).is_err()).expect("the disk runs full");
    log.write(log.end()).unwrap();
    assert!(log.reserve().is_kept());
    // What is kept takes more than a segment's worth of them.
    let last = refused + 10;
    (refused..=last).for_each(|seq| _ = add(&log, seq, Need::Reserve).expect("room was kept"));
    log.write(log.end()).unwrap();
    let is_full = |log: &Log| matches!(add(log, last + 1, Need::Room), Err(DiskError::Full { .. }));
    assert!(is_full(&log) && !log.prepare().unwrap(), "the room is not kept, so nothing else is taken");
    drop(log);
    let (records, log) = open();
    assert_eq!(records.len() as u64, last);
    assert!(is_full(&log), "a restart changes nothing");
    assert!(add(&log, last + 1, Need::Reserve).is_ok());
    log.release(last).unwrap();
    assert!(log.prepare().unwrap() && log.reserve().is_kept(), "there is room to keep again");
    add(&log, last + 2, Need::Room).unwrap();
}

#[test]
fn long_record_gets_a_segment_of_its_own_size() {
    let files = disk();
    let (_, log) = open(&files).unwrap();
    let records = [known(1, 2500), known(2, 100_000), known(3, 10)];
    append(&log, &records[0]).unwrap();
    log.prepare().unwrap();
    records[1..].iter().for_each(|record| _ = append(&log, record).unwrap());
    log.sync(log.end()).unwrap();
    assert_eq!(read(&files).unwrap().0, records);
    assert_eq!(segments(&files), 3, "the prepared one was made larger");
}

#[test]
fn release_keeps_what_is_needed() {
    let files = disk();
    let (_, log) = open(&files).unwrap();
    let all: Vec<Known> = (1..=40).map(|seq| known(seq, 500)).collect();
    all.iter().for_each(|record| _ = append(&log, record).unwrap());
    let (segments_before, bytes) = (segments(&files), log.bytes());
    assert_eq!(log.oldest_seq(), Some(1));
    for below in 1..=45 {
        log.release(below).unwrap();
        let oldest = log.oldest_seq().unwrap();
        assert!(oldest <= below && below.min(40) < oldest + 8, "{below}: {oldest}");
        let kept: Vec<Known> = all.iter().filter(|record| record.0 >= oldest).cloned().collect();
        log.write(log.end()).unwrap();
        let (records, replayed) = read(&files).unwrap();
        assert_eq!(records, kept);
        assert_eq!(replayed.end, log.end());
        assert_eq!(log.bytes(), replayed.end - bytes_before(&files, &replayed));
        let (_, reopened) = open_read_only(&files);
        assert_eq!((reopened.oldest_seq(), reopened.bytes()), (log.oldest_seq(), log.bytes()));
    }
    assert_eq!(segments(&files), 1);
    assert!(segments_before > 5 && log.bytes() < bytes / 5);
}

/// The position of the first segment's head.
fn bytes_before(files: &SimFs, replayed: &Replayed) -> u64 {
    let first = (1..replayed.next_segment).find(|&number| files.content(&segment(number)).is_some());
    let head = files.content(&segment(first.unwrap())).unwrap();
    u64::from_le_bytes(head[32..40].try_into().unwrap())
}

fn open_read_only(files: &SimFs) -> (Vec<Known>, Log) {
    let (records, replayed) = read(files).unwrap();
    let options = LogOptions { segment_bytes: SEGMENT, reserve_bytes: 0 };
    (records, Log::open(&files.handle(), directory(), STORE, options, &replayed, true).unwrap())
}

#[test]
fn read_only_log_changes_nothing() {
    let files = disk();
    let (_, log) = open(&files).unwrap();
    append(&log, &known(1, 100)).unwrap();
    log.write(log.end()).unwrap();
    let (names, content, syncs) = (files.names(), files.content(&segment(1)), files.sync_count());
    let (records, log) = open_read_only(&files);
    assert_eq!(records, [known(1, 100)]);
    let says = append(&log, &known(2, 1)).unwrap_err().to_string();
    assert_eq!(says, "the store at /store is open for reading only");
    assert_eq!((files.names(), files.content(&segment(1)), files.sync_count()), (names, content, syncs));
}

#[test]
fn reopening_leaves_no_allocated_space_behind() {
    let files = disk();
    for seq in 1..=20 {
        let (records, log) = open(&files).unwrap();
        assert_eq!(records.len() as u64, seq - 1);
        append(&log, &known(seq, 10)).unwrap();
        if seq % 2 == 0 { log.close() } else { log.sync(log.end()) }.unwrap();
    }
    (0..5).for_each(|_| drop(open(&files).unwrap()));
    let sizes = (1..=20).map(|number| files.content(&segment(number)).unwrap().len());
    assert!(sizes.sum::<usize>() < 20 * 200);
    assert_eq!(segments(&files), 21);
}

#[test]
fn log_that_was_closed_is_appended_to() {
    let files = disk();
    let (_, log) = open(&files).unwrap();
    append(&log, &known(1, 10)).unwrap();
    log.close().unwrap();
    append(&log, &known(2, 10)).unwrap();
    log.close().unwrap();
    log.close().unwrap();
    assert_eq!(read(&files).unwrap().0, [known(1, 10), known(2, 10)]);
}

/// Bytes that the file RESERVE has.
fn reserved(files: &SimFs) -> usize {
    files.content(&directory().join("RESERVE")).map_or(0, |content| content.len())
}

#[test]
fn room_of_the_reserve_stays_with_a_job_that_has_it() {
    let files = disk();
    files.set_capacity(64 << 10);
    let options = LogOptions { segment_bytes: 16 << 10, reserve_bytes: 16 << 10 };
    let replayed = read(&files).unwrap().1;
    let log = Log::open(&files.handle(), directory(), STORE, options, &replayed, false).unwrap();
    let lent = log.reserve().let_go().unwrap().expect("it was kept");
    assert!(log.reserve().let_go().unwrap().is_none(), "there is no more");
    // The room is free, but the job needs it.
    assert!(!log.prepare().unwrap());
    let refused = log.append((1, 1), &[&[7; 1000]], Need::Room);
    assert!(matches!(refused, Err(DiskError::Full { .. })), "{refused:?}");
    assert_eq!(reserved(&files), 0);
    log.append((1, 1), &[&[7; 1000]], Need::Reserve).unwrap();
    drop(lent);
    assert!(log.prepare().unwrap());
    assert_eq!(reserved(&files), 16 << 10);
    log.append((2, 1), &[&[7; 1000]], Need::Room).unwrap();
}

#[test]
fn reserve_fits_what_is_needed() {
    let files = disk();
    let options = LogOptions { segment_bytes: 16 << 10, reserve_bytes: 16 << 10 };
    let open = || {
        let replayed = read(&files).unwrap().1;
        Log::open(&files.handle(), directory(), STORE, options, &replayed, false).unwrap()
    };
    let log = open();
    let fit = |log: &Log, bytes: u64| {
        log.reserve().fit(bytes).unwrap();
        reserved(&files)
    };
    assert_eq!(fit(&log, 18 << 10), 16 << 10, "that is not worth it");
    assert_eq!(fit(&log, 100 << 10), 100 << 10);
    assert_eq!(fit(&log, 60 << 10), 100 << 10);
    // A full disk must not lose it by a restart.
    drop(log);
    let log = open();
    assert_eq!(reserved(&files), 100 << 10);
    assert_eq!(fit(&log, 40 << 10), 40 << 10);
    assert_eq!(fit(&log, 0), 16 << 10, "what it is meant to have at least");
    // Nor does it come back larger than it is needed then.
    assert_eq!(fit(&log, 100 << 10), 100 << 10);
    drop(log.reserve().let_go().unwrap());
    assert_eq!(fit(&log, 0), 0);
    assert!(log.prepare().unwrap());
    assert_eq!(reserved(&files), 16 << 10);
    files.set_capacity(64 << 10);
    assert_eq!(fit(&log, 1 << 20), 16 << 10, "there is no room for more");
    assert!(log.reserve().is_kept());
}
