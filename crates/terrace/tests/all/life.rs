//! Tests: what a store keeps from one open to the next, open errors, and background threads.

use crate::common::{Medium, Site, assert_sound, contents};
use std::time::Duration;
use terrace::{ByteSize, CloseError, OpenError, Start, Store, WriteError};
use terrace_medium::{MappedMedium, Shm};

const FILES: [Medium; 2] = [Medium::Shm, Medium::Pmem];

#[test]
fn writes_survive_a_close() {
    for medium in FILES {
        let site = Site::new(medium, ByteSize::mib(32));
        let store = site.create();
        for n in 0..3000u32 {
            store.put(n.to_le_bytes(), vec![n as u8; n as usize % 6000]).unwrap();
        }
        store.put_expiring(b"short", b"lived", Duration::from_millis(50)).unwrap();
        let before = contents(&store);
        let stats = store.stats();
        assert_eq!(
            (stats.pool.unwrap().generation, stats.pool.unwrap().found, stats.expiring),
            (1, Start::Created, 1)
        );
        store.close().unwrap();
        let store = site.open();
        assert_eq!(contents(&store), before);
        let again = store.stats();
        assert_eq!(
            (again.pool.unwrap().generation, again.pool.unwrap().found, again.pool.unwrap().batch_finished),
            (2, Start::Clean, None)
        );
        assert_eq!((again.data_bytes, again.records, again.expiring), (stats.data_bytes, 3001, 1));
        assert_sound(&store);
        site.clock.advance(50);
        assert_eq!(store.get(b"short").unwrap(), None);
        while store.upkeep().sweep_expired(10_000) == 0 {}
        assert_eq!((store.len(), store.stats().expiring, store.stats().expired), (3000, 0, 1));
    }
}

#[test]
fn read_only_store_takes_no_write() {
    let site = Site::new(Medium::Shm, ByteSize::mib(32));
    let store = site.create();
    store.put(b"key", b"value").unwrap();
    store.close().unwrap();
    let bytes = std::fs::read(&site.path).unwrap();
    let store = site.options().read_only(true).open().unwrap();
    assert_eq!(store.get(b"key").unwrap().unwrap(), b"value");
    assert_eq!(store.put(b"key", b"other"), Err(WriteError::ReadOnly));
    assert_eq!(store.remove(b"key"), Err(WriteError::ReadOnly));
    assert_eq!(store.clear(), Err(WriteError::ReadOnly));
    let mut batch = store.batch();
    batch.put(b"a", b"1").put(b"b", b"2");
    assert_eq!(batch.commit(), Err(WriteError::ReadOnly));
    assert_eq!(store.upkeep().sweep_expired(100), 0);
    assert_eq!(contents(&store).len(), 1);
    store.close().unwrap();
    assert!(bytes == std::fs::read(&site.path).unwrap(), "the file has changed");
}

#[test]
fn last_handle_closes_the_store() {
    let site = Site::new(Medium::Shm, ByteSize::mib(32));
    let store = site.create();
    let other = store.clone();
    assert!(matches!(store.close(), Err(CloseError::StillOpen)));
    assert!(site.options().open().is_err());
    other.close().unwrap();
    site.open().close().unwrap();
}

#[test]
fn open_error_states_the_reason() {
    assert!(matches!(Store::options().open(), Err(OpenError::NoPath)));
    let site = Site::new(Medium::Shm, ByteSize::mib(32));
    let missing = site.options().open().unwrap_err().to_string();
    assert!(missing.contains("there is no pool"), "{missing}");
    let store = site.create();
    let taken = site.options().open().unwrap_err().to_string();
    assert!(taken.contains("in use by process"), "{taken}");
    let exists = site.options().create().unwrap_err().to_string();
    assert!(exists.contains("exists already"), "{exists}");
    drop(store);
    let power = site.options().durability(terrace::Durability::Power).open().unwrap_err().to_string();
    assert!(power.contains("durability `power` is not possible"), "{power}");
    site.open();
}

#[test]
fn store_grows_while_in_use() {
    let site = Site::new(Medium::Shm, ByteSize::mib(2));
    let store = site.create();
    let full = (0..).find_map(|n: u32| store.put(n.to_le_bytes(), [7; 3000]).err()).unwrap();
    assert!(matches!(full, WriteError::PoolFull { .. }), "{full}");
    let before = store.len();
    assert_eq!(store.upkeep().grow(ByteSize::mib(4)).unwrap(), ByteSize::mib(4));
    for n in 10_000..10_300u32 {
        store.put(n.to_le_bytes(), [7; 3000]).unwrap();
    }
    assert_eq!(store.len(), before + 300);
    assert!(store.upkeep().grow(ByteSize::mib(1)).unwrap_err().to_string().contains("cannot shrink"));
    assert_sound(&store);
    store.close().unwrap();
    assert_eq!(site.open().stats().pool.unwrap().size_bytes, 4 << 20);
}

#[test]
fn background_threads_sweep_and_end() {
    let site = Site::new(Medium::Shm, ByteSize::mib(32));
    let store = site.options().expiry_thread(true).huge_pages(true).create().unwrap();
    for n in 0..1000u32 {
        store.put_expiring(n.to_le_bytes(), b"value", Duration::from_millis(10)).unwrap();
    }
    site.clock.advance(10);
    while !store.is_empty() {
        std::thread::yield_now();
    }
    store.close().unwrap();
    assert!(site.open().is_empty());
}

