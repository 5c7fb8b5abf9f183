//! Tests: processes that share a store and are stopped, dead, read-only, or the child of a fork.

use crate::common::{Medium, assert_sound, comes_true, shared};
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use terrace::{ByteSize, CloseError, Engine, Put, ReadError, Store, WatchError, WriteError};
use terrace_testkit::process::{Victim, acknowledge, in_forked_child, task};

/// Not a test by itself: writes until it is killed.
#[test]
fn child() {
    let Some(path) = task() else { return };
    let store = shared(Path::new(&path), Medium::Shm).open().unwrap();
    store.put(ready_key(std::process::id()), b"").unwrap();
    for n in 0u64.. {
        let done_or_full = |written| matches!(written, Ok(()) | Err(WriteError::PoolFull { .. }));
        assert!(done_or_full(store.put((n % 100).to_be_bytes(), n.to_be_bytes())));
        assert!(done_or_full(store.put(b"newest", n.to_be_bytes())));
        let mut batch = store.batch();
        batch.put(b"one", n.to_be_bytes()).put(b"other", n.to_be_bytes());
        // While a process is stopped inside the store, freed memory is not reused.
        assert!(done_or_full(batch.commit()));
        if n % 1000 == 0 {
            acknowledge(0, n);
        }
    }
}

/// Not a test by itself: holds an entry, and so blocks reclamation, until it is killed.
#[test]
fn keeper() {
    let Some(path) = task() else { return };
    let store = shared(Path::new(&path), Medium::Shm).open().unwrap();
    store.put(b"kept", b"").unwrap();
    let _kept = store.get(b"kept").unwrap().unwrap();
    store.put(ready_key(std::process::id()), b"").unwrap();
    loop {
        std::thread::park();
    }
}

fn ready_key(pid: u32) -> Vec<u8> {
    format!("here {pid}").into_bytes()
}

/// Starts a process that writes.
fn writer(store: &Store, path: &Path) -> Victim {
    process("child", store, path)
}

/// Starts a process that runs the test `name`, and waits until it reports that it is ready.
fn process(name: &str, store: &Store, path: &Path) -> Victim {
    let mut watch = store.watch(b"here").unwrap();
    let victim = Victim::of_test(&format!("others::{name}"), &path.display().to_string(), &[]).unwrap();
    while store.get(ready_key(victim.pid())).unwrap().is_none() {
        assert!(watch.wait(Duration::from_secs(60)));
    }
    victim
}

#[test]
fn stopped_process_is_killed_after_its_time() {
    let directory = crate::common::directory();
    let path = directory.path().join("pool");
    let store = shared(&path, Medium::Shm).end_stopped_after(Duration::from_millis(200)).create().unwrap();
    let (stopped, running) = (writer(&store, &path), writer(&store, &path));
    assert!(pids(&store).contains(&stopped.pid()));
    stopped.stop().unwrap();
    let stopped_pid = stopped.pid();
    assert!(stopped.wait().killed);
    while pids(&store).contains(&stopped_pid) {
        std::thread::yield_now();
    }
    assert_eq!(pids(&store), [running.pid()]);
    running.kill();
    store.sharing().recover_dead();
    assert_sound(&store);
}

#[test]
fn stopped_process_is_left_alone_by_default() {
    let directory = crate::common::directory();
    let path = directory.path().join("pool");
    let store = shared(&path, Medium::Shm).create().unwrap();
    let other = shared(&path, Medium::Shm).end_stopped_after(Duration::from_secs(3600)).open().unwrap();
    let victim = writer(&store, &path);
    victim.stop().unwrap();
    while !store.sharing().other_processes().iter().any(|other| other.stopped) {
        std::thread::yield_now();
    }
    recover_repeatedly(&store);
    assert!(victim.ended().unwrap().is_none());
    victim.resume().unwrap();
    let mut watch = store.watch(b"newest").unwrap();
    assert!(watch.wait(Duration::from_secs(60)));
    victim.kill();
    drop(other);
}

