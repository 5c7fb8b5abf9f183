//! Tests: what lies in DRAM, and what is read from the tier: the index as it grows, copies of
//! records, numbers and counts of blocks.

use crate::fixtures::{OfTiered, OfTieredWith, PATH, create, open, run_aside, settings};
use std::ops::Bound;
use std::path::Path;
use std::sync::Arc;
use terrace_disk::cold::ColdReads;
use terrace_engine::{
    Change, Chore, Durability, Durably, Engine, Entry, ManualClock, OnDisk, Put, Rest, Write, WriteError,
    WriteKind,
};
use terrace_index::hash::{Clht, Level, Rewo, Turbo};
use terrace_index::{PointIndex, Stored};
use terrace_medium::Dram;
use terrace_medium::files::{Files, SystemFiles};
use terrace_pool::Pool;
use terrace_testkit::simfs::SimFs;
use terrace_tiered::{Kind, MakePool, Settings, Shares, Tiered, TieredError};

/// So many that the index takes more than a third of DRAM.
const KEYS: u64 = 30_000;

/// A store whose keys `0..count` lie on the tier alone, with values that tell the key.
fn with_cold_keys(files: &SimFs, clock: &Arc<ManualClock>, count: u32) -> Tiered {
    let store = create(files, settings(Durability::Process, clock));
    for key in 0..count {
        let key = key.to_le_bytes();
        store.put(Put { key: &key, value: &key, expires_at: None }, Durably::Later).unwrap();
    }
    OnDisk::flush(&store).unwrap();
    store.evict();
    store
}

/// Reads many cold keys at once, with gaps, from files of the system and from simulated ones.
#[test]
fn cold_keys_are_read_together() {
    fn check(files: impl Into<Arc<dyn Files>>, path: &str) {
        let clock = Arc::new(ManualClock::at(1000));
        let store = OfTiered::create(files, path, settings(Durability::Process, &clock)).unwrap();
        let key = |nth: u32| nth.wrapping_mul(0x9E37_79B1).to_le_bytes();
        for nth in (0..1000).filter(|nth| nth % 7 != 3) {
            let value = vec![nth as u8; if nth % 50 == 0 { 3000 } else { 60 }];
            store.put(Put { key: &key(nth), value: &value, expires_at: None }, Durably::Later).unwrap();
        }
        OnDisk::flush(&store).unwrap();
        store.evict();
        let keys: Vec<[u8; 4]> = (0..1000).map(key).collect();
        let keys: Vec<&[u8]> = keys.iter().map(|key| &key[..]).collect();
        let mut next = 0;
        store.get_many(&keys, &mut |nth, entry| {
            assert_eq!(nth, next);
            next += 1;
            let first = entry.unwrap().map(|entry| (entry.value[0], entry.value.len()));
            let len = if nth % 50 == 0 { 3000 } else { 60 };
            assert_eq!(first, (nth % 7 != 3).then_some((nth as u8, len)));
        });
        assert_eq!(next, 1000);
        assert!(store.stats().tier.expect("two tiers").cold_reads > 500);
    }
    check(SimFs::new(["/data"]), PATH);
    let directory = tempfile::tempdir_in("/var/tmp").unwrap();
    check(SystemFiles, directory.path().join("store").to_str().unwrap());
}

#[test]
fn operation_that_is_put_off_has_no_effect() {
    let (files, clock) = (SimFs::new(["/data"]), Arc::new(ManualClock::at(1000)));
    let store = with_cold_keys(&files, &clock, 300);
    let written = || store.stats().tier.expect("two tiers").log_bytes_written;
    let (key, before) = (7u32.to_le_bytes(), written());
    let writes = [
        Write { key: &key, what: WriteKind::Put { value: b"new", expires_at: None } },
        Write { key: b"new", what: WriteKind::Put { value: b"new", expires_at: None } },
    ];
    let change = &mut |_: Option<Entry<'_>>| Change::Put { value: b"new".to_vec(), expires_at: None };
    let put = Put { key: &key, value: b"new", expires_at: None };
    let operations: [&mut dyn FnMut() -> Result<(), WriteError>; 6] = [
        &mut || Ok(store.get(&key).map(drop)?),
        &mut || store.put(put, Durably::Store),
        &mut || store.delete(&key, Durably::Store),
        &mut || store.modify(&key, change, Durably::Store),
        &mut || store.commit(&writes, &[], Durably::Store).map(drop),
        &mut || store.remove_all(&[b"none", &key], Durably::Store).map(drop),
    ];
    for (nth, operation) in operations.into_iter().enumerate() {
        let mut cold = ColdReads::default();
        let error = cold.run(operation).unwrap_err();
        assert!(error.is_put_off() && cold.is_stuck(), "{nth}: {error}");
        assert_eq!(cold.take_wanted().len(), 1, "{nth}");
    }
    assert_eq!(written(), before);
    assert_eq!((store.len().get(), &store.get(&key).unwrap().unwrap()[..]), (300, &key[..]));
    assert!(store.get(b"new").unwrap().is_none());
}

