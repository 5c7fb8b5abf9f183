//! Tests: what must be durable before what, where threads meet at the worst instant.
#![allow(clippy::disallowed_methods, reason = "which thread comes first is what is tested")]

use crate::fixtures::{OfTiered, PATH, clock, settings};
use std::ops::Bound;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;
use terrace_engine::{Chore, Durability, Durably, Engine, OnDisk, Put, Rest, Write, WriteKind};
use terrace_testkit::simfs::{CallKind, Faulty, SimFs};
use terrace_tiered::{Settings, Tiered};

type Store = Tiered;
/// What is done before the next call of a kind on a file with such a name, once.
type Hooks = Arc<Mutex<Vec<(CallKind, &'static str, Box<dyn FnOnce() + Send>)>>>;

fn put(store: &impl Engine, key: &[u8], value: &[u8], how: Durably) {
    store.put(Put { key, value, expires_at: None }, how).unwrap();
}

/// A store whose file system runs hooks.
struct Hooked {
    disk: SimFs,
    store: Arc<Store>,
    hooks: Hooks,
}

impl Hooked {
    fn new(durability: Durability) -> Self {
        Self::with(settings(durability, &clock()))
    }

    fn with(settings: Settings) -> Self {
        let (disk, hooks) = (SimFs::new(["/data"]), Hooks::default());
        let armed = Arc::clone(&hooks);
        let files = Faulty::watched(disk.clone(), move |call| {
            let hook = {
                let mut hooks = armed.lock().unwrap_or_else(PoisonError::into_inner);
                let is_meant = |(kind, part, _): &(CallKind, &str, _)| {
                    *kind == call.kind && call.path.to_string_lossy().contains(part)
                };
                let nth = hooks.iter().position(is_meant);
                nth.map(|nth| hooks.remove(nth).2)
            };
            hook.into_iter().for_each(|hook| hook());
        });
        let store = OfTiered::create(files, PATH, settings).unwrap();
        Self { disk, store: Arc::new(store), hooks }
    }

    fn before_next(&self, kind: CallKind, part: &'static str, run: impl FnOnce() + Send + 'static) {
        let mut hooks = self.hooks.lock().unwrap_or_else(PoisonError::into_inner);
        hooks.push((kind, part, Box::new(run)));
    }

    /// Opens what power failures may leave.
    fn after_crashes(&self, check: impl Fn(&Tiered)) {
        let random = (0..40).map(|seed| {
            let left = self.disk.fork();
            left.crash(seed);
            left
        });
        for left in self.disk.directed_crashes().chain(random) {
            let opened = OfTiered::open(left, PATH, settings(Durability::Power, &clock()));
            check(&opened.unwrap_or_else(|error| panic!("the store does not open: {error}")));
        }
    }
}

/// While one thread syncs the log, another one waits to sync it, too, and a third one adds a large
/// value.
#[test]
fn log_is_not_synced_with_a_large_value_that_is_not() {
    let hooked = Hooked::new(Durability::Process);
    let power = Durably::AtLeast(Durability::Power);
    put(&*hooked.store, b"first", b"1", power);
    let store = Arc::clone(&hooked.store);
    let threads = Arc::new(OnceLock::new());
    let started = Arc::clone(&threads);
    hooked.before_next(CallKind::Sync, ".log", move || {
        let second = Arc::clone(&store);
        let second = std::thread::spawn(move || put(&*second, b"second", b"2", power));
        std::thread::sleep(Duration::from_millis(100));
        let third = std::thread::spawn(move || put(&*store, b"large", &[7; 3000], Durably::Later));
        std::thread::sleep(Duration::from_millis(100));
        let _ = started.set(Mutex::new(vec![second, third]));
    });
    put(&*hooked.store, b"third", b"3", power);
    let threads = threads.get().expect("the hook has run").lock().unwrap().split_off(0);
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    // Its header tells how far the log was synced.
    put(&*hooked.store, b"fourth", b"4", Durably::Store);
    hooked.after_crashes(|store| {
        assert_eq!(store.get(b"second").unwrap().unwrap(), b"2");
        assert!(store.get(b"large").unwrap().is_none_or(|value| *value == [7; 3000]));
    });
}

/// A large value is replaced while a block is sealed, behind the sync of the log.
#[test]
fn replaced_large_value_stays_until_its_successor_is_durable() {
    let hooked = Hooked::new(Durability::Process);
    let store = &hooked.store;
    put(&**store, b"large", &[1; 3000], Durably::Later);
    let fill =
        |from: u8| (from..from + 30).for_each(|nth| put(&**store, &[nth], &[nth; 900], Durably::Later));
    fill(0);
    OnDisk::flush(&**store).unwrap();
    fill(30);
    OnDisk::flush(&**store).unwrap();
    put(&**store, b"other", b"1", Durably::Later);
    let replacing = Arc::clone(store);
    hooked.before_next(CallKind::Sync, "MANIFEST", move || {
        let replace = move || put(&*replacing, b"large", &[2; 3000], Durably::Later);
        std::thread::spawn(replace).join().unwrap();
    });
    OnDisk::flush(&**store).unwrap();
    assert_eq!(*store.get(b"large").unwrap().unwrap(), [2; 3000]);
    hooked.after_crashes(|store| {
        let value = store.get(b"large").unwrap().expect("a durable value");
        assert!(*value == [1; 3000] || *value == [2; 3000]);
    });
}

/// A batch has changed the index, and takes that back since the disk is full, while a block is
/// sealed that has what the batch replaces.
#[test]
fn block_keeps_what_a_failing_batch_replaces() {
    let hooked = Hooked::new(Durability::Process);
    let store = Arc::clone(&hooked.store);
    put(&*store, b"key", b"old", Durably::Store);
    // Room for the block, but not for the segment that the batch needs.
    let files = hooked.disk.names().into_iter().filter_map(|name| hooked.disk.content(&name));
    hooked.disk.set_capacity(files.map(|file| file.len() as u64).sum::<u64>() + (30 << 10));
    let (has_swapped, thread) = (Arc::new(AtomicBool::new(false)), Arc::new(OnceLock::new()));
    let swapped = Arc::clone(&has_swapped);
    hooked.before_next(CallKind::Name, ".log", move || {
        swapped.store(true, SeqCst);
        std::thread::sleep(Duration::from_millis(300));
    });
    let (writer, started) = (Arc::clone(&store), Arc::clone(&thread));
    hooked.before_next(CallKind::Name, ".block", move || {
        let commit = move || {
            let keys: Vec<[u8; 1]> = (0..60).map(|nth| [nth]).collect();
            let what = WriteKind::Put { value: &[9; 900], expires_at: None };
            let mut writes: Vec<Write<'_>> = keys.iter().map(|key| Write { key, what }).collect();
            writes.push(Write { key: b"key", what });
            writer.commit(&writes, &[], Durably::Store).expect_err("the disk is full");
        };
        let _ = started.set(Mutex::new(Some(std::thread::spawn(commit))));
        while !has_swapped.load(SeqCst) {
            std::thread::yield_now();
        }
    });
    OnDisk::flush(&*store).unwrap();
    let thread = thread.get().expect("the hook has run").lock().unwrap().take().unwrap();
    thread.join().unwrap();
    store.evict();
    assert_eq!(store.get(b"key").unwrap().unwrap(), b"old");
}

/// Numbers that a crash has lost come again, but blocks are clean up to them.
#[test]
fn tombstone_outlives_a_crash_that_loses_numbers() {
    let files = SimFs::new(["/data"]);
    let of = || settings(Durability::None, &clock());
    let step = |store: &Tiered| assert_eq!(store.step(Chore::Merge, &|| false), Rest::More);
    let store = OfTiered::create(files.clone(), PATH, of()).unwrap();
    put(&store, b"key", b"value", Durably::Later);
    (0..5).for_each(|nth| put(&store, &[nth], &[nth; 600], Durably::Later));
    OnDisk::flush(&store).unwrap();
    // A rewrite makes the block clean up to a number that nothing durable has.
    (0..50).for_each(|nth| put(&store, &[100 + nth], b"", Durably::Later));
    (0..3).for_each(|nth| put(&store, &[nth], &[nth; 600], Durably::Later));
    step(&store);
    drop(store);
    let store = OfTiered::open(files.clone(), PATH, of()).unwrap();
    store.delete(b"key", Durably::Later).unwrap();
    (10..16).for_each(|nth| put(&store, &[nth], &[nth; 600], Durably::Later));
    OnDisk::flush(&store).unwrap();
    (10..14).for_each(|nth| put(&store, &[nth], &[nth; 600], Durably::Later));
    step(&store);
    OnDisk::flush(&store).unwrap();
    drop(store);
    let store = OfTiered::open(files, PATH, of()).unwrap();
    assert!(store.get(b"key").unwrap().is_none(), "a removed key is back");
    OnDisk::compact(&store, Bound::Unbounded, Bound::Unbounded).unwrap();
    assert!(store.get(b"key").unwrap().is_none());
}

/// A writer that has begun to change a record in place ends that while the block is sealed.
#[test]
fn block_waits_for_writers_that_change_it() {
    let hooked = Hooked::new(Durability::Process);
    let store = Arc::clone(&hooked.store);
    put(&*store, b"key", &0u64.to_le_bytes(), Durably::Later);
    let is_writing = Arc::new(AtomicBool::new(false));
    let writing = Arc::clone(&is_writing);
    hooked.before_next(CallKind::Name, ".log", move || {
        writing.store(true, SeqCst);
        std::thread::sleep(Duration::from_millis(300));
    });
    let (writer, writing) = (Arc::clone(&store), Arc::clone(&is_writing));
    let thread = std::thread::spawn(move || {
        let mut last = 0u64;
        while !writing.load(SeqCst) {
            last += 1;
            put(&*writer, b"key", &last.to_le_bytes(), Durably::Later);
        }
        last
    });
    while !is_writing.load(SeqCst) {
        std::thread::yield_now();
    }
    OnDisk::flush(&*store).unwrap();
    let last = thread.join().unwrap();
    store.evict();
    assert_eq!(*store.get(b"key").unwrap().unwrap(), last.to_le_bytes());
}

/// A block of tombstones alone keeps its part of the log.
#[test]
fn log_keeps_a_removal_that_no_block_has() {
    const KEYS: u16 = 800;
    let files = SimFs::new(["/data"]);
    let of = || Settings { log_bytes: 0, ..settings(Durability::Process, &clock()) };
    let store = OfTiered::create(files.clone(), PATH, of()).unwrap();
    (0..KEYS).for_each(|nth| put(&store, &nth.to_le_bytes(), b"1", Durably::Later));
    OnDisk::flush(&store).unwrap();
    put(&store, b"another key", b"1", Durably::Later);
    (0..KEYS).for_each(|nth| store.delete(&nth.to_le_bytes(), Durably::Later).unwrap());
    // Seals the first of the blocks that have these.
    let flushes = || store.stats().tier.unwrap().flushes;
    let before = flushes();
    assert_eq!(store.step(Chore::Flush, &|| false), Rest::More);
    assert_eq!(flushes(), before + 1);
    OnDisk::sync(&store).unwrap();
    drop(store);
    let store = OfTiered::open(files, PATH, of()).unwrap();
    assert_eq!(store.len().get(), 1);
}

/// A reader has read a record of a block when that ends and its number is free again.
#[test]
fn number_does_not_come_back_while_a_reader_may_have_it() {
    let hooked = Hooked::new(Durability::Process);
    let store = Arc::clone(&hooked.store);
    put(&*store, b"key", b"first", Durably::Later);
    OnDisk::flush(&*store).unwrap();
    store.evict();
    let writer = Arc::clone(&store);
    hooked.before_next(CallKind::Read, ".block", move || {
        let replace = move || {
            put(&*writer, b"key", b"second", Durably::Later);
            OnDisk::compact(&*writer, Bound::Unbounded, Bound::Unbounded).unwrap();
            writer.evict();
            put(&*writer, b"key", b"third", Durably::Later);
            OnDisk::flush(&*writer).unwrap();
            writer.evict();
        };
        std::thread::spawn(replace).join().unwrap();
    });
    let found = store.get(b"key").unwrap().map(|value| value.to_vec());
    assert!(found.is_some());
    assert_eq!(store.get(b"key").unwrap().unwrap(), b"third");
}

/// A block goes to its file with a change in place. An earlier write lies in another block, and in
/// the log.
#[test]
fn block_has_no_write_whose_predecessor_is_lost() {
    let hooked = Hooked::with(Settings { log_bytes: 0, ..settings(Durability::Process, &clock()) });
    let store = &hooked.store;
    put(&**store, b"first", b"old", Durably::Later);
    (0..20).for_each(|nth| put(&**store, &[nth], &[nth; 900], Durably::Later));
    OnDisk::sync(&**store).unwrap();
    put(&**store, b"earlier", b"1", Durably::Later);
    put(&**store, b"first", b"new", Durably::Later);
    assert_eq!(store.step(Chore::Flush, &|| false), Rest::More);
    assert!(store.stats().tier.unwrap().open_bytes > 0, "a block is left");
    hooked.after_crashes(|store| {
        let (first, earlier) = (store.get(b"first").unwrap().unwrap(), store.get(b"earlier").unwrap());
        assert!(*first == *b"old" || earlier.is_some(), "a write is lost, and a later one is not");
    });
}

/// The files of large values.
fn large_files(disk: &SimFs) -> usize {
    disk.names().iter().filter(|name| name.to_string_lossy().ends_with(".large")).count()
}

/// A large value has its file already when all is removed, and its write comes behind that.
#[test]
fn large_value_that_a_clear_overtakes_is_there() {
    let hooked = Hooked::new(Durability::Process);
    let store = &hooked.store;
    put(&**store, b"before", &[1; 3000], Durably::Store);
    let clearing = Arc::clone(store);
    hooked.before_next(CallKind::Write, ".large", move || clearing.clear(Durably::Store).unwrap());
    put(&**store, b"large", &[2; 3000], Durably::Store);
    assert!(store.get(b"before").unwrap().is_none());
    assert_eq!(*store.get(b"large").unwrap().unwrap(), [2; 3000]);
    assert_eq!(large_files(&hooked.disk), 1);
    put(&**store, b"small", b"value", Durably::Store);
    let left = OfTiered::open(hooked.disk.fork(), PATH, settings(Durability::Process, &clock())).unwrap();
    assert_eq!(*left.get(b"large").unwrap().unwrap(), [2; 3000]);
    assert_eq!(left.get(b"small").unwrap().unwrap(), b"value");
    assert_eq!(left.len().get(), 2);
}

/// A large value that another thread begins while the files of what was removed are looked for.
#[test]
fn large_value_that_begins_within_a_clear_is_there() {
    let hooked = Hooked::new(Durability::Power);
    let (store, disk) = (Arc::clone(&hooked.store), hooked.disk.clone());
    put(&*store, b"before", &[1; 3000], Durably::Store);
    let putting = Arc::new(Mutex::new(None));
    let (writer, started) = (Arc::clone(&store), Arc::clone(&putting));
    hooked.before_next(CallKind::Sync, "MANIFEST", move || {
        let inner = Arc::clone(&writer);
        *started.lock().unwrap() =
            Some(std::thread::spawn(move || put(&*inner, b"large", &[2; 3000], Durably::Store)));
        while large_files(&disk) < 2 {
            std::thread::yield_now();
        }
    });
    store.clear(Durably::Store).unwrap();
    let thread = putting.lock().unwrap().take().expect("the hook has run");
    thread.join().unwrap();
    assert_eq!(*store.get(b"large").unwrap().unwrap(), [2; 3000]);
    put(&*store, b"small", b"value", Durably::Store);
    hooked.after_crashes(|store| {
        assert!(store.get(b"before").unwrap().is_none());
        assert_eq!(*store.get(b"large").unwrap().unwrap(), [2; 3000]);
        assert_eq!(store.get(b"small").unwrap().unwrap(), b"value");
    });
}

/// A clear beside a rewrite, a gathering or a flush: blocks of before have the numbers of new ones.
#[test]
fn clear_waits_for_what_makes_blocks() {
    let all = || (Bound::Unbounded, Bound::Unbounded);
    let fill = |store: &Store, keys: std::ops::Range<u16>, value: u8| {
        keys.for_each(|key| put(store, &key.to_le_bytes(), &[value; 90], Durably::Later));
    };
    for compacts in [false, true] {
        let hooked = Hooked::new(Durability::Process);
        let store = &hooked.store;
        fill(store, 0..400, 1);
        if compacts {
            OnDisk::flush(&**store).unwrap();
            fill(store, 0..390, 2);
        }
        let (clearing, thread) = (Arc::clone(store), Arc::new(Mutex::new(None)));
        let started = Arc::clone(&thread);
        // Of a compaction, the first such file is sealed before.
        let armed = move || {
            let clear = std::thread::spawn(move || clearing.clear(Durably::Store).unwrap());
            std::thread::sleep(Duration::from_millis(50));
            assert!(!clear.is_finished(), "all is removed while a block is made");
            *started.lock().unwrap() = Some(clear);
        };
        if compacts {
            OnDisk::flush(&**store).unwrap();
        }
        hooked.before_next(CallKind::Sync, ".block", armed);
        match compacts {
            true => OnDisk::compact(&**store, all().0, all().1).unwrap(),
            false => OnDisk::flush(&**store).unwrap(),
        }
        thread.lock().unwrap().take().expect("the hook has run").join().unwrap();
        assert_eq!(store.len().get(), 0);
        fill(store, 0..200, 3);
        OnDisk::flush(&**store).unwrap();
        store.evict();
        OnDisk::compact(&**store, all().0, all().1).unwrap();
        for key in 0..200u16 {
            assert_eq!(*store.get(&key.to_le_bytes()).unwrap().unwrap(), [3; 90], "{key}");
        }
    }
}
