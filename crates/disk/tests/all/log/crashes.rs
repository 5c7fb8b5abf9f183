//! Tests: what a power loss leaves of a log.

use super::*;
use crate::gated::{Gated, SyncOf};
use terrace_testkit::simfs::{Fault, Faulty, Handle};

/// Appends, writes and syncs in any order, with crashes.
#[derive(Clone, Debug)]
enum Event {
    Append(usize),
    Write,
    Sync,
    Prepare,
    Release,
    Close,
    Crash(u64),
}

fn events() -> impl Strategy<Value = Vec<Event>> {
    let event = prop_oneof![
        12 => (0..600usize).prop_map(Event::Append),
        1 => (0..9000usize).prop_map(Event::Append),
        3 => Just(Event::Write),
        2 => Just(Event::Sync),
        2 => Just(Event::Prepare),
        1 => Just(Event::Release),
        1 => Just(Event::Close),
        2 => any::<u64>().prop_map(Event::Crash),
    ];
    prop::collection::vec(event, 0..120)
}

/// What a log must have after a crash.
#[derive(Default)]
struct Model {
    appended: Vec<Known>,
    synced: usize,
    /// Records before this one may be gone.
    released: usize,
}

impl Model {
    /// Checks the records that a log has after a crash, and takes them as what there is.
    fn crashed(&mut self, records: &[Known]) {
        let first = records.first().map_or(self.appended.len(), |record| record.0 as usize - 1);
        assert!(first <= self.released || records.is_empty() && self.synced <= self.released);
        let kept = &self.appended[first..];
        assert!(kept.starts_with(records), "the records in their order, up to a place");
        assert!(first + records.len() >= self.synced, "what was synced");
        if !records.is_empty() {
            self.appended.truncate(first + records.len());
        } else {
            self.appended.truncate(self.synced.max(self.released));
        }
        self.synced = self.appended.len();
    }
}