/// The result of `work`. Fails if that takes a minute.
#[allow(clippy::disallowed_methods, reason = "a thread that may wait forever cannot be joined")]
fn in_time<R: Send + 'static>(what: &str, work: impl FnOnce() -> R + Send + 'static) -> R {
    let (say, said) = std::sync::mpsc::channel();
    std::thread::spawn(move || say.send(work()));
    said.recv_timeout(Duration::from_secs(60)).unwrap_or_else(|_| panic!("{what} hangs"))
}

/// Recovers repeatedly, for as long as the store's own threads need for several checks, so that
/// they run concurrently.
#[allow(clippy::disallowed_methods, reason = "other threads need the time")]
fn recover_repeatedly(store: &Store) {
    for _ in 0..300 {
        store.sharing().recover_dead();
        std::thread::sleep(Duration::from_millis(1));
    }
}

fn pids(store: &Store) -> Vec<u32> {
    store.sharing().other_processes().iter().map(|other| other.pid).collect()
}

/// The dead process's memory cannot be collected before the stopped process has ended.
#[test]
fn stopped_process_is_killed_though_recovery_waits() {
    let directory = crate::common::directory();
    let path = directory.path().join("pool");
    let store = shared(&path, Medium::Shm).end_stopped_after(Duration::from_secs(1)).create().unwrap();
    let [stopped, dead] = [(); 2].map(|()| process("keeper", &store, &path));
    stopped.stop().unwrap();
    dead.kill();
    assert!(in_time("the kill of the stopped process", move || stopped.wait()).killed);
    while !pids(&store).is_empty() {
        std::thread::yield_now();
    }
    store.sharing().recover_dead();
    assert_sound(&store);
}

#[test]
fn stopped_process_blocks_no_recovery_check_or_close() {
    let directory = crate::common::directory();
    let path = directory.path().join("pool");
    let [store, other] = [(); 2].map(|()| shared(&path, Medium::Shm).open_or_create().unwrap());
    let [stopped, dead] = [(); 2].map(|()| process("keeper", &store, &path));
    stopped.stop().unwrap();
    let dead_pid = dead.pid();
    dead.kill();
    while pids(&store).contains(&dead_pid) {
        std::thread::yield_now();
    }
    let (recovering, checking) = (store.clone(), store.clone());
    in_time("a recovery", move || recover_repeatedly(&recovering));
    let report = in_time("a check", move || checking.check(&mut |_, _| {}));
    assert!(report.is_sound() && report.concurrent, "{:#?}", report.findings);
    // On a busy machine the store's own threads seem to be blocked, too. Then the store is closed a
    // little later.
    let closed = in_time("closing", move || store.close());
    assert!(matches!(closed, Ok(()) | Err(CloseError::BlockedBy(_))), "{closed:?}");
    assert!(comes_true(|| pids(&other) == [stopped.pid()]), "{:?}", other.sharing().other_processes());
    // The remaining process continues the collection once nothing blocks it.
    assert_eq!(other.stats().pool.unwrap().blocking_readers, 1);
    stopped.kill();
    other.sharing().recover_dead();
    assert_sound(&other);
}

#[test]
fn check_is_sound_during_writes_of_others() {
    let directory = crate::common::directory();
    let path = directory.path().join("pool");
    let store = shared(&path, Medium::Shm).create().unwrap();
    for n in 0..5000u64 {
        store.put(format!("key {n}").as_bytes(), [7; 100]).unwrap();
    }
    let victim = writer(&store, &path);
    for _ in 0..50 {
        let report = store.check(&mut |_, _| {});
        assert!(report.is_sound() && report.concurrent, "{:#?}", report.findings);
        assert!(report.records >= 5000);
    }
    victim.kill();
    store.sharing().recover_dead();
    let report = store.check(&mut |_, _| {});
    assert!(report.is_sound() && !report.concurrent, "{:#?}", report.findings);
}

