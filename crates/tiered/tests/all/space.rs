//! Tests: what the tiered engine keeps on the disk, and what leaves it: files of large values, dead
//! records, descriptors; and what a store without a log makes durable.
#![allow(clippy::disallowed_methods, reason = "which thread comes first is what is tested")]

use crate::fixtures::{OfTiered, OfTieredWith, PATH, clock, create, open, settings};
use std::ops::Bound;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;
use terrace_disk::BoundedFiles;
use terrace_engine::{
    Change, Chore, Durability, Durably, Engine, Entry, OnDisk, Put, Rest, Write, WriteError, WriteKind,
};
use terrace_index::hash::Level;
use terrace_medium::Dram;
use terrace_medium::files::{Files, SystemFiles};
use terrace_testkit::simfs::{CallKind, Faulty, SimFs};
use terrace_tiered::{Kind, Settings, Tiered};

/// A store whose file system runs what a test has put there.
type Watched = Tiered;

fn try_put(store: &impl Engine, key: &[u8], value: &[u8]) -> Result<(), WriteError> {
    store.put(Put { key, value, expires_at: None }, Durably::Store)
}

fn put(store: &impl Engine, key: &[u8], value: &[u8]) {
    try_put(store, key, value).unwrap();
}

fn run(store: &impl Engine, chore: Chore) {
    while store.step(chore, &|| false) == Rest::More {}
}

fn compact(store: &impl OnDisk) {
    store.compact(Bound::Unbounded, Bound::Unbounded).unwrap();
}

fn without_log() -> Settings {
    settings(Durability::None, &clock())
}

/// Settings by which the log may be as long as it likes.
fn with_long_log(durability: Durability) -> Settings {
    Settings { log_bytes: 16 << 20, ..settings(durability, &clock()) }
}

fn used(files: &SimFs) -> u64 {
    let lengths = files.names().into_iter().filter_map(|name| files.content(&name));
    lengths.map(|file| file.len() as u64).sum()
}

fn large_files(files: &SimFs) -> Vec<PathBuf> {
    let mut names = files.names();
    names.retain(|name| name.to_string_lossy().ends_with(".large"));
    names
}

#[test]
fn sync_without_log_makes_everything_durable() {
    let files = SimFs::new(["/data"]);
    let store = create(&files, without_log());
    put(&store, b"small", b"value");
    put(&store, b"large", &[1; 3000]);
    put(&store, b"removed", b"value");
    OnDisk::sync(&store).unwrap();
    store.delete(b"removed", Durably::Store).unwrap();
    OnDisk::sync(&store).unwrap();
    put(&store, b"later", b"value");
    for left in files.crash_states(10, 7) {
        let store = open(&left, without_log());
        assert_eq!(*store.get(b"small").unwrap().expect("it was synced"), *b"value");
        assert_eq!(*store.get(b"large").unwrap().expect("it was synced"), [1; 3000]);
        assert!(store.get(b"removed").unwrap().is_none());
    }
}

/// A version that a sync has to keep, and that a writer replaces while the block is written.
#[test]
fn sync_without_log_keeps_what_is_replaced_meanwhile() {
    let disk = SimFs::new(["/data"]);
    let (armed, thread) = (Arc::new(AtomicBool::new(false)), Arc::new(Mutex::new(None)));
    let store: Arc<OnceLock<Arc<Watched>>> = Arc::default();
    let (is_armed, started, writer) = (Arc::clone(&armed), Arc::clone(&thread), Arc::clone(&store));
    let files = Faulty::watched(disk.clone(), move |call| {
        if call.path.to_string_lossy().ends_with(".block") && is_armed.swap(false, SeqCst) {
            let writer = Arc::clone(writer.get().expect("an open store"));
            let replace = move || put(&*writer, b"key", b"second, and longer than before");
            *started.lock().unwrap() = Some(std::thread::spawn(replace));
            std::thread::sleep(Duration::from_millis(100));
        }
    });
    let opened = store.get_or_init(|| Arc::new(OfTiered::create(files, PATH, without_log()).unwrap()));
    put(&**opened, b"key", b"first");
    armed.store(true, SeqCst);
    OnDisk::sync(&**opened).unwrap();
    thread.lock().unwrap().take().expect("the hook has run").join().unwrap();
    let left = open(&disk.fork(), without_log());
    assert!(left.get(b"key").unwrap().is_some(), "a version that was synced is lost");
}