/// A low-priority thread exits late when the process is killed, and other processes wait for it
/// before they recover what the process held.
#[test]
fn idle_threads_have_normal_priority() {
    let site = Site::new(Medium::Shm, ByteSize::mib(32));
    let _store = site.options().huge_pages(true).create().unwrap();
    // The thread sleeps once it has nothing to do.
    let rests =
        |threads: &[(String, i32)]| threads.iter().any(|(thread, _)| thread.ends_with("(terrace-huge) S"));
    // The tests themselves may run with a low priority.
    let own = niceness_of(&std::fs::read_to_string("/proc/thread-self/stat").unwrap()).unwrap().1;
    loop {
        let threads = threads();
        if rests(&threads) && threads.iter().all(|&(_, niceness)| niceness <= own) {
            break;
        }
        std::thread::yield_now();
    }
}

/// See [`niceness_of`], for each thread of this process.
fn threads() -> Vec<(String, i32)> {
    let threads = std::fs::read_dir("/proc/self/task").unwrap().flatten();
    // A thread that has ended meanwhile has no `stat`.
    let stats = threads.filter_map(|thread| std::fs::read_to_string(thread.path().join("stat")).ok());
    stats.filter_map(|stat| niceness_of(&stat)).collect()
}

/// The beginning of a thread's `stat` up to its state, the third field (proc_pid_stat(5)), and its
/// niceness, the nineteenth.
fn niceness_of(stat: &str) -> Option<(String, i32)> {
    let name_end = stat.rfind(") ")? + 3;
    let niceness = stat[name_end - 1..].split(' ').nth(16)?.parse().ok()?;
    Some((stat[..name_end].to_string(), niceness))
}

#[test]
fn sweep_finds_few_expired_among_many() {
    let site = Site::new(Medium::Dram, ByteSize::mib(64));
    let store = site.create();
    (0..50_000u32).for_each(|n| store.put(n.to_le_bytes(), b"stays").unwrap());
    assert_eq!((0..100).map(|_| store.upkeep().sweep_expired(4000)).sum::<u64>(), 0);
    (0..5u32).for_each(|n| store.put_expiring(n.to_le_bytes(), b"goes", Duration::from_millis(5)).unwrap());
    site.clock.advance(5);
    let swept: u64 = (0..400).map(|_| store.upkeep().sweep_expired(4000)).sum();
    assert_eq!((swept, store.len()), (5, 49_995));
}

#[test]
fn check_is_sound_during_background_sweeps() {
    let site = Site::new(Medium::Dram, ByteSize::mib(64));
    let store = site.options().expiry_thread(true).create().unwrap();
    const ENTRIES: u64 = 20_000;
    for n in 0..ENTRIES {
        store.put_expiring(n.to_le_bytes(), b"goes", Duration::from_millis(5)).unwrap();
    }
    site.clock.advance(5);
    while store.stats().expired < ENTRIES {
        assert_sound(&store);
    }
}

#[test]
fn close_during_collection_leaves_it_pending() {
    let site = Site::new(Medium::Shm, ByteSize::mib(64));
    let store = site.create();
    (0..100_000u32).for_each(|n| store.put(n.to_le_bytes(), b"value").unwrap());
    (0..50_000u32).for_each(|n| assert!(store.remove(n.to_le_bytes()).unwrap()));
    // As a killed process leaves it.
    let path = site.path.with_extension("left");
    std::fs::copy(&site.path, &path).unwrap();
    let options = site.options().path(&path);
    let left = options.open().unwrap();
    assert_eq!(left.stats().pool.unwrap().found, Start::Unclean);
    left.close().unwrap();
    let left = options.open().unwrap();
    left.upkeep().wait_until_collected();
    assert_eq!(contents(&left), contents(&store));
    let (ours, theirs) = (left.stats(), store.stats());
    assert_eq!((ours.records, ours.data_bytes), (theirs.records, theirs.data_bytes));
    assert_sound(&left);
}

/// Bytes on huge pages.
fn on_huge_pages(store: &Store) -> u64 {
    store.upkeep().huge_pages().map_or(0, |pages| pages.huge)
}

#[test]
#[allow(clippy::print_stderr, reason = "a skipped test reports it")]
fn store_moves_to_huge_pages_in_background() {
    let site = Site::new(Medium::Shm, ByteSize::mib(16));
    let store = site.create();
    (0..3000u32).for_each(|n| store.put(n.to_le_bytes(), [7; 3000]).unwrap());
    if on_huge_pages(&store) > 0 {
        eprintln!("SKIPPED: all shared memory lies on huge pages here");
        return;
    }
    store.close().unwrap();
    let copy = |extension| {
        let path = site.path.with_extension(extension);
        std::fs::copy(&site.path, &path).unwrap();
        path
    };
    let pool = terrace_pool::PoolOptions::at(copy("first")).open::<Shm>().unwrap();
    std::iter::successors(Some(0), |&from| pool.collapse_step(from)).for_each(drop);
    if !pool.medium().mapping().huge_pages().is_ok_and(|pages| pages.huge > 0) {
        eprintln!("SKIPPED: no huge pages are available for shared memory");
        return;
    }
    let store = site.options().path(copy("second")).open().unwrap();
    store.upkeep().collapse_huge_pages();
    assert!(on_huge_pages(&store) > 0);
    store.close().unwrap();
    let store = site.options().huge_pages(true).open().unwrap();
    while on_huge_pages(&store) == 0 {
        std::thread::yield_now();
    }
    // It also ends while work remains.
    store.close().unwrap();
}