#[test]
fn puts_go_on_behind_the_one_that_was_put_off() {
    let (files, clock) = (SimFs::new(["/data"]), Arc::new(ManualClock::at(1000)));
    let store = with_cold_keys(&files, &clock, 300);
    let keys = [*b"newa", 7u32.to_le_bytes(), *b"newb", 299u32.to_le_bytes()];
    let put = |value| keys.each_ref().map(|key| Put { key, value, expires_at: None });
    let mut cold = ColdReads::default();
    let done = cold.run(|| store.put_many(&put(b"1"), Durably::Store));
    // Their order stays: the third must not overtake the second.
    assert!(done[0].is_ok() && done[1..].iter().all(|done| done.as_ref().is_err_and(WriteError::is_put_off)));
    assert!(cold.is_stuck() && store.get(b"newb").unwrap().is_none());
    assert_eq!(cold.take_wanted().len(), 2, "all that the rest wants");
    let done = run_aside(|| store.put_many(&put(b"2")[1..], Durably::Store));
    assert!(done.iter().all(Result::is_ok));
    let values = keys.map(|key| store.get(&key).unwrap().unwrap().to_vec());
    assert_eq!(values, [b"1", b"2", b"2", b"2"]);
}

/// The log has as much as DRAM holds, and the index of the blocks must have room beside that.
#[test]
fn open_makes_room_for_the_index() {
    let (files, clock) = (SimFs::new(["/data"]), Arc::new(ManualClock::at(1000)));
    let mut settings = settings(Durability::Process, &clock);
    settings.log_bytes = 1 << 20;
    let mut store = create(&files, settings.clone());
    for number in 0..KEYS {
        let key = number.to_le_bytes();
        store.put(Put { key: &key, value: &[7; 64], expires_at: None }, Durably::Store).unwrap();
        if number % 1000 == 999 {
            drop(store);
            store = open(&files, settings.clone());
            assert_eq!(store.len().get(), number + 1);
        }
    }
    assert!((0..KEYS).all(|number| *store.get(&number.to_le_bytes()).unwrap().unwrap() == [7; 64]));
}

/// Far more keys than the index begins with, all of them on the tier when it grows.
fn grows<I>()
where
    I: PointIndex<Medium = Dram, Kind = Kind> + Stored<Medium = Dram> + 'static,
{
    let (files, clock) = (SimFs::new(["/data"]), Arc::new(ManualClock::at(1000)));
    let settings = settings(Durability::Process, &clock);
    let store = OfTieredWith::<I>::create(files.clone(), PATH, settings.clone()).unwrap();
    let count = 12_000u32;
    for number in 0..count {
        let key = number.to_le_bytes();
        let put = Put { key: &key, value: &key, expires_at: None };
        run_aside(|| store.put(put, Durably::Later)).unwrap();
        if number % 300 == 0 {
            OnDisk::flush(&store).unwrap();
            store.evict();
        }
    }
    let check = |store: &Tiered| {
        assert_eq!(store.len().get(), u64::from(count));
        (0..count).for_each(|number| {
            let found = store.get(&number.to_le_bytes()).unwrap();
            assert_eq!(*found.expect("a key that was put"), number.to_le_bytes());
        });
    };
    check(&store);
    let stats = store.stats();
    let (resizes, reads) = (stats.index.unwrap().resizes, stats.tier.unwrap().cold_reads);
    assert!(resizes > 3 && reads > 0, "{resizes} {reads}");
    OnDisk::flush(&store).unwrap();
    drop(store);
    let store = OfTieredWith::<I>::open(files, PATH, settings).unwrap();
    let reads = store.stats().tier.unwrap().cold_reads;
    assert!(reads < u64::from(count) / 1000, "its index has room for all, but {reads} were read");
    check(&store);
}

#[test]
fn indexes_grow_over_records_on_the_tier() {
    grows::<Clht<Dram, Kind>>();
    grows::<Level<Dram, Kind>>();
    grows::<Rewo<Dram, Kind>>();
}