#[test]
fn checkpoint_without_log_has_everything() {
    let files = SimFs::new(["/data"]);
    let store = create(&files, without_log());
    (0..100u32).for_each(|key| put(&store, &key.to_le_bytes(), &[key as u8; 200]));
    put(&store, b"large", &[1; 3000]);
    OnDisk::checkpoint(&store, Path::new("/data/copy")).unwrap();
    put(&store, b"later", b"value");
    let copy = OfTiered::open(files.fork(), "/data/copy", without_log()).unwrap();
    assert_eq!((copy.len().get(), copy.get(b"later").unwrap().is_some()), (101, false));
    assert_eq!(*copy.get(b"large").unwrap().unwrap(), [1; 3000]);
}

#[test]
fn store_without_log_promises_no_more() {
    let store = create(&SimFs::new(["/data"]), without_log());
    assert_eq!(store.most(), Durability::None);
    OnDisk::set_durability(&store, Durability::Power);
    assert_eq!(store.durability(), Durability::None);
    let how = Durably::AtLeast(Durability::Power);
    let refused = store.put(Put { key: b"key", value: b"", expires_at: None }, how).unwrap_err();
    assert!(refused.to_string().contains("open it again with `power`"), "{refused}");
}

#[test]
fn store_without_log_keeps_its_reserve_again() {
    let files = SimFs::new(["/data"]);
    let store = create(&files, without_log());
    let reserve = || files.content(&Path::new(PATH).join("RESERVE")).unwrap().len();
    assert!(reserve() > 0);
    (0..14u32).for_each(|key| put(&store, &key.to_le_bytes(), &[1; 900]));
    files.set_capacity(used(&files));
    OnDisk::flush(&store).unwrap();
    assert_eq!(reserve(), 0);
    run(&store, Chore::Log);
    assert_eq!(reserve(), 0);
    files.set_capacity(u64::MAX);
    run(&store, Chore::Log);
    assert!(reserve() > 0);
}

/// A killed store of which the log alone has many large values.
fn with_large_values(count: u32) -> (SimFs, Tiered) {
    let files = SimFs::new(["/data"]);
    let store = create(&files, with_long_log(Durability::Process));
    (0..count).for_each(|key| put(&store, &key.to_le_bytes(), &[key as u8; 3000]));
    (files, store)
}

#[test]
fn open_of_many_large_values_takes_few_descriptors() {
    let (files, store) = with_large_values(400);
    drop(store);
    let files = Faulty::limited(files, 200);
    let store = OfTiered::open(files.clone(), PATH, with_long_log(Durability::Process)).unwrap();
    assert!(files.open_files() < 160, "{}", files.open_files());
    for key in 0..400u32 {
        assert_eq!(*store.get(&key.to_le_bytes()).unwrap().unwrap(), [key as u8; 3000]);
    }
}

#[test]
fn open_writes_no_large_value_that_was_synced() {
    let (files, store) = with_large_values(20);
    OnDisk::sync(&store).unwrap();
    put(&store, b"last", &[7; 3000]);
    drop(store);
    let written = Arc::new(AtomicU64::new(0));
    let counted = Arc::clone(&written);
    let files = Faulty::watched(files, move |call| {
        if call.kind == CallKind::Write && call.path.to_string_lossy().ends_with(".large") {
            counted.fetch_add(1, SeqCst);
        }
    });
    drop(OfTiered::open(files, PATH, with_long_log(Durability::Power)).unwrap());
    assert_eq!(written.load(SeqCst), 1);
}

