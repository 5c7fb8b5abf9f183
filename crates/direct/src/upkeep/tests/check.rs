//! Tests of `check`.

use super::*;
use crate::batch::descriptor::{Descriptor, Status};
use crate::tests::fixtures::{Store, settings, store};
use std::sync::atomic::Ordering::Relaxed;
use terrace_engine::{Commit, Durably, Engine, Write, WriteKind};
use terrace_medium::{Dram, Shm};
use terrace_pool::PoolOptions;

type Check = fn(&Store, &mut dyn FnMut(u64, u64)) -> Report;
/// The check without other processes, and the concurrent one.
const BOTH: [Check; 2] =
    [|store, progress| store.check(progress), |store, progress| store.check_records(progress)];

#[test]
fn check_reports_progress_and_counts() {
    let (store, _) = store();
    (0..40_000u32).for_each(|n| store.put_entry(&n.to_le_bytes(), b"", None));
    for check in BOTH {
        let mut reports = Vec::new();
        let report = check(&store, &mut |done, all| reports.push((done, all)));
        assert!(report.is_sound(), "{:?}", report.findings);
        assert_eq!((report.records, report.roots), (40_000, 2));
        assert_eq!(report.buckets, store.index().stats(&store.pool().pin()).buckets);
        assert_eq!(reports.last(), Some(&(40_000, 40_000)));
        assert!((3..5).contains(&reports.len()), "{reports:?}");
        // The concurrent check visits whole chains, so a few more each time.
        let near = |&(done, all): &(u64, u64)| done % STEP < 64 && all == 40_000;
        assert!(reports.iter().take(2).all(near) && reports.is_sorted(), "{reports:?}");
    }
}

/// The findings about records, without those of the index.
fn of_records(report: &Report) -> Vec<&terrace_engine::Finding> {
    report.findings.iter().filter(|finding| finding.what == "a record").collect()
}