/// A store has numbers for some thousand blocks: each round begins one, and ends the one before.
#[test]
fn numbers_of_blocks_come_back() {
    let (files, clock) = (SimFs::new(["/data"]), Arc::new(ManualClock::at(1000)));
    let store = create(&files, settings(Durability::Process, &clock));
    let all = (Bound::Unbounded, Bound::Unbounded);
    for round in 0..5000u32 {
        let value = round.to_le_bytes();
        store.put(Put { key: b"key", value: &value, expires_at: None }, Durably::Later).unwrap();
        store.put(Put { key: &value, value: b"", expires_at: None }, Durably::Later).unwrap();
        OnDisk::flush(&store).unwrap();
        if round % 4 == 0 {
            store.evict();
        }
        if round >= 3 {
            store.delete(&(round - 3).to_le_bytes(), Durably::Store).unwrap();
        }
        if round % 50 == 0 {
            OnDisk::compact(&store, all.0, all.1).unwrap();
        }
        assert_eq!(*store.get(b"key").unwrap().unwrap(), value, "{round}");
    }
    assert_eq!(store.len().get(), 4);
    drop(store);
    let store = open(&files, settings(Durability::Process, &clock));
    assert_eq!(*store.get(b"key").unwrap().unwrap(), 4999u32.to_le_bytes());
    assert_eq!(store.len().get(), 4);
}

/// A death is counted once, for the block on the tier, wherever the record was found.
#[test]
fn deaths_are_counted_once_and_in_the_right_block() {
    let (files, clock) = (SimFs::new(["/data"]), Arc::new(ManualClock::at(1000)));
    let store = create(&files, settings(Durability::Process, &clock));
    let put = |key: &[u8], value: &[u8]| {
        store.put(Put { key, value, expires_at: None }, Durably::Later).unwrap();
    };
    let dead = |store: &Tiered| store.stats().tier.unwrap().dead_bytes;
    // Three words of a header, a hash, a key, and thirteen words of a value.
    let record = 8 * (3 + 1 + 1 + 13);
    [b"a", b"b", b"c"].into_iter().for_each(|key| put(key, &[1; 100]));
    OnDisk::flush(&store).unwrap();
    assert_eq!(dead(&store), 0);
    // In a page of a sealed block, on the tier alone, and in a copy.
    put(b"a", &[2; 100]);
    assert_eq!(dead(&store), record);
    store.evict();
    put(b"b", &[2; 100]);
    assert_eq!(dead(&store), 2 * record);
    (0..2).for_each(|_| drop(store.get(b"c").unwrap()));
    assert_eq!(store.stats().tier.unwrap().copy_hits, 1);
    put(b"c", &[2; 100]);
    assert_eq!(dead(&store), 3 * record);
    OnDisk::sync(&store).unwrap();
    drop(store);
    assert_eq!(dead(&open(&files, settings(Durability::Process, &clock))), 3 * record);
}

/// Hits in copies, and reads of the tier, of gets of these keys.
fn seen_by_gets(store: &Tiered, keys: impl Iterator<Item = u32>) -> [u64; 2] {
    let seen = || store.stats().tier.map(|tier| [tier.copy_hits, tier.cold_reads]).unwrap();
    let before = seen();
    keys.for_each(|key| assert_eq!(*store.get(&key.to_le_bytes()).unwrap().unwrap(), key.to_le_bytes()));
    let after = seen();
    [after[0] - before[0], after[1] - before[1]]
}

#[test]
fn copy_that_was_read_stays_when_its_page_goes() {
    let (files, clock) = (SimFs::new(["/data"]), Arc::new(ManualClock::at(1000)));
    let store = with_cold_keys(&files, &clock, 20);
    assert_eq!(seen_by_gets(&store, 0..20), [0, 20]);
    assert_eq!(seen_by_gets(&store, 0..10), [10, 0]);
    store.drop_oldest_copies(true);
    assert_eq!(seen_by_gets(&store, 0..20), [10, 10]);
    // All of them are read by now. A cache that becomes smaller keeps none.
    store.drop_oldest_copies(false);
    assert_eq!(seen_by_gets(&store, 0..20), [0, 20]);
}

/// While nothing is written, all pages are copies, but for the spare ones. Writes get theirs back
/// soon enough to fill whole blocks.
#[test]
fn cache_has_the_pages_of_writes_while_there_are_none() {
    let (files, clock) = (SimFs::new(["/data"]), Arc::new(ManualClock::at(1000)));
    let mut settings = Settings::with_dram(8 << 20, Arc::clone(&clock) as Arc<_>, 12_345);
    settings.shares = Shares { page_bytes: 16 << 10, block_pages: 32, seats: 2 };
    settings.durability = Durability::None;
    let pools: MakePool = Box::new(|| Pool::anonymous(8 << 20));
    let store = Tiered::create::<Turbo<Dram, Kind>>(files, Path::new(PATH), settings, pools).unwrap();
    let count = 150_000u32;
    let flush = || while store.step(Chore::Flush, &|| false) == Rest::More {};
    let write = |nth: u32| {
        let key = (nth % count).to_le_bytes();
        store.put(Put { key: &key, value: &key, expires_at: None }, Durably::Later).unwrap();
        if nth.is_multiple_of(16) {
            flush();
        }
    };
    (0..count).for_each(write);
    OnDisk::flush(&store).unwrap();
    store.evict();
    for from in (0..count).cycle().step_by(15_000).take(100) {
        seen_by_gets(&store, from..from + 15_000);
        flush();
    }
    let tier = || store.stats().tier.unwrap();
    let before = tier();
    assert!(before.cache_bytes > before.dram_bytes / 2, "{before:?}");
    (0..150_000).for_each(write);
    let after = tier();
    let (bytes, blocks) = (after.flushed_bytes - before.flushed_bytes, after.flushes - before.flushes);
    let full = before.flushed_bytes / before.flushes;
    assert!(blocks > 10 && bytes / blocks > full * 3 / 4, "{bytes} bytes in {blocks}, {full} in each before");
}