/// Each damaged value asks whether the log was synced behind it.
#[test]
fn open_reads_the_log_no_more_for_more_damage() {
    let (files, store) = with_large_values(40);
    OnDisk::sync(&store).unwrap();
    drop(store);
    let reads = |damaged: usize| {
        let files = files.fork();
        large_files(&files).iter().take(damaged).for_each(|name| files.remove(name).unwrap());
        let count = Arc::new(AtomicU64::new(0));
        let counted = Arc::clone(&count);
        let files = Faulty::watched(files, move |call| {
            if call.kind == CallKind::Read && call.path.to_string_lossy().ends_with(".log") {
                counted.fetch_add(1, SeqCst);
            }
        });
        let store = OfTiered::open(files, PATH, with_long_log(Durability::Process)).unwrap();
        assert_eq!(store.warnings().is_empty(), damaged == 0);
        count.load(SeqCst)
    };
    assert!(reads(0) > 0);
    assert_eq!(reads(1), reads(40));
}

#[test]
fn refused_large_write_leaves_no_file() {
    let disk = SimFs::new(["/data"]);
    let files = Faulty::limited(disk.clone(), 1000);
    let store = OfTiered::create(files.clone(), PATH, with_long_log(Durability::Process)).unwrap();
    // Room for the files, but for no segment of the log.
    disk.set_capacity(used(&disk) + 4000);
    for len in [900, 100, 10, 0] {
        let fill =
            |nth: u32| try_put(&store, &[&nth.to_le_bytes()[..], &[len as u8]].concat(), &vec![1; len]);
        (0..).find_map(|nth| fill(nth).err()).expect("an end of the segment");
    }
    let (value, open) = ([1; 1500], files.open_files());
    let change = &mut |_: Option<Entry<'_>>| Change::Put { value: value.to_vec(), expires_at: None };
    let what = WriteKind::Put { value: &value, expires_at: None };
    let writes = [Write { key: b"one", what }, Write { key: b"two", what }];
    let operations: [&mut dyn FnMut() -> Result<(), WriteError>; 3] = [
        &mut || try_put(&store, b"key", &value),
        &mut || store.modify(b"key", change, Durably::Store),
        &mut || store.commit(&writes, &[], Durably::Store).map(drop),
    ];
    for (nth, operation) in operations.into_iter().enumerate() {
        let refused = operation().expect_err("the log has no room");
        assert!(matches!(refused, WriteError::Io { .. }), "{nth}: {refused:?}");
        assert_eq!((large_files(&disk).len(), files.open_files()), (0, open), "{nth}");
    }
    disk.set_capacity(u64::MAX);
    put(&store, b"key", &value);
    assert_eq!(*store.get(b"key").unwrap().unwrap(), value);
}

#[test]
fn overwritten_large_values_leave_the_disk() {
    for durability in [Durability::Process, Durability::None] {
        let files = SimFs::new(["/data"]);
        let store = create(&files, settings(durability, &clock()));
        for nth in 0..300u32 {
            put(&store, b"key", &[nth as u8; 3000]);
            run(&store, Chore::Flush);
        }
        let (left, flushes) = (large_files(&files).len(), store.stats().tier.unwrap().flushes);
        assert!(left < 60 && flushes < 60, "{durability:?}: {left} files, {flushes} flushes");
        compact(&store);
        assert_eq!(large_files(&files).len(), 1, "{durability:?}");
        assert_eq!(*store.get(b"key").unwrap().unwrap(), [43; 3000]);
        store.delete(b"key", Durably::Store).unwrap();
        compact(&store);
        assert_eq!(large_files(&files).len(), 0, "{durability:?}");
    }
}

#[test]
fn large_values_overwritten_before_an_open_leave_the_disk() {
    let files = SimFs::new(["/data"]);
    let store = create(&files, settings(Durability::Process, &clock()));
    (0..15u8).for_each(|nth| put(&store, b"key", &[nth; 3000]));
    put(&store, b"removed", &[1; 3000]);
    store.delete(b"removed", Durably::Store).unwrap();
    drop(store);
    let store = open(&files, settings(Durability::Process, &clock()));
    compact(&store);
    assert_eq!(large_files(&files).len(), 1);
    drop(store);
    let store = open(&files, settings(Durability::Process, &clock()));
    assert_eq!(*store.get(b"key").unwrap().unwrap(), [14; 3000]);
    assert_eq!((store.len().get(), store.warnings()), (1, &[][..]));
}