fn run(files: &SimFs, events: &[Event]) {
    let mut model = Model::default();
    let (_, mut log) = open(files).unwrap();
    for event in events {
        match event {
            Event::Append(len) => {
                model.appended.push(known(model.appended.len() as u64 + 1, *len));
                append(&log, model.appended.last().unwrap()).unwrap();
            }
            Event::Write => log.write(log.end()).unwrap(),
            Event::Sync => {
                log.sync(log.end()).unwrap();
                model.synced = model.appended.len();
            }
            Event::Prepare => _ = log.prepare().unwrap(),
            Event::Release => {
                model.released = model.released.max(model.synced);
                log.release(model.released as u64 + 1).unwrap();
            }
            Event::Close => {
                log.close().unwrap();
                model.synced = model.appended.len();
            }
            Event::Crash(seed) => {
                files.crash(*seed);
                let (records, new) = open(files).unwrap();
                model.crashed(&records);
                log = new;
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn crash_keeps_what_was_synced(events in events()) {
        run(&disk(), &events);
    }
}

/// An end record says that a segment follows, but nothing of that one has survived.
#[test]
fn segment_that_must_follow_keeps_its_name() {
    let events = [Event::Append(0), Event::Append(3905), Event::Write];
    for seed in 0..40 {
        let files = disk();
        run(&files, &events);
        for event in [Event::Crash(seed), Event::Close, Event::Crash(seed + 1)] {
            match event {
                Event::Close => open(&files).unwrap().1.close().unwrap(),
                _ => files.crash(seed),
            }
            let (records, _) = read(&files).unwrap();
            assert!([known(1, 0), known(2, 3905)].starts_with(&records));
        }
    }
}

/// Every state that a power loss in a short history may leave, after each of its calls.
#[test]
fn every_crash_state_is_replayed() {
    let files = disk();
    let (_, log) = open_with(&files, 1200).unwrap();
    let mut records = Vec::new();
    let check = |files: &SimFs, records: &[Known], synced: usize| {
        for state in files.crash_states(200, 7) {
            let (found, log) = open_with(&state, 1200).unwrap();
            assert!(records.starts_with(&found) && found.len() >= synced);
            append(&log, &known(99, 50)).unwrap();
            log.write(log.end()).unwrap();
            for state in state.crash_states(20, 8) {
                let (again, _) = read(&state).unwrap();
                assert!([&found[..], &[known(99, 50)]].concat().starts_with(&again));
                assert!(again.len() >= found.len(), "what was replayed is durable from then on");
            }
        }
    };
    let mut synced = 0;
    for seq in 1..=12 {
        records.push(known(seq, 250));
        append(&log, records.last().unwrap()).unwrap();
        check(&files, &records, synced);
        if seq % 2 == 0 {
            log.write(log.end()).unwrap();
            check(&files, &records, synced);
        }
        if seq % 5 == 0 {
            log.sync(log.end()).unwrap();
            synced = records.len();
            check(&files, &records, synced);
        }
    }
    log.close().unwrap();
    check(&files, &records, records.len());
}

/// A process that was killed has written what it has not synced.
#[test]
fn replayed_records_are_synced_at_open() {
    let files = disk();
    let (_, log) = open(&files).unwrap();
    let records: Vec<Known> = (1..30).map(|seq| known(seq, 400)).collect();
    records.iter().for_each(|record| _ = append(&log, record).unwrap());
    log.write(log.end()).unwrap();
    drop(log);
    let (_, log) = open(&files).unwrap();
    assert_eq!(log.durable(), log.end());
    (0..20).for_each(|seed| {
        let files = files.fork();
        files.crash(seed);
        assert_eq!(read(&files).unwrap().0, records);
    });
}

/// After a failed sync the kernel may show bytes that it never writes.
#[test]
fn records_that_a_failed_sync_has_lost_are_written_anew() {
    for nth in 0..30 {
        let files = disk();
        files.fail_sync(nth);
        let Ok((_, log)) = open_with(&files, 1200) else { continue };
        for seq in 1..=12 {
            let _ = append(&log, &known(seq, 250)).and_then(|end| log.sync(end));
        }
        drop(log);
        let Ok((records, log)) = open(&files) else { continue };
        assert_eq!(log.durable(), log.end());
        files.crash(nth);
        assert_eq!(read(&files).unwrap().0, records, "{nth}");
    }
}

/// Whether a power loss now may lose one of these records, or leave no sound log.
fn may_lose(files: &SimFs, needed: std::ops::Range<u64>) -> bool {
    files.crash_states(30, 1).iter().any(|state| {
        let Ok((records, _)) = open_with(state, 1200) else { return true };
        !needed.clone().all(|seq| records.iter().any(|record| record.0 == seq))
    })
}

/// A history that ends early if a call fails or a power loss would lose something. Returns whether
/// it would.
fn loses(below: &SimFs, files: &impl Handle) -> bool {
    let (mut released, mut synced) = (1, 1);
    let mut live = |life: u64| -> Result<bool, DiskError> {
        let (_, log) = open_with(files, 1200)?;
        let first = life * 14 + 1;
        synced = first;
        for seq in first..first + 14 {
            let end = append(&log, &known(seq, 250))?;
            if seq % 3 == 0 {
                log.sync(end)?;
                synced = seq + 1;
            }
            if may_lose(below, released..synced) {
                return Ok(true);
            }
            if seq % 10 == 0 {
                released = seq - 1;
                log.release(released)?;
            }
        }
        if life != 1 {
            log.write(log.end())?;
            return Ok(false);
        }
        log.close()?;
        synced = first + 14;
        Ok(may_lose(below, released..synced))
    };
    let has_lost = (0..3).map(&mut live).find(|lived| !matches!(lived, Ok(false)));
    matches!(has_lost, Some(Ok(true))) || may_lose(below, released..synced)
}

/// Every sync is left out, and every call fails then, so that the history ends within a step.
#[test]
fn sync_that_is_left_out_is_noticed() {
    let sound = disk();
    let gated = Gated::new(sound.clone());
    let counting = Faulty::counting(gated.clone());
    assert!(!loses(&sound, &counting));
    let run = |skipped: Option<u64>, failing: u64| {
        let files = disk();
        skipped.into_iter().for_each(|nth| files.skip_sync(nth));
        loses(&files, &Faulty::failing(files.clone(), failing, Fault::Device))
    };
    let is_noticed = |skipped| (0..=counting.calls()).rev().any(|failing| run(skipped, failing));
    assert!(!is_noticed(None));
    let unnoticed = (0..).zip(gated.kinds()).filter(|&(nth, _)| !is_noticed(Some(nth)));
    let unnoticed: Vec<SyncOf> = unnoticed.map(|(_, of)| of).collect();
    let count = |of: SyncOf| unnoticed.iter().filter(|&&other| other == of).count();
    let all = |of: SyncOf| gated.kinds().iter().filter(|&&other| other == of).count();
    // The two of a close: each of them keeps the records.
    assert_eq!((count(SyncOf::Data), all(SyncOf::Data)), (2, 27));
    // After the last removal of a release, and before the first: another one follows, or nothing.
    assert_eq!((count(SyncOf::Directory), all(SyncOf::Directory)), (5, 28));
    // Of a new segment, whose length a sync of data keeps as well, and of segments closed before.
    assert_eq!((count(SyncOf::File), all(SyncOf::File)), (16, 18));
}
