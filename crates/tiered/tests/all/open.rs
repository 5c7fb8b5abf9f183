//! Tests: opens of the tiered engine whose DRAM does not suffice for the log, with an end in the
//! middle of them; and stores without a log.

use crate::fixtures::{Model, OfTiered, PATH, clock, contents, create, settings};
use std::path::Path;
use std::sync::{Arc, Mutex};
use terrace_engine::{
    Change, Chore, Durability, Durably, Engine, ManualClock, OnDisk, Put, Rest, Write, WriteKind,
};
use terrace_index::hash::Turbo;
use terrace_medium::Dram;
use terrace_medium::files::Files;
use terrace_pool::Pool;
use terrace_testkit::simfs::{CallKind, Faulty, SimFs};
use terrace_tiered::{Kind, Settings, Shares, Tiered, TieredError};

/// Bytes of DRAM that suffice for the logs of these tests, and that do not.
const MUCH: u64 = 4 << 20;
const LITTLE: u64 = 512 << 10;

/// Settings by which the log may be as long as it likes.
fn of(durability: Durability) -> Settings {
    Settings { log_bytes: 16 << 20, ..settings(durability, &clock()) }
}

/// Settings for which the logs of these tests are too long.
fn with_short_log(durability: Durability) -> Settings {
    settings(durability, &clock())
}

fn open_in(files: impl Into<Arc<dyn Files>>, dram: u64, settings: Settings) -> Result<Tiered, TieredError> {
    let pools = Box::new(move || Pool::anonymous(dram));
    Tiered::open::<Turbo<Dram, Kind>>(files, Path::new(PATH), settings, pools)
}

fn create_in(files: &SimFs, settings: Settings) -> Tiered {
    drop(create(files, settings.clone()));
    open_in(files.clone(), MUCH, settings).unwrap()
}

fn put(store: &impl Engine, key: &[u8], value: &[u8]) {
    store.put(Put { key, value, expires_at: None }, Durably::Later).unwrap();
}

/// A killed store of which the log alone has everything: more than fits into little DRAM.
fn long_log(durability: Durability) -> (SimFs, Model) {
    let (files, mut model) = (SimFs::new(["/data"]), Model::new());
    let store = create_in(&files, of(durability));
    for number in 0..1500u32 {
        let (key, len) = ((number % 1100).to_le_bytes(), if number % 100 == 7 { 3000 } else { 700 });
        put(&store, &key, &vec![number as u8; len]);
        model.insert(key.to_vec(), (vec![number as u8; len], None));
        if number % 11 == 0 {
            let removed = (number / 2 % 1100).to_le_bytes();
            store.delete(&removed, Durably::Later).unwrap();
            model.remove(&removed[..]);
        }
    }
    OnDisk::sync(&store).unwrap();
    assert_eq!(store.stats().tier.unwrap().blocks, 0);
    (files, model)
}

#[test]
fn open_with_little_dram_keeps_the_log() {
    let (files, model) = long_log(Durability::Process);
    for dram in [LITTLE, LITTLE, MUCH] {
        let store = open_in(files.clone(), dram, with_short_log(Durability::Process)).unwrap();
        assert!(contents(&store).unwrap() == model, "{dram} bytes");
        assert!(store.check(&mut |_, _| {}).is_sound());
        assert!(store.stats().tier.unwrap().blocks > 0);
    }
}

/// Whatever an open has done when it is killed, the next one has everything.
#[test]
fn open_that_is_killed_loses_nothing() {
    let (files, model) = long_log(Durability::Power);
    let left: Arc<Mutex<Vec<SimFs>>> = Arc::default();
    let (disk, states) = (files.fork(), Arc::clone(&left));
    let watched = disk.clone();
    let watched = Faulty::watched(disk, move |call| {
        if call.kind != CallKind::Read {
            states.lock().unwrap().push(watched.fork());
        }
    });
    drop(open_in(watched, LITTLE, with_short_log(Durability::Power)).unwrap());
    let left = std::mem::take(&mut *left.lock().unwrap());
    assert!(left.len() > 100, "{} calls", left.len());
    for (nth, files) in left.iter().enumerate().step_by(left.len() / 40) {
        let of_power = files.crash_states(1, nth as u64).remove(0);
        for (files, dram) in [(files, MUCH), (&of_power, MUCH), (&of_power, LITTLE)] {
            let store = open_in(files.clone(), dram, of(Durability::Power)).unwrap();
            assert!(contents(&store).unwrap() == model, "call {nth}, {dram} bytes");
        }
    }
}

