//! Tests: damaged segments.

use super::*;
use terrace_disk::Tail;

/// A log over several segments. The records up to the second number are synced, and two records of
/// a later segment say so.
fn sample() -> (SimFs, Vec<Known>, usize) {
    let files = disk();
    let (_, log) = open_with(&files, 700).unwrap();
    let mut records: Vec<Known> = (1..=20).map(|seq| known(seq, 20 + seq as usize * 3)).collect();
    records.iter().for_each(|record| _ = append(&log, record).unwrap());
    log.sync(log.end()).unwrap();
    let (synced, before) = (records.len(), segments(&files));
    let mut seq = 20;
    while segments(&files) < before + 2 {
        seq += 1;
        records.push(known(seq, 150));
        append(&log, records.last().unwrap()).unwrap();
    }
    records.push(known(seq + 1, 20));
    append(&log, records.last().unwrap()).unwrap();
    log.write(log.end()).unwrap();
    (files, records, synced)
}

/// Checks what a replay of a damaged log gives, and whether the log goes on from there.
fn check(files: &SimFs, all: &[Known], synced: usize, says_tail: bool) {
    let (records, replayed) = match read(files) {
        Ok(read) => read,
        Err(error) => {
            let is_known = matches!(
                error,
                DiskError::Corrupt { .. } | DiskError::Newer { .. } | DiskError::Foreign { .. }
            );
            assert!(is_known && error.to_string().contains(".log"), "{error}");
            return;
        }
    };
    assert!(all.starts_with(&records), "a prefix");
    assert!(records.len() >= synced, "{} of {synced} records that were synced", records.len());
    assert!(!says_tail || records.len() == all.len() || replayed.tail.is_some());
    let options = LogOptions { segment_bytes: 700, reserve_bytes: 0 };
    let log = Log::open(&files.handle(), directory(), STORE, options, &replayed, false).unwrap();
    let more = known(77, 300);
    append(&log, &more).unwrap();
    log.sync(log.end()).unwrap();
    let expected = [&records[..], &[more]].concat();
    assert_eq!(read(files).unwrap().0, expected);
}

#[test]
fn changed_byte_is_torn_or_an_error_or_harmless() {
    let (files, all, synced) = sample();
    let (mut torn, mut errors) = (0, 0);
    for number in 1..=segments(&files) as u64 {
        let sound = files.content(&segment(number)).unwrap();
        for at in 0..sound.len() {
            let damaged = files.fork();
            let mut bytes = sound.clone();
            bytes[at] ^= 1 << (at % 8);
            damaged.put(&segment(number), &bytes);
            match read(&damaged) {
                Ok((_, replayed)) => torn += usize::from(replayed.tail.is_some()),
                Err(_) => errors += 1,
            }
            check(&damaged, &all, synced, true);
        }
    }
    assert!(torn > 200 && errors > 1000, "{torn} torn, {errors} errors");
}

#[test]
fn cut_segment_is_torn_or_an_error() {
    let (files, all, synced) = sample();
    for number in 1..=segments(&files) as u64 {
        let sound = files.content(&segment(number)).unwrap();
        for cut in 0..sound.len() {
            let damaged = files.fork();
            damaged.remove(&segment(number)).unwrap();
            damaged.put(&segment(number), &sound[..cut]);
            check(&damaged, &all, synced, false);
        }
    }
}

#[test]
fn closed_log_shows_damage_of_its_last_record() {
    let files = disk();
    let (_, log) = open(&files).unwrap();
    append(&log, &known(1, 100)).unwrap();
    append(&log, &known(2, 100)).unwrap();
    log.close().unwrap();
    let sound = files.content(&segment(1)).unwrap();
    assert_eq!(sound.len(), 72 + 2 * (40 + 104) + 40);
    for at in 0..sound.len() - 40 {
        let mut bytes = sound.clone();
        bytes[at] ^= 4;
        files.put(&segment(1), &bytes);
        let result = read(&files);
        let is_padding = [212..216, 356..360].iter().any(|padding| padding.contains(&at));
        assert_eq!(result.is_ok(), is_padding, "{at}");
    }
}