#[test]
fn check_names_up_to_a_thousand_damaged_records() {
    let (store, _) = store();
    (0..1100u32).for_each(|n| store.put_entry(&n.to_le_bytes(), b"value", None));
    let places: Vec<u64> = (0..1100u32).map(|n| store.record_offset(&n.to_le_bytes())).collect();
    // Its stamp.
    store.damage(places[7] + 8);
    for check in BOTH {
        let report = check(&store, &mut |_, _| {});
        let [finding] = of_records(&report)[..] else { panic!("{:?}", report.findings) };
        assert_eq!((finding.place.offset(), finding.remedy), (places[7], terrace_engine::Remedy::Dropped));
        assert_eq!(finding.affected.as_deref(), Some(r#""\x07\x00\x00\x00""#));
    }
    // Its shape: its key is unreadable.
    store.damage(places[8]);
    for check in BOTH {
        let report = check(&store, &mut |_, _| {});
        assert_eq!((report.records, of_records(&report).len()), (1100, 2));
        let unread =
            of_records(&report).into_iter().find(|finding| finding.place.offset() == places[8]).unwrap();
        assert!(unread.found.ends_with("its key is unreadable") && unread.affected.is_none(), "{unread:?}");
    }
    places[9..].iter().for_each(|place| store.damage(place + 8));
    for check in BOTH {
        let report = check(&store, &mut |_, _| {});
        assert_eq!(report.records, 1100);
        assert_eq!(report.findings.len(), 1000);
    }
}

#[test]
fn check_reports_record_with_damaged_key() {
    let (store, _) = store();
    store.put_entry(b"key", b"value", None);
    store.damage(store.record_offset(b"key") + 16);
    for check in BOTH {
        let report = check(&store, &mut |_, _| {});
        assert!(of_records(&report).len() == 1 && !report.is_sound());
    }
}

#[test]
fn check_reports_unfinalized_record_of_finished_batch() {
    let (store, _) = store();
    let write = |key| Write { key, what: WriteKind::Put { value: b"value", expires_at: None } };
    assert_eq!(store.commit(&[write(b"a"), write(b"b")], &[], Durably::Store), Ok(Commit::Done));
    let (guard, medium, place) = (store.pool().pin(), store.pool().medium(), store.record_offset(b"a"));
    let block = Descriptor::alloc(&guard, 1).unwrap();
    let descriptor = Descriptor::init(&guard, block, 1);
    descriptor.set_new(0, place);
    descriptor.set_status(Status::Committed);
    let word = Descriptor::<Dram>::batch_word(descriptor.offset(), 0);
    store.raw(place + 16).store(medium, word, Relaxed);
    store.root().set_active(descriptor.offset());
    assert!(BOTH.iter().all(|check| of_records(&check(&store, &mut |_, _| {})).is_empty()));
    store.root().set_active(0);
    let report = store.check(&mut |_, _| {});
    let [finding] = of_records(&report)[..] else { panic!("{:?}", report.findings) };
    assert!(finding.place.offset() == place && finding.found.contains("was not finalized"), "{finding:?}");

    // Batch words that name no entry, or another record's entry. Behind the last entry, any
    // bytes may lie.
    assert!(store.get(b"a").is_ok());
    store.raw(descriptor.offset() + 64 + 16).store(medium, place, Relaxed);
    for word in [word + (1 << 38), word + 1, descriptor.offset()] {
        store.raw(place + 16).store(medium, word, Relaxed);
        assert!(store.get(b"a").is_err(), "{word:#x}");
    }
    store.raw(place + 16).store(medium, word, Relaxed);
    descriptor.set_new(0, store.record_offset(b"b"));
    assert!(store.get(b"a").is_err() && store.get(b"b").is_ok());
}

#[test]
fn salvage_keeps_sound_live_entries() {
    let (store, clock) = store();
    [(&b"whole"[..], None), (b"past", Some(1500)), (b"damaged", None), (b"to come", Some(5000))]
        .iter()
        .for_each(|&(key, expires_at)| store.put_entry(key, b"value", expires_at));
    store.damage(store.record_offset(b"damaged") + 8);
    clock.advance(1000);
    let (mut kept, mut dropped) = (Vec::new(), Vec::new());
    store.salvage(&mut |found| match found {
        Ok((key, entry)) => kept.push((key.to_vec(), entry.value.to_vec(), entry.expires_at)),
        Err(finding) => dropped.push(finding.affected),
    });
    kept.sort();
    let value = || b"value".to_vec();
    assert_eq!(kept, [(b"to come".to_vec(), value(), Some(5000)), (b"whole".to_vec(), value(), None)]);
    assert_eq!(dropped, [Some("\"damaged\"".to_string())]);
}

/// The records named for these pieces of memory, given as offset and length.
fn touched_names(store: &Store, pieces: &[(u64, u64)], keys: &[&[u8]]) -> Vec<String> {
    let guard = store.pool().pin();
    let finding = |&(at, bytes): &(u64, u64)| Finding::new(at, "memory", "", "").with_bytes(bytes);
    // A finding about a place touches nothing.
    let mut findings = vec![Finding::new(0, "a place", "", "")];
    findings.extend(pieces.iter().map(finding));
    let mut touched = Touched::new(&findings);
    keys.iter().for_each(|key| touched.add(&Record::at(&guard, store.record_offset(key)).unwrap()));
    touched.report(&mut findings);
    assert_eq!(findings[0].affected, None);
    findings.into_iter().skip(1).map(|finding| finding.affected.unwrap()).collect()
}

#[test]
fn finding_names_three_touched_records() {
    let (store, _) = store();
    let keys: [&[u8]; 6] = [b"a", b"b", b"c", b"d", b"e", b"long"];
    keys[..5].iter().for_each(|key| store.put_entry(key, b"value", None));
    store.put_entry(b"long", &[7; 9000], None);
    let guard = store.pool().pin();
    let record = |key| Record::at(&guard, store.record_offset(key)).unwrap();
    let (a, long) = (record(b"a"), record(b"long"));
    let (at, size) = (a.offset, a.shape.size() as u64);
    let (value, value_len) = (long.body.external.unwrap().extent, 9000);

    // Its first and its last byte; just before and just after it.
    let around_one = [(at, 1), (at + size - 1, 1), (at - 8, 8), (at + size, 8), (at - 8, 100_000)];
    let none = "no record".to_string();
    assert_eq!(
        touched_names(&store, &around_one[..4], &[b"a"]),
        ["\"a\"".to_string(), "\"a\"".to_string(), none.clone(), none.clone()]
    );
    // Head and value are in different places; then both in one piece.
    let around_long = [(value - 8, 8), (value, 1), (value + value_len - 1, 1), (value + value_len, 8)];
    let only_value = "\"long\"".to_string();
    assert_eq!(
        touched_names(&store, &around_long, &keys),
        [none.clone(), only_value.clone(), only_value.clone(), none]
    );
    let all = (0, store.pool().size());
    assert_eq!(touched_names(&store, &[all], &[b"long"]), [only_value]);
    assert_eq!(touched_names(&store, &[all], &keys[..3]), [r#""a", "b", "c""#]);
    assert_eq!(touched_names(&store, &[all], &keys[..4]), [r#""a", "b", "c" and 1 more"#]);
    assert_eq!(touched_names(&store, &[all], &keys), [r#""a", "b", "c" and 3 more"#]);
}

#[test]
fn finding_names_record_of_damaged_value_once() {
    let (store, _) = store();
    // A value lies before or after the head of its record, by chance.
    let keys: Vec<[u8; 1]> = (0..20).map(|n| [n]).collect();
    keys.iter().for_each(|key| store.put_entry(key, &[7; 9000], None));
    let guard = store.pool().pin();
    let mut is_before = [false; 2];
    for key in &keys {
        let record = Record::at(&guard, store.record_offset(key)).unwrap();
        let (head, end) = (record.offset, record.offset + record.shape.size() as u64);
        let value = record.body.external.unwrap().extent;
        let piece = if value < head { (value, head - value) } else { (end, value + 9000 - end) };
        is_before[usize::from(value < head)] = true;
        assert_eq!(touched_names(&store, &[piece], &[key]), [printable(key)]);
        // A piece that contains both.
        let (from, to) = (head.min(value), end.max(value + 9000));
        assert_eq!(touched_names(&store, &[(from, to - from)], &[key]), [printable(key)]);
    }
    assert_eq!(is_before, [true; 2], "there is one of each");
}

#[test]
fn check_reports_other_processes() {
    let directory = tempfile::tempdir_in("/dev/shm").unwrap();
    let options = PoolOptions::at(directory.path().join("pool")).size(4 << 20).shared(true);
    let open = || crate::tests::fixtures::open::<Shm>(options.open_or_create().unwrap(), settings()).unwrap();
    let store = open();
    store
        .put(terrace_engine::Put { key: b"key", value: b"value", expires_at: None }, Durably::Store)
        .unwrap();
    let other = open();
    let check = || store.check(&mut |_, _| {});
    let is_beside = [check(), check(), store.check_records(&mut |_, _| {})].map(|report| {
        assert!(report.is_sound() && report.records == 1);
        report.concurrent
    });
    assert_eq!(is_beside, [true; 3]);
    drop(other);
    assert!(!check().concurrent);
}

#[test]
fn shown_key_is_cut_after_60_bytes() {
    assert_eq!(printable(b"key\n"), r#""key\n""#);
    assert_eq!(printable(&[b'k'; 60]), format!("\"{}\"", "k".repeat(60)));
    assert_eq!(printable(&[b'k'; 61]), format!("\"{}\"...", "k".repeat(60)));
}
