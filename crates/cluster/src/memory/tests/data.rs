//! Tests of the store in the pool.

use crate::entry::Change;
use crate::memory::counting::STEP;
use crate::memory::data::{CLEAR_STEPS, Data, Progress, make};
use crate::slot::{SLOTS, SlotRange};
use std::sync::Mutex;
use std::sync::atomic::Ordering::Relaxed;
use terrace_engine::WriteError;
use terrace_fabric::Memory;
use terrace_server::databases::slot_of;

/// Keys that two entries clear together are looked at twice at most, whenever the second comes.
#[test]
fn slots_of_two_entries_are_cleared_in_one_walk() {
    let directory = tempfile::tempdir_in("/dev/shm").unwrap();
    let data = Data::open(&directory.path().join("pool"), (64 << 20, false), 0).unwrap();
    data.count_keys(&|| false);
    let keys: Vec<Vec<u8>> = (0..100_000_u32).map(|number| number.to_le_bytes().to_vec()).collect();
    for key in &keys {
        data.apply_one(&Change::Put { key, value: b"", expires_at: None }).unwrap();
    }
    // Slots 0 to 4095 and 4096 to 8191; the second entry clears none that another owns.
    let ranges = |first: u16| [SlotRange::new(first, first + 4095).unwrap()];
    let (mut is_done, mut steps) = ([false; 2], 0_usize);
    while is_done != [true; 2] {
        for (nth, is_done) in is_done.iter_mut().enumerate() {
            // The second one comes later.
            if !*is_done && (nth == 0 || steps >= 7) {
                let done = data.clear((7, nth), &ranges(4096 * nth as u16), |slot| slot < 8000).unwrap();
                *is_done = done == Progress::Done;
                steps += 1;
            }
        }
    }
    let left = |key: &&Vec<u8>| slot_of(key) >= 8000;
    assert_eq!(data.engine.len().get(), keys.iter().filter(left).count() as u64);
    assert!((0..SLOTS).all(|slot| slot >= 8000 || data.keys(slot) == 0));
    assert!(steps * STEP * CLEAR_STEPS <= 2 * keys.len() + 4 * STEP * CLEAR_STEPS, "{steps} steps");
    assert!(data.clearing.lock().unwrap().waiting.is_empty());
}

/// The walk of the first entry has passed a part of the index. Then few keys are left, and a
/// step always goes to the end.
#[test]
fn clear_that_comes_in_the_middle_of_a_walk_ends() {
    let directory = tempfile::tempdir_in("/dev/shm").unwrap();
    let data = Data::open(&directory.path().join("pool"), (64 << 20, false), 0).unwrap();
    data.count_keys(&|| false);
    for number in 0..6000_u32 {
        data.apply_one(&Change::Put { key: &number.to_le_bytes(), value: b"", expires_at: None }).unwrap();
    }
    let ranges = |first: u16| [SlotRange::new(first, first + 8191).unwrap()];
    let (mut is_done, mut steps) = ([false; 2], 0_usize);
    while is_done != [true; 2] {
        for (nth, is_done) in is_done.iter_mut().enumerate() {
            if !*is_done {
                let done = data.clear((7, nth), &ranges(8192 * nth as u16), |_| true).unwrap();
                *is_done = done == Progress::Done;
                steps += 1;
                assert!(steps < 100, "the walk never ends; {} keys left", data.engine.len().get());
            }
        }
    }
}

#[test]
fn put_over_a_record_that_was_damaged_later_counts_once() {
    let directory = tempfile::tempdir_in("/dev/shm").unwrap();
    let data = Data::open(&directory.path().join("pool"), (64 << 20, false), 0).unwrap();
    data.count_keys(&|| false);
    let put = Change::Put { key: b"key", value: &[0xd7; 64], expires_at: None };
    data.apply_one(&put).unwrap();
    let bytes = data.bytes();
    let of_value = u64::from_le_bytes([0xd7; 8]);
    let word = bytes.words().iter().find(|word| word.load(Relaxed) == of_value);
    word.expect("a word of the value").store(!of_value, Relaxed);
    assert!(data.engine.token(b"key").is_err());
    data.apply_one(&put).unwrap();
    assert_eq!(data.keys(slot_of(b"key")), 1);
    data.apply_one(&Change::Remove { key: b"key" }).unwrap();
    assert_eq!(data.keys(slot_of(b"key")), 0);
}

#[test]
fn change_that_can_never_be_made_is_refused_alone() {
    let put = |key: &'static [u8]| Change::Put { key, value: b"", expires_at: None };
    let (one, bad, two) = (put(b"one"), put(b"bad"), put(b"two"));
    let damage = || WriteError::Corrupt { place: terrace_engine::Place::Pool(0), what: "a bucket" };
    let full = || WriteError::PoolFull { wanted: 1, size: 1, longest: None, waiting: 0 };
    let (made, refused) = (Mutex::new(Vec::new()), Mutex::new(Vec::new()));
    let run = |why: &dyn Fn() -> WriteError| {
        let alone = |change: &Change<'_>| match change.key() {
            b"bad" => Err(why()),
            key => {
                made.lock().unwrap().push(key.to_vec());
                Ok(())
            }
        };
        let refuse = |change: &Change<'_>, _: &WriteError| {
            refused.lock().unwrap().push(change.key().to_vec());
        };
        make(&[&one, &bad, &two], |_| Err(why()), alone, refuse)
    };
    // It waits for room, and nothing else happens.
    assert!(matches!(run(&full), Err(WriteError::PoolFull { .. })));
    assert!(made.lock().unwrap().is_empty() && refused.lock().unwrap().is_empty());
    run(&damage).unwrap();
    assert_eq!(*made.lock().unwrap(), [b"one", b"two"]);
    assert_eq!(*refused.lock().unwrap(), [b"bad"]);
}

/// A change has found that counting goes on, and gets the lock behind the last step.
#[test]
fn change_that_waited_for_the_last_step_is_counted() {
    let directory = tempfile::tempdir_in("/dev/shm").unwrap();
    let data = Data::open(&directory.path().join("pool"), (64 << 20, false), 0).unwrap();
    data.count_keys(&|| false);
    data.counting.is_done.store(false, Relaxed);
    for number in 0..100_u32 {
        data.apply_one(&Change::Put { key: &number.to_le_bytes(), value: b"", expires_at: None }).unwrap();
    }
    assert_eq!((0..SLOTS).map(|slot| data.keys(slot)).sum::<u64>(), 100);
}