#[test]
fn torn_tail_is_told() {
    let files = disk();
    let (_, log) = open(&files).unwrap();
    append(&log, &known(1, 100)).unwrap();
    let end = append(&log, &known(2, 100)).unwrap();
    log.write(end).unwrap();
    let mut bytes = files.content(&segment(1)).unwrap();
    bytes[216 + 80] ^= 1;
    files.put(&segment(1), &bytes);
    let (records, replayed) = read(&files).unwrap();
    assert_eq!(records, [known(1, 100)]);
    assert_eq!(replayed.tail, Some(Tail { segment: 1, offset: 216, bytes: 140, records: 0 }));
    assert_eq!(replayed.end, 216);
}

#[test]
fn missing_segment_is_an_error() {
    let (files, ..) = sample();
    let count = segments(&files) as u64;
    for number in 2..count {
        let damaged = files.fork();
        damaged.remove(&segment(number)).unwrap();
        let says = read(&damaged).unwrap_err().to_string();
        assert!(says.contains(&format!("{number:010}.log")) && says.contains("missing"), "{says}");
    }
    files.remove(&segment(count)).unwrap();
    let says = read(&files).unwrap_err().to_string();
    assert!(says.contains(&format!("{count:010}.log")) && says.contains("missing"), "{says}");
}

#[test]
fn segment_of_another_place_is_an_error() {
    let (files, ..) = sample();
    let (one, two) = (files.content(&segment(1)).unwrap(), files.content(&segment(2)).unwrap());
    files.put(&segment(1), &two);
    files.put(&segment(2), &one);
    let says = read(&files).unwrap_err().to_string();
    assert!(says.contains("the name of another file"), "{says}");
    let error = replay(&sample().0.handle(), directory(), STORE + 1, &mut |_| Ok(true)).unwrap_err();
    assert!(matches!(error, DiskError::Foreign { .. }), "{error}");
    let mut newer = one;
    newer[8] = 9;
    crate::sign_head(&mut newer, STORE, 1);
    files.put(&segment(1), &newer);
    let says = read(&files).unwrap_err().to_string();
    assert!(says.contains("has format 9"), "{says}");
}

#[test]
fn record_that_contains_a_log_is_no_record() {
    let (inner, ..) = sample();
    let copy = inner.content(&segment(1)).unwrap();
    let files = disk();
    let (_, log) = open(&files).unwrap();
    let record = (1, 1, [vec![0; 8 * 21], copy].concat());
    append(&log, &record).unwrap();
    log.write(log.end()).unwrap();
    let mut bytes = files.content(&segment(1)).unwrap();
    bytes[72] ^= 1;
    files.put(&segment(1), &bytes);
    let (records, replayed) = read(&files).unwrap();
    assert!(records.is_empty() && replayed.tail.is_some(), "a torn tail, whatever it contains");
}

#[test]
fn io_error_is_no_end() {
    use terrace_testkit::simfs::{Fault, Faulty};
    let (files, ..) = sample();
    let counting = Faulty::counting(files.clone());
    read(&counting).unwrap();
    for nth in 0..counting.calls() {
        let error = read(&Faulty::failing(files.clone(), nth, Fault::Device)).unwrap_err();
        assert!(matches!(error, DiskError::Io { .. }), "{nth}: {error}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn any_bytes_are_read_without_panic(
        noise in prop::collection::vec(any::<u8>(), 0..2000),
        at in 0..700usize,
        number in 1..6u64,
    ) {
        let (files, all, _) = sample();
        let mut bytes = files.content(&segment(number)).unwrap();
        let end = (at + noise.len()).min(bytes.len());
        bytes[at..end].copy_from_slice(&noise[..end - at]);
        files.put(&segment(number), &bytes);
        if let Ok((records, _)) = read(&files) {
            prop_assert!(all.starts_with(&records));
        }
    }
}