#[test]
fn read_only_open_with_little_dram_is_refused() {
    let (files, model) = long_log(Durability::Process);
    let read_only = |dram| {
        let settings = Settings { read_only: true, ..of(Durability::Process) };
        open_in(files.clone(), dram, settings).map(|store| contents(&store).unwrap())
    };
    let before = files.names();
    let refused = read_only(LITTLE).expect_err("no room for the log");
    assert!(matches!(refused, TieredError::Log { bytes } if bytes > 700 * 1500), "{refused:?}");
    assert!(refused.to_string().contains("open it for writing once"), "{refused}");
    assert_eq!(files.names(), before);
    assert!(read_only(MUCH).unwrap() == model);
}

/// A block that an open seals has records that the rest of the log removes.
#[test]
fn removed_keys_stay_away_after_an_open_that_seals() {
    let (files, settings) = (SimFs::new(["/data"]), of(Durability::Process));
    let store = create_in(&files, settings.clone());
    let key = |number: u32| number.to_le_bytes();
    (0..1200).for_each(|number| put(&store, &key(number), &[1; 300]));
    for number in 0..240 {
        store.delete(&key(number * 5), Durably::Later).unwrap();
        (0..3).for_each(|nth| put(&store, &key(2000 + 3 * number + nth), &[1; 300]));
    }
    OnDisk::sync(&store).unwrap();
    drop(store);
    let store = open_in(files.clone(), LITTLE, with_short_log(Durability::Process)).unwrap();
    OnDisk::flush(&store).unwrap();
    // What lies beside the tombstones dies, so that their blocks are rewritten.
    let others = (0..720).filter(|number| number % 3 > 0);
    others.for_each(|number| put(&store, &key(2000 + number), &[2; 300]));
    OnDisk::flush(&store).unwrap();
    while store.step(Chore::Merge, &|| false) == Rest::More {}
    let tier = store.stats().tier.unwrap();
    assert!(tier.rewrites > 0, "{tier:?}");
    OnDisk::flush(&store).unwrap();
    drop(store);
    let store = open_in(files, MUCH, settings).unwrap();
    let back = (0..240).filter(|number| store.get(&key(number * 5)).unwrap().is_some()).count();
    assert_eq!((back, store.len().get()), (0, 1200 - 240 + 720));
}

/// A store without a log, in which `seal` was done and then `change`, and which was killed.
fn killed_without_log(seal: impl Fn(&Tiered), change: impl Fn(&Tiered)) -> SimFs {
    let (files, settings) = (SimFs::new(["/data"]), of(Durability::None));
    let store = create_in(&files, settings.clone());
    seal(&store);
    Arc::new(store).close().unwrap();
    change(&open_in(files.clone(), MUCH, settings).unwrap());
    files
}

#[test]
fn store_without_log_keeps_what_was_sealed() {
    let key = |number: u32| number.to_le_bytes();
    let files = killed_without_log(
        |store| (0..1000).for_each(|number| put(store, &key(number), &[1; 200])),
        |store| {
            (0..800).for_each(|number| put(store, &key(number * 7 % 1000), &[2; 200]));
            while store.step(Chore::Merge, &|| false) == Rest::More {}
            let before = store.stats().tier.unwrap();
            assert!(before.rewrites > 0, "{before:?}");
            // What has to stay is not rewritten again and again.
            assert!(before.rewrites <= before.blocks, "{before:?}");
            // It goes once the tier has what came behind it.
            OnDisk::flush(store).unwrap();
            while store.step(Chore::Merge, &|| false) == Rest::More {}
            let after = store.stats().tier.unwrap();
            assert!(after.dead_bytes < before.dead_bytes / 2, "{before:?}, {after:?}");
            (0..800).for_each(|number| put(store, &key(number), &[3; 200]));
            while store.step(Chore::Merge, &|| false) == Rest::More {}
        },
    );
    let store = open_in(files, MUCH, of(Durability::None)).unwrap();
    assert_eq!(store.len().get(), 1000);
    for number in 0..1000 {
        let value = store.get(&key(number)).unwrap().expect("a key that was sealed");
        let expected = if (0..800).any(|nth| nth * 7 % 1000 == number) { 2 } else { 1 };
        assert_eq!(*value, [expected; 200], "{number}");
    }
}