/// Each sweep of a block reads all of it.
#[test]
fn block_whose_records_expire_one_by_one_is_swept_rarely() {
    let (files, clock) = (SimFs::new(["/data"]), Arc::new(ManualClock::at(1000)));
    let store = create(&files, settings(Durability::Process, &clock));
    for number in 0..200u64 {
        let (key, expires_at) = (number.to_le_bytes(), Some(2000 + 10 * number));
        store.put(Put { key: &key, value: b"", expires_at }, Durably::Later).unwrap();
    }
    OnDisk::flush(&store).unwrap();
    store.evict();
    assert_eq!(store.stats().tier.unwrap().blocks, 1);
    let mut sweeps = 0;
    for _ in 0..400 {
        clock.advance(10);
        while store.step(Chore::Sweep, &|| false) == Rest::More {
            sweeps += 1;
        }
    }
    assert_eq!((store.len().get(), store.stats().expired), (0, 200));
    assert!(sweeps < 60, "{sweeps} sweeps");
}

/// Opens a store in a pool of so many bytes.
fn open_in(files: &SimFs, bytes: u64) -> Result<Tiered, TieredError> {
    let settings = settings(Durability::Process, &Arc::new(ManualClock::at(1000)));
    let pools: MakePool = Box::new(move || Pool::anonymous(bytes));
    Tiered::open::<Turbo<Dram, Kind>>(files.clone(), Path::new(PATH), settings, pools)
}

/// The index takes all of DRAM in the end: writes and opens tell how many keys fit, and what does.
#[test]
fn dram_that_is_too_small_is_told_with_a_forecast() {
    let (files, clock) = (SimFs::new(["/data"]), Arc::new(ManualClock::at(1000)));
    let store = create(&files, settings(Durability::Process, &clock));
    let put = |store: &Tiered, number: u64| {
        let key = number.to_le_bytes();
        store.put(Put { key: &key, value: b"", expires_at: None }, Durably::Later)
    };
    let refused = (0..).find_map(|number| put(&store, number).err()).expect("an end of DRAM");
    let WriteError::DramFull { keys, dram } = refused else { panic!("{refused:?}") };
    assert_eq!((keys, dram), (store.len().get(), 1 << 20));
    assert!((20_000..90_000).contains(&keys), "{keys} keys");
    let told = refused.to_string();
    assert!(told.contains(&format!("about {keys} keys")) && told.contains("32 bytes a key"), "{told}");
    // Reads, replacements and removals go on.
    assert_eq!(*store.get(&7u64.to_le_bytes()).unwrap().unwrap(), *b"");
    put(&store, 7).unwrap();
    assert!(store.remove(&8u64.to_le_bytes(), Durably::Store).unwrap());
    OnDisk::flush(&store).unwrap();
    Arc::new(store).close().unwrap();
    let refused = open_in(&files, 512 << 10).err().expect("half of the DRAM");
    let TieredError::Dram { keys: most, enough } = refused else { panic!("{refused:?}") };
    assert!(most >= keys && enough >= 32 * keys && enough < 64 * keys + (1 << 20), "{most} keys, {enough}");
    let told = refused.to_string();
    assert!(told.contains(&format!("up to {most};")) && told.contains("are enough"), "{told}");
    assert_eq!(open_in(&files, enough).unwrap().len().get(), keys - 1);
}

#[test]
fn second_open_of_a_directory_names_the_process() {
    let (files, clock) = (SimFs::new(["/data"]), Arc::new(ManualClock::at(1000)));
    let store = create(&files, settings(Durability::Process, &clock));
    let error = open_in(&files, 1 << 20).err().expect("it is open").to_string();
    assert_eq!(error, format!("process {} has the store at {PATH} open; stop it first", std::process::id()));
    drop(store);
    open_in(&files, 1 << 20).unwrap();
}