#[test]
fn dead_large_values_go_where_there_is_no_room() {
    let files = SimFs::new(["/data"]);
    let store = create(&files, settings(Durability::Process, &clock()));
    put(&store, b"key", &[0; 3000]);
    files.set_capacity(used(&files) + 30_000);
    let refused = (0..20).find_map(|_| try_put(&store, b"key", &[1; 3000]).err());
    assert!(refused.is_some(), "there is room");
    run(&store, Chore::Flush);
    run(&store, Chore::Log);
    put(&store, b"key", &[2; 3000]);
    assert_eq!(*store.get(b"key").unwrap().unwrap(), [2; 3000]);
}

/// The store is cleared while its index grows, for which that reads records of blocks.
#[test]
fn clear_while_the_index_grows_leaves_a_sound_store() {
    let (has_run, armed) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
    let store: Arc<OnceLock<Arc<Watched>>> = Arc::default();
    let (ran, is_armed, cleared) = (Arc::clone(&has_run), Arc::clone(&armed), Arc::clone(&store));
    let files = Faulty::watched(SimFs::new(["/data"]), move |call| {
        let is_block = call.kind == CallKind::Read && call.path.to_string_lossy().ends_with(".block");
        if is_block && is_armed.swap(false, SeqCst) {
            let store = Arc::clone(cleared.get().expect("an open store"));
            std::thread::spawn(move || store.clear(Durably::Store).unwrap()).join().unwrap();
            ran.store(true, SeqCst);
        }
    });
    let create =
        || OfTieredWith::<Level<Dram, Kind>>::create(files, PATH, settings(Durability::Process, &clock()));
    let opened = store.get_or_init(|| Arc::new(create().unwrap()));
    for key in 0..12_000u32 {
        put(&**opened, &key.to_le_bytes(), b"");
        if !opened.stats().index.unwrap().resizing {
            continue;
        }
        OnDisk::flush(&**opened).unwrap();
        opened.evict();
        armed.store(true, SeqCst);
        run(&**opened, Chore::Maintain);
        armed.store(false, SeqCst);
        if has_run.load(SeqCst) {
            break;
        }
    }
    assert!(has_run.load(SeqCst), "no step has read a block");
    assert_eq!(opened.get(&1u32.to_le_bytes()).unwrap(), None);
    put(&**opened, b"key", b"value");
    assert_eq!(*opened.get(b"key").unwrap().unwrap(), *b"value");
}

#[test]
fn failed_rewrite_keeps_the_count_of_dead_records() {
    let files = SimFs::new(["/data"]);
    let clock = clock();
    let store = create(&files, settings(Durability::Process, &clock));
    (0..14u32).for_each(|key| put(&store, &key.to_le_bytes(), &[1; 900]));
    OnDisk::flush(&store).unwrap();
    (0..10u32).for_each(|key| store.delete(&key.to_le_bytes(), Durably::Store).unwrap());
    let tier = || store.stats().tier.unwrap();
    let dead = tier().dead_bytes;
    assert!(dead > 9000, "{dead}");
    files.set_capacity(0);
    run(&store, Chore::Merge);
    assert_eq!((tier().dead_bytes, tier().rewrites), (dead, 0));
    assert!(store.trouble(Chore::Merge).is_some());
    files.set_capacity(u64::MAX);
    clock.advance(30_000);
    run(&store, Chore::Merge);
    assert_eq!((tier().dead_bytes, tier().rewrites), (0, 1));
    assert!(store.trouble(Chore::Merge).is_none());
}

#[test]
fn flushes_on_a_full_disk_are_tried_ever_less_often() {
    let (disk, clock) = (SimFs::new(["/data"]), clock());
    let attempts = Arc::new(AtomicU64::new(0));
    let counted = Arc::clone(&attempts);
    let files = Faulty::watched(disk.clone(), move |call| {
        let is_block = call.path.to_string_lossy().ends_with(".block");
        counted.fetch_add(u64::from(is_block && call.kind == CallKind::Name), SeqCst);
    });
    let settings = Settings { log_bytes: 4 << 10, ..settings(Durability::Process, &clock) };
    let store = OfTiered::create(files, PATH, settings).unwrap();
    (0..14u32).for_each(|key| put(&store, &key.to_le_bytes(), &[1; 900]));
    disk.set_capacity(0);
    // Ten minutes, with ten steps a second.
    (0..6000).for_each(|_| {
        clock.advance(100);
        store.step(Chore::Flush, &|| false);
    });
    assert!(store.trouble(Chore::Flush).is_some());
    let attempts = attempts.load(SeqCst);
    assert!((15..60).contains(&attempts), "{attempts} files in ten minutes");
}