#[test]
fn store_without_log_keeps_large_values_that_were_sealed() {
    let files = killed_without_log(
        |store| (0..20u32).for_each(|number| put(store, &number.to_le_bytes(), &[1; 3000])),
        |store| {
            let others = |keys: std::ops::Range<u32>| {
                keys.for_each(|number| put(store, &(1000 + number).to_le_bytes(), &[1; 900]));
            };
            others(0..1000);
            (0..20u32).for_each(|number| put(store, &number.to_le_bytes(), &[2; 3000]));
            while store.step(Chore::Merge, &|| false) == Rest::More {}
            // A flush of others lets go of what is not needed.
            let flushes = || store.stats().tier.unwrap().flushes;
            (0..).take_while(|_| flushes() == 0).for_each(|nth| others(1000 + nth..1001 + nth));
            assert!(flushes() < 20);
        },
    );
    let store = open_in(files, MUCH, of(Durability::None)).unwrap();
    for number in 0..20u32 {
        assert_eq!(*store.get(&number.to_le_bytes()).unwrap().expect("a sealed value"), [1; 3000]);
    }
    assert!(store.check(&mut |_, _| {}).is_sound());
}

/// A block and the log have the same write until a whole segment of the log is let go.
#[test]
fn large_value_of_a_block_stays_when_the_log_is_left() {
    let files = SimFs::new(["/data"]);
    let store = create_in(&files, of(Durability::Process));
    put(&store, b"large", &[1; 3000]);
    // Its part of the log is no whole segment, so it stays.
    OnDisk::flush(&store).unwrap();
    drop(store);
    for _ in 0..2 {
        let store = open_in(files.clone(), MUCH, of(Durability::None)).unwrap();
        OnDisk::flush(&store).unwrap();
        assert_eq!(*store.get(b"large").unwrap().unwrap(), [1; 3000]);
    }
}

/// A store whose keys `0..100` have two versions on the tier, in different blocks, and which was
/// stopped. The second one expires at a time, or not.
fn with_two_versions(expires_at: Option<u64>) -> SimFs {
    let files = SimFs::new(["/data"]);
    let store = create_in(&files, of(Durability::Power));
    (0..100u32).for_each(|number| put(&store, &number.to_le_bytes(), &[1; 150]));
    (1000..1100u32).for_each(|number| put(&store, &number.to_le_bytes(), &[7; 300]));
    Arc::new(store).close().unwrap();
    let store = open_in(files.clone(), MUCH, of(Durability::Power)).unwrap();
    for number in 0..100u32 {
        store.put(Put { key: &number.to_le_bytes(), value: &[2; 300], expires_at }, Durably::Later).unwrap();
        if number % 2 == 0 {
            put(&store, &(2000 + number).to_le_bytes(), &[7; 200]);
        }
    }
    Arc::new(store).close().unwrap();
    files
}

fn merge_all(store: &impl Engine) {
    while store.step(Chore::Merge, &|| false) == Rest::More {}
}

type Leave = fn(&Tiered, &[u8]);

/// How the keys of [`with_two_versions`] leave a store without a log.
const LEAVING: [(&str, Option<u64>, Leave); 4] = [
    ("delete", None, |store, key| store.delete(key, Durably::Later).unwrap()),
    ("modify", None, |store, key| store.modify(key, &mut |_| Change::Remove, Durably::Later).unwrap()),
    ("rename", None, |store, key| {
        let put = WriteKind::Put { value: &[2; 300], expires_at: None };
        let writes =
            [Write { key, what: WriteKind::Remove }, Write { key: &[key, b"renamed"].concat(), what: put }];
        store.commit(&writes, &[], Durably::Later).map(drop).unwrap();
    }),
    ("expiry", Some(2000), |store, _| assert_eq!(store.step(Chore::Sweep, &|| false), Rest::More)),
];