#[test]
fn holder_of_an_entry_can_recover_and_check() {
    let directory = crate::common::directory();
    let path = directory.path().join("pool");
    let store = shared(&path, Medium::Shm).create().unwrap();
    store.put(b"key", b"value").unwrap();
    let entry = store.get(b"key").unwrap().unwrap();
    let mut dead = 0;
    for _ in 0..20 {
        let victim = writer(&store, &path);
        victim.kill();
        dead += store.sharing().recover_dead();
        assert!(store.sharing().other_processes().is_empty());
        let report = store.check(&mut |_, _| {});
        assert!(report.is_sound() && report.concurrent, "{:#?}", report.findings);
    }
    // The store's own thread may have recovered some of them first.
    assert!(dead <= 20, "{dead}");
    drop(entry);
    assert_eq!(store.sharing().recover_dead(), 0);
    assert_sound(&store);
}

#[test]
fn recover_dead_reclaims_memory_before_it_returns() {
    let directory = crate::common::directory();
    let path = directory.path().join("pool");
    let store = shared(&path, Medium::Shm).create().unwrap();
    for _ in 0..5 {
        writer(&store, &path).kill();
        store.sharing().recover_dead();
        assert_eq!(store.stats().pool.unwrap().lost_bytes, 0);
    }
}

/// Not a test by itself: holds the sweeper's lock, and reports that, until it is killed.
#[test]
fn sweeper() {
    let Some(path) = task() else { return };
    let store = shared(Path::new(&path), Medium::Shm).open_or_create().unwrap();
    store.put_expiring(b"mine", b"", Duration::from_millis(1)).unwrap();
    while store.stats().expired == 0 {
        std::thread::yield_now();
    }
    store.put(ready_key(std::process::id()), b"").unwrap();
    loop {
        std::thread::park();
    }
}

#[test]
fn survivor_takes_over_sweeping() {
    const ENTRIES: u64 = 1000;
    let directory = crate::common::directory();
    let path = directory.path().join("pool");
    // Without a sweeping thread, so that the child becomes the sweeper.
    let quiet = shared(&path, Medium::Shm).expiry_thread(false).create().unwrap();
    let sweeper = process("sweeper", &quiet, &path);
    let survivor = shared(&path, Medium::Shm).open().unwrap();
    for n in 0..ENTRIES {
        survivor.put_expiring(n.to_be_bytes(), [7; 100], Duration::from_secs(2)).unwrap();
    }
    sweeper.kill();
    let waiting = survivor.clone();
    in_time("the sweep", move || {
        while waiting.len() > 1 || waiting.stats().expired < ENTRIES {
            std::thread::yield_now();
        }
    });
    survivor.sharing().recover_dead();
    assert!(survivor.get(0u64.to_be_bytes()).unwrap().is_none());
    drop(quiet);
    assert_sound(&survivor);
}

/// The reader's mapping refuses stores to all data, so a store there would crash this test.
#[test]
fn reader_stores_nothing_to_the_data() {
    let directory = crate::common::directory();
    let path = directory.path().join("pool");
    let store = shared(&path, Medium::Shm).create().unwrap();
    for n in 0..1000u64 {
        store.put(n.to_be_bytes(), [7; 100]).unwrap();
    }
    let reader = shared(&path, Medium::Shm).read_only(true).open().unwrap();
    for _ in 0..5 {
        let victim = writer(&store, &path);
        let mut watch = reader.watch(b"newest").unwrap();
        for n in 0..3000u64 {
            assert!(reader.get((n % 1000).to_be_bytes()).unwrap().is_some());
            let (mut both, keys) = (Vec::new(), [&b"one"[..], b"other"]);
            reader.snapshot_many(&keys, &mut |_, entry| {
                both.push(entry.unwrap().map(|entry| entry.value.to_vec()));
            });
            assert_eq!(both[0], both[1]);
        }
        assert!(watch.wait(Duration::from_secs(60)) && reader.random_key().unwrap().is_some());
        victim.kill();
        assert!(
            crate::common::contents(&reader).len() >= 1000
                && reader.len() >= 1000
                && reader.stats().records >= 1000
        );
    }
    assert_eq!(reader.put(b"k", b"v"), Err(WriteError::ReadOnly));
    assert!(reader.upkeep().grow(terrace::ByteSize::mib(17)).is_err());
    // The last process to close collects what the dead ones have left.
    store.close().unwrap();
    reader.close().unwrap();
    let store = shared(&path, Medium::Shm).shared(false).open().unwrap();
    store.upkeep().wait_until_collected();
    assert_sound(&store);
}