/// An open counts tombstones as dead, also those that hide something.
#[test]
fn tombstones_of_many_blocks_are_gathered_as_far_as_they_fit() {
    let (files, clock) = (SimFs::new(["/data"]), clock());
    let open = || open(&files, settings(Durability::Process, &clock));
    let of = |key: u32| [&key.to_le_bytes()[..], &[b'k'; 900]].concat();
    drop(create(&files, settings(Durability::Process, &clock)));
    {
        let store = open();
        (0..200).for_each(|key| put(&store, &of(key), b""));
        OnDisk::flush(&store).unwrap();
    }
    {
        let store = open();
        (0..200).for_each(|key| {
            store.delete(&of(key), Durably::Store).unwrap();
            run(&store, Chore::Flush);
        });
        OnDisk::flush(&store).unwrap();
    }
    let store = open();
    run(&store, Chore::Merge);
    (0..3).for_each(|_| compact(&store));
    assert_eq!(store.stats().tier.unwrap().blocks, 0);
    assert!((0..200).all(|key| store.get(&of(key)).unwrap().is_none()));
    put(&store, b"key", b"value");
}

#[test]
fn batch_larger_than_dram_is_refused_at_once() {
    let store = create(&SimFs::new(["/data"]), settings(Durability::Process, &clock()));
    let keys: Vec<[u8; 4]> = (0..2000u32).map(u32::to_le_bytes).collect();
    let write = |key| Write { key, what: WriteKind::Put { value: &[1; 900], expires_at: None } };
    let writes: Vec<Write<'_>> = keys.iter().map(|key| write(&key[..])).collect();
    let refused = store.commit(&writes, &[], Durably::Store).unwrap_err();
    assert!(matches!(refused, WriteError::DramFull { .. }), "{refused}");
    assert_eq!(store.stats().tier.unwrap().stalls, 0);
    store.commit(&writes[..10], &[], Durably::Store).unwrap();
}

/// Reads many cold keys at once while a single block may be open.
#[test]
fn cold_keys_of_many_blocks_need_few_descriptors() {
    let directory = tempfile::tempdir_in("/var/tmp").unwrap();
    let path = directory.path().join("store");
    let files = BoundedFiles::new(Faulty::limited(SystemFiles, 24), 1);
    let create = OfTiered::create(files, path.to_str().unwrap(), settings(Durability::Process, &clock()));
    let store = create.unwrap();
    for key in 0..1000u32 {
        put(&store, &key.to_le_bytes(), &[key as u8; 700]);
        run(&store, Chore::Flush);
    }
    OnDisk::flush(&store).unwrap();
    store.evict();
    assert!(store.stats().tier.unwrap().blocks > 30);
    let keys: Vec<[u8; 4]> = (0..1000u32).map(u32::to_le_bytes).collect();
    let keys: Vec<&[u8]> = keys.iter().map(|key| &key[..]).collect();
    store.get_many(&keys, &mut |nth, entry| assert_eq!(entry.unwrap().unwrap().value, [nth as u8; 700]));
}

/// Puts values until the store has refused many. Returns the keys that it has.
fn fill(store: &impl Engine, len: usize) -> Vec<u32> {
    let (mut taken, mut refused, mut key) = (Vec::new(), 0, 0u32);
    while refused < 200 {
        match try_put(store, &key.to_le_bytes(), &vec![1; len]) {
            Ok(()) => taken.push(key),
            Err(_) => refused += 1,
        }
        key += 1;
    }
    taken
}