/// A removal that is lost with DRAM leaves the version that was removed, and never an older one.
#[test]
fn removed_version_outlasts_rewrites_without_a_log() {
    for (how, expires_at, leave) in LEAVING {
        let (files, time) = (with_two_versions(expires_at), Arc::new(ManualClock::at(3000)));
        let of = || Settings { clock: Arc::clone(&time) as Arc<_>, ..of(Durability::None) };
        let store = open_in(files.clone(), MUCH, of()).unwrap();
        let keys = || (0..100u32).map(u32::to_le_bytes);
        match expires_at {
            None => keys().for_each(|key| leave(&store, &key)),
            Some(_) => {
                while store.stats().expired < 100 {
                    leave(&store, &[]);
                }
            }
        }
        merge_all(&store);
        let tier = store.stats().tier.unwrap();
        assert!(tier.rewrites > 0 && tier.rewrites <= tier.blocks, "{how}: {tier:?}");
        drop(store);
        let store = open_in(files.clone(), MUCH, of()).unwrap();
        for key in keys() {
            let value = store.get(&key).unwrap().map(|value| value.to_vec());
            assert_eq!(value, expires_at.is_none().then(|| vec![2; 300]), "{how}: {key:?}");
        }
        assert!(store.check(&mut |_, _| {}).is_sound(), "{how}");
    }
}

/// Once tombstones are sealed, the versions that waited for them go, and nothing comes back.
#[test]
fn removed_version_goes_once_its_tombstone_is_sealed() {
    let files = with_two_versions(None);
    let store = open_in(files.clone(), MUCH, of(Durability::None)).unwrap();
    let keys = || (0..100u32).map(u32::to_le_bytes);
    keys().for_each(|key| store.delete(&key, Durably::Later).unwrap());
    merge_all(&store);
    let before = store.stats().tier.unwrap();
    OnDisk::flush(&store).unwrap();
    // What is written meanwhile is no reason to wait longer.
    put(&store, b"later", b"value");
    merge_all(&store);
    let after = store.stats().tier.unwrap();
    assert!(after.dead_bytes < before.dead_bytes / 2, "{before:?}, {after:?}");
    assert!(after.block_bytes + 100 * 300 < before.block_bytes + 100 * 64, "{before:?}, {after:?}");
    drop(store);
    let store = open_in(files, MUCH, of(Durability::None)).unwrap();
    assert!(keys().all(|key| store.get(&key).unwrap().is_none()));
}

/// Whatever the durability, a rewrite drops a removed version only when nothing brings an older one
/// back: not even a loss of power.
#[test]
fn rewrite_brings_no_older_version_back_after_a_power_failure() {
    for durability in [Durability::None, Durability::Process, Durability::Interval, Durability::Power] {
        for expires_at in [None, Some(2000)] {
            let (disk, time) = (with_two_versions(expires_at), Arc::new(ManualClock::at(3000)));
            let of = |durability| Settings { clock: Arc::clone(&time) as Arc<_>, ..of(durability) };
            let left: Arc<Mutex<Vec<SimFs>>> = Arc::default();
            let (states, watched) = (Arc::clone(&left), disk.clone());
            let files = Faulty::watched(disk.clone(), move |call| {
                if call.kind != CallKind::Read {
                    states.lock().unwrap().push(watched.fork());
                }
            });
            let store = open_in(files, MUCH, of(durability)).unwrap();
            left.lock().unwrap().clear();
            for key in (0..100u32).map(u32::to_le_bytes) {
                // Where they have expired, the sweep comes first.
                while expires_at.is_some() && store.stats().expired < 100 {
                    assert_eq!(store.step(Chore::Sweep, &|| false), Rest::More);
                }
                store.delete(&key, Durably::Later).unwrap();
            }
            merge_all(&store);
            OnDisk::flush(&store).unwrap();
            merge_all(&store);
            assert!(store.stats().tier.unwrap().rewrites > 0);
            left.lock().unwrap().push(disk.fork());
            let left = std::mem::take(&mut *left.lock().unwrap());
            for (nth, files) in left.iter().enumerate() {
                let of_power = files.crash_states(2, nth as u64);
                for files in of_power.iter().chain([files]) {
                    let store = open_in(files.clone(), MUCH, of(Durability::Power)).unwrap();
                    for key in (0..100u32).map(u32::to_le_bytes) {
                        let value = store.get(&key).unwrap().map(|value| value.to_vec());
                        let is_right = value.is_none() || expires_at.is_none() && value == Some(vec![2; 300]);
                        assert!(is_right, "{durability:?}, call {nth}: {value:.3?}");
                    }
                }
            }
        }
    }
}