#[test]
fn forked_child_is_refused_by_every_call() {
    let directory = crate::common::directory();
    let pool = shared(&directory.path().join("pool"), Medium::Shm);
    let on_disk = Store::options().directory(directory.path().join("data"));
    let tiered = directory.path().join("tiered");
    let tiered = Store::options().engine(Engine::Tiered).memory(ByteSize::mib(16)).directory(tiered);
    for options in [pool, on_disk, tiered] {
        assert_child_is_refused(options.create().unwrap());
        assert_child_lets_go(options.open().unwrap(), drop);
        assert_child_lets_go(options.open().unwrap(), |store| {
            let says = store.close().unwrap_err().to_string();
            assert!(says.contains("the process that forked this one"), "{says}");
        });
        assert_eq!(options.open().unwrap().get(b"k").unwrap().unwrap(), b"v");
    }
}

/// A child that lets go of its handle returns at once, and leaves the store as it is. If it waited
/// for the threads of its parent, it would never return.
fn assert_child_lets_go(store: Store, how: fn(Store)) {
    // The only handle, in the memory of the parent and in the child's copy of it.
    let handle = Arc::new(Mutex::new(Some(store)));
    let copy = Arc::clone(&handle);
    let ended = in_forked_child(move || {
        copy.lock().unwrap().take().map(how).expect("one call in each process");
        0
    });
    assert_eq!(ended, 0);
    let store = handle.lock().unwrap().take().expect("the parent has its handle yet");
    store.put(b"k", b"v").unwrap();
    store.close().unwrap();
}

fn assert_child_is_refused(store: Store) {
    store.put(b"k", b"v").unwrap();
    let copy = store.clone();
    let answered = in_forked_child(move || {
        let answers = answers_to_a_child(&copy);
        answers.iter().position(|is_refused| !is_refused).map_or(0, |nth| nth as u16 + 1)
    });
    assert_eq!(answered, 0, "the first call that is not refused");
    assert_eq!(store.get(b"k").unwrap().unwrap(), b"v");
}

/// Which calls refuse to serve a child by fork.
fn answers_to_a_child(store: &Store) -> Vec<bool> {
    let put = Put { key: b"k", value: b"w", expires_at: None };
    let mut read = Vec::new();
    store.get_many(&[b"k", b"l"], &mut |_, entry| read.push(entry.err()));
    store.snapshot_many(&[b"k", b"l"], &mut |_, entry| read.push(entry.err()));
    vec![
        read == vec![Some(ReadError::Forked); 4],
        store.get(b"k").err() == Some(ReadError::Forked),
        store.version(b"k").err() == Some(ReadError::Forked),
        store.scan(&terrace::Cursor::START, 1, &mut |_, _| {}) == Err(ReadError::Forked),
        store.put(b"k", b"w") == Err(WriteError::Forked),
        store.put_many(&[put, put]) == [Err(WriteError::Forked), Err(WriteError::Forked)],
        store.remove(b"k") == Err(WriteError::Forked),
        store.clear() == Err(WriteError::Forked),
        store.batch().commit() == Err(WriteError::Forked),
        store.increment(b"n", 1).is_err(),
        store.watch(b"").err() == Some(WatchError::Forked),
        store.check(&mut |_, _| {}).findings.iter().any(|finding| finding.to_string().contains("forked")),
        store.stats().records == 0,
    ]
}