/// A store on a disk with room for so many bytes more, and the files of blocks that were made.
fn on_small_disk(settings: Settings, room: u64) -> (Watched, SimFs, Arc<AtomicU64>) {
    let (disk, made) = (SimFs::new(["/data"]), Arc::new(AtomicU64::new(0)));
    let counted = Arc::clone(&made);
    let files = Faulty::watched(disk.clone(), move |call| {
        let is_block = call.path.to_string_lossy().ends_with(".block");
        counted.fetch_add(u64::from(is_block && call.kind == CallKind::Name), SeqCst);
    });
    let store = OfTiered::create(files, PATH, settings).unwrap();
    disk.set_capacity(used(&disk) + room);
    (store, disk, made)
}

#[test]
fn refused_writes_take_no_pages_and_make_no_files() {
    let (store, _, made) = on_small_disk(settings(Durability::Process, &clock()), 300_000);
    fill(&store, 300);
    let tier = || store.stats().tier.unwrap();
    let seen = || (made.load(SeqCst), tier().open_bytes, tier().sealed_bytes, tier().stalls);
    let before = seen();
    for key in 0..20_000u32 {
        try_put(&store, &[&key.to_le_bytes()[..], b"more"].concat(), &[1; 300]).unwrap_err();
    }
    assert_eq!(seen(), before);
}

#[test]
fn full_tier_is_tried_once_while_nothing_is_freed() {
    let clock = clock();
    let settings = settings(Durability::None, &clock);
    let (store, disk, made) = on_small_disk(settings, 100_000);
    let keys = fill(&store, 300);
    let before = made.load(SeqCst);
    let more = |key: u32| try_put(&store, &[&key.to_le_bytes()[..], b"more"].concat(), &[1; 300]);
    (0..500).for_each(|key| drop(more(key).unwrap_err()));
    assert_eq!(made.load(SeqCst), before);
    clock.advance(1000);
    (0..500).for_each(|key| drop(more(key).unwrap_err()));
    let attempts = made.load(SeqCst) - before;
    assert!((1..=2).contains(&attempts), "{attempts}");
    disk.set_capacity(u64::MAX);
    more(0).unwrap();
    assert!(keys.iter().all(|key| store.get(&key.to_le_bytes()).unwrap().is_some()));
}

#[test]
fn cleared_store_takes_writes_in_the_room_of_its_log() {
    let (store, disk, _) = on_small_disk(with_long_log(Durability::Process), 200_000);
    fill(&store, 300);
    store.clear(Durably::Store).unwrap();
    for left in disk.crash_states(10, 7) {
        assert_eq!(open(&left, with_long_log(Durability::Process)).len().get(), 0);
    }
    (0..200u32).for_each(|key| put(&store, &key.to_le_bytes(), &[2; 300]));
    drop(store);
    let store = open(&disk, with_long_log(Durability::Process));
    assert_eq!(store.len().get(), 200);
    assert!((0..200u32).all(|key| *store.get(&key.to_le_bytes()).unwrap().unwrap() == [2; 300]));
}

/// Its blocks are too few to be gathered.
#[test]
fn store_whose_keys_were_removed_takes_writes() {
    for room in [100_000, 150_000, 300_000, 600_000] {
        let clock = clock();
        let (store, disk, _) = on_small_disk(settings(Durability::Process, &clock), room);
        let keys = fill(&store, 300);
        for (nth, key) in keys.iter().enumerate() {
            if nth % 10 == 0 {
                clock.advance(100);
                [Chore::Log, Chore::Flush, Chore::Merge].into_iter().for_each(|chore| run(&store, chore));
            }
            let removed = store.delete(&key.to_le_bytes(), Durably::Store);
            removed.unwrap_or_else(|error| panic!("{nth} of {} in {room}: {error}", keys.len()));
        }
        let takes = || (0..50u32).all(|key| try_put(&store, &key.to_le_bytes(), &[2; 300]).is_ok());
        // Two minutes, with ten steps a second.
        let is_taken = (0..1200).any(|_| {
            clock.advance(100);
            [Chore::Log, Chore::Flush, Chore::Merge].into_iter().for_each(|chore| run(&store, chore));
            takes()
        });
        assert!(is_taken, "{room}: {:?}", store.stats().tier);
        drop(store);
        let store = open(&disk, settings(Durability::Process, &clock));
        assert_eq!(store.len().get(), 50);
    }
}