/// The large values of a store that kept a log are there in a store without one, and stay until
/// what replaces them is on the tier.
#[test]
fn large_values_of_a_store_with_a_log_stay_without_one() {
    for durability in [Durability::Process, Durability::Power] {
        let files = SimFs::new(["/data"]);
        let store = create_in(&files, of(durability));
        let key = |number: u32| number.to_le_bytes();
        (0..20).for_each(|number| put(&store, &key(number), &[1; 3000]));
        Arc::new(store).close().unwrap();
        let store = open_in(files.clone(), MUCH, of(Durability::None)).unwrap();
        for number in 0..20 {
            assert_eq!(*store.get(&key(number)).unwrap().unwrap(), [1; 3000], "{durability:?}");
            match number % 4 {
                0 => put(&store, &key(number), b"small"),
                1 => store.delete(&key(number), Durably::Later).unwrap(),
                2 => put(&store, &key(number), &[2; 3500]),
                _ => LEAVING[2].2(&store, &key(number)),
            }
        }
        merge_all(&store);
        // A flush of others lets go of what is not needed.
        let flushes = || store.stats().tier.unwrap().flushes;
        let before = flushes();
        (1000..).take_while(|_| flushes() == before).for_each(|number| put(&store, &key(number), &[1; 900]));
        drop(store);
        let store = open_in(files.clone(), MUCH, of(durability)).unwrap();
        for number in 0..20 {
            let value = store.get(&key(number)).unwrap().map(|value| value.to_vec());
            let replaced = [Some(b"small".to_vec()), None, Some(vec![2; 3500]), None];
            let is_right = value == Some(vec![1; 3000]) || value == replaced[number as usize % 4];
            assert!(is_right, "{durability:?}, {number}: {:?} bytes", value.map(|value| value.len()));
        }
        assert!(store.check(&mut |_, _| {}).is_sound(), "{durability:?}");
    }
}

/// Two opens seal the same write of the log, each to a block of its own. One of both is dead, but
/// not its large value.
#[test]
fn large_value_that_two_opens_sealed_is_kept() {
    let (files, model) = long_log(Durability::Process);
    for _ in 0..2 {
        drop(open_in(files.clone(), LITTLE, with_short_log(Durability::Process)).unwrap());
    }
    let store = open_in(files.clone(), LITTLE, with_short_log(Durability::Process)).unwrap();
    for round in 0..3u8 {
        let all = std::ops::Bound::Unbounded;
        OnDisk::compact(&store, all, all).unwrap();
        // The log lets go of its oldest segments.
        (0..40u32).for_each(|number| put(&store, &(9000 + number).to_le_bytes(), &[round; 900]));
        OnDisk::flush(&store).unwrap();
    }
    for (key, (value, _)) in &model {
        assert_eq!(*store.get(key).unwrap().expect("a key of the log"), **value, "{key:?}");
    }
}

/// The log of a store that kept one, and has none now, has keys that were removed since.
#[test]
fn removed_keys_stay_away_when_the_log_is_left() {
    let files = SimFs::new(["/data"]);
    let store = create_in(&files, of(Durability::Process));
    (0..50u32).for_each(|number| put(&store, &number.to_le_bytes(), &[1; 100]));
    put(&store, b"large", &[1; 3000]);
    OnDisk::sync(&store).unwrap();
    drop(store);
    let store = open_in(files.clone(), MUCH, of(Durability::None)).unwrap();
    let keys = || (0..50u32).filter(|number| number % 2 == 0).map(u32::to_le_bytes);
    keys().for_each(|key| store.delete(&key, Durably::Store).unwrap());
    put(&store, b"large", &[2; 3000]);
    OnDisk::flush(&store).unwrap();
    let all = std::ops::Bound::Unbounded;
    OnDisk::compact(&store, all, all).unwrap();
    drop(store);
    for durability in [Durability::None, Durability::Process, Durability::Power] {
        let store = open_in(files.clone(), MUCH, of(durability)).unwrap();
        assert!(keys().all(|key| store.get(&key).unwrap().is_none()), "{durability:?}");
        assert_eq!(store.len().get(), 26, "{durability:?}");
        assert_eq!(*store.get(b"large").unwrap().unwrap(), [2; 3000], "{durability:?}");
        assert!(store.warnings().is_empty(), "{:?}", store.warnings());
    }
}

/// Large values that no sync has reached yet do not use up the files that may be open.
#[test]
fn unsynced_large_values_take_few_descriptors() {
    for durability in [Durability::None, Durability::Process] {
        let files = Faulty::limited(SimFs::new(["/data"]), 200);
        let store = OfTiered::create(files.clone(), PATH, of(durability)).unwrap();
        (0..400u32).for_each(|number| put(&store, &number.to_le_bytes(), &[number as u8; 3000]));
        assert!(files.open_files() < 160, "{durability:?}: {}", files.open_files());
        for number in 0..400u32 {
            assert_eq!(*store.get(&number.to_le_bytes()).unwrap().unwrap(), [number as u8; 3000]);
        }
    }
}

/// The log goes on by records without writes: none of them tells that the store was cleared.
#[test]
fn salvage_takes_no_record_without_writes_for_a_clear() {
    let key = |number: u32| number.to_le_bytes();
    let left_log = {
        let files = SimFs::new(["/data"]);
        let store = create_in(&files, of(Durability::Power));
        (0..20).for_each(|number| put(&store, &key(number), &[1; 300]));
        Arc::new(store).close().unwrap();
        Arc::new(open_in(files.clone(), MUCH, of(Durability::None)).unwrap()).close().unwrap();
        files
    };
    let moved_on = {
        let files = SimFs::new(["/data"]);
        let store = create_in(&files, of(Durability::Power));
        (0..19).for_each(|number| put(&store, &key(number), &[1; 300]));
        (0..2).for_each(|round| put(&store, &key(19), &[round; 3000]));
        let all = std::ops::Bound::Unbounded;
        OnDisk::compact(&store, all, all).unwrap();
        Arc::new(store).close().unwrap();
        files
    };
    for (files, what) in [(left_log, "without a log"), (moved_on, "another segment")] {
        let named = files.names().into_iter().filter(|name| name.to_string_lossy().contains("MANIFEST"));
        named.for_each(|name| files.remove(&name).unwrap());
        let (found, findings) = crate::damage::salvaged(&files);
        assert!(!findings.is_empty(), "{what}");
        assert_eq!(found.len(), 20, "{what}");
    }
}

/// Settings whose pages have so many bytes.
fn with_pages(page_bytes: u64, read_only: bool) -> Settings {
    let settings = of(Durability::Process);
    let shares = Shares { page_bytes, block_pages: (64 << 10) / page_bytes, ..settings.shares };
    Settings { shares, read_only, ..settings }
}

/// An earlier life had larger pages: more DRAM, or a program that divided it in another way.
#[test]
fn values_that_outgrow_the_pages_are_replayed() {
    let value = |number: u32| vec![number as u8; 6000 + number as usize % 3000];
    // DRAM in which all values of the log have room, and one in which blocks are sealed meanwhile.
    for dram in [MUCH, LITTLE] {
        let (files, mut model) = (SimFs::new(["/data"]), Model::new());
        drop(create(&files, with_pages(64 << 10, false)));
        let store = open_in(files.clone(), MUCH, with_pages(64 << 10, false)).unwrap();
        for number in 0..150u32 {
            // Some are written twice, some are one batch of two, among small ones.
            let keys = [(number % 120).to_le_bytes(), (1000 + number % 120).to_le_bytes()];
            let what = WriteKind::Put { value: &value(number), expires_at: None };
            let writes = [Write { key: &keys[0], what }, Write { key: &keys[1], what }];
            let writes = if number % 3 == 0 { &writes[..] } else { &writes[..1] };
            store.commit(writes, &[], Durably::Later).unwrap();
            put(&store, &(2000 + number).to_le_bytes(), b"small");
            model.insert((2000 + number).to_le_bytes().to_vec(), (b"small".to_vec(), None));
            for write in writes {
                model.insert(write.key.to_vec(), (value(number), None));
            }
        }
        OnDisk::sync(&store).unwrap();
        let killed = files.fork();
        drop(store);
        if dram == MUCH {
            let reader = open_in(killed.fork(), dram, with_pages(4096, true)).unwrap();
            assert_eq!(contents(&reader).unwrap(), model);
        }
        for life in 0..3 {
            let store = open_in(killed.clone(), dram, with_pages(4096, false)).unwrap();
            assert!(store.warnings().is_empty(), "{:?}", store.warnings());
            assert_eq!(contents(&store).unwrap(), model, "life {life}");
            assert!(store.check(&mut |_, _| {}).is_sound());
            let names = killed.names();
            let large =
                names.iter().filter(|name| name.extension().is_some_and(|kind| kind == "large")).count();
            let outgrown = model.values().filter(|(value, _)| value.len() > 4000).count();
            assert!(large >= outgrown && large <= outgrown + 80, "{large} files for {outgrown} values");
            if life == 1 {
                // Nothing but the tier has them then.
                OnDisk::flush(&store).unwrap();
            }
            // A kill.
            drop(store);
        }
    }
}
