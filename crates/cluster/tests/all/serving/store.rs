//! The store of a serving node.

use super::Cluster;
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use terrace::{Change, ManualClock, PutOptions, ReadError, Store, WriteError};
use terrace_conformance::{Site, store};
use terrace_engine::{Chore, Durably, Write, WriteKind};
use terrace_protocol::slot;

type Engine = Arc<dyn terrace_engine::Engine>;

thread_local! {
    /// The clusters of this test: the suite drops a place before the store in it.
    static CLUSTERS: RefCell<VecDeque<Cluster>> = RefCell::default();
}

/// A place for a store: a cluster with one serving node and one log.
fn site(cache_bytes: u64) -> Site {
    let made: Cell<Option<Engine>> = Cell::default();
    Site::over(true, move |clock: Arc<ManualClock>| {
        let start = || {
            let mut cluster = Cluster::new(clock);
            // The suite takes no error: a busy machine must lose neither the lease nor a session.
            cluster.options.lease = Duration::from_secs(60);
            cluster.patience = Duration::from_secs(60);
            let cluster = cluster.with(cache_bytes, 1).start(1);
            let engine = cluster.nodes[0].engine();
            CLUSTERS.with_borrow_mut(|clusters| {
                clusters.push_back(cluster);
                clusters.drain(..clusters.len().saturating_sub(2)).for_each(drop);
            });
            engine
        };
        let engine = made.take().unwrap_or_else(start);
        made.set(Some(Arc::clone(&engine)));
        Store::over(engine).unwrap()
    })
}

#[test]
fn serving_node_is_a_store() {
    store(|| site(16 << 20));
}

#[test]
fn serving_node_with_a_tiny_cache_is_a_store() {
    store(|| site(4 << 10));
}

fn cluster() -> Cluster {
    Cluster::new(Arc::new(ManualClock::at(Site::STARTED))).start(1)
}

#[test]
fn sizes_at_the_limit_are_kept_and_over_it_are_refused() {
    let cluster = cluster();
    let store = cluster.store(0);
    let key = vec![7; 64 << 10];
    for len in [0, 1, 4095, 4096, 4097, 65_535, 65_536, (256 << 10) - 1, 256 << 10] {
        let value = vec![len as u8; len];
        store.put(&key[..], &value).unwrap();
        store.put(b"short", &value).unwrap();
        cluster.wait_for_merges(0);
        assert!(store.get(&key).unwrap().unwrap() == &value, "{len}");
        assert!(store.get(b"short").unwrap().unwrap() == &value, "{len}");
    }
    let error = store.put(b"short", vec![0; (256 << 10) + 1]).unwrap_err();
    assert!(matches!(error, WriteError::OverLimit(_)), "{error}");
    assert!(matches!(store.put(vec![0; (64 << 10) + 1], b"").unwrap_err(), WriteError::KeyTooLong));
    assert!(store.get(b"short").unwrap().unwrap() == &vec![0; 256 << 10]);
}

#[test]
fn commit_over_several_logs_is_refused() {
    let cluster = cluster();
    let store = cluster.store(0);
    let error = store
        .transaction(|transaction| {
            (0..10).for_each(|nth| transaction.put(format!("key {nth}"), b"value").unwrap());
            Ok::<_, WriteError>(())
        })
        .unwrap_err();
    assert!(error.to_string().contains("several slots"), "{error}");
    assert_eq!(store.len(), 0);
    store
        .transaction(|transaction| {
            (0..10).for_each(|nth| transaction.put(format!("{{tag}} {nth}"), b"value").unwrap());
            Ok::<_, WriteError>(())
        })
        .unwrap();
    assert_eq!(store.len(), 10);
}

#[test]
fn key_written_twice_at_one_instant_counts_once() {
    let cluster = cluster();
    let (store, engine) = (cluster.store(0), cluster.nodes[0].engine());
    let put = |value| Write { key: b"key", what: WriteKind::Put { value, expires_at: None } };
    let remove = Write { key: b"key", what: WriteKind::Remove };
    let commit = |writes: &[Write<'_>]| engine.commit(writes, &[], Durably::Store).unwrap();
    commit(&[put(b"first"), put(b"second")]);
    assert_eq!(store.len(), 1);
    assert!(store.get(b"key").unwrap().unwrap() == b"second");
    commit(&[remove, put(b"first"), remove]);
    assert_eq!(store.len(), 0);
    commit(&[put(b"first"), remove, put(b"second")]);
    assert_eq!(store.len(), 1);
}

#[test]
fn expired_key_is_absent_and_is_swept() {
    let cluster = cluster();
    let store = cluster.store(0);
    store.put_with(b"gone", b"value", PutOptions::new().expires_at(Some(Site::STARTED + 10))).unwrap();
    store.put(b"stays", b"value").unwrap();
    cluster.wait_for_merges(0);
    cluster.clock.advance(10);
    assert!(store.get(b"gone").unwrap().is_none());
    assert!(store.get(b"stays").unwrap().is_some());
    super::wait_until("the sweep", || store.len() == 1);
}

#[test]
fn cleared_store_is_empty_at_once_and_stays_so() {
    let cluster = cluster();
    let store = cluster.store(0);
    for nth in 0..1000 {
        store.put(format!("key {nth}"), b"value").unwrap();
    }
    cluster.wait_for_merges(0);
    store.put(b"unmerged", b"value").unwrap();
    store.clear().unwrap();
    assert!((0..1000).all(|nth| store.get(format!("key {nth}")).unwrap().is_none()));
    assert!(store.get(b"unmerged").unwrap().is_none());
    assert_eq!(store.keys().count(), 0);
    store.put(b"key 7", b"new").unwrap();
    assert_eq!(store.len(), 1);
    assert!(store.get(b"key 7").unwrap().unwrap() == b"new");
    let keys: Vec<_> = store.keys().map(|key| key.unwrap().to_vec()).collect();
    assert_eq!(keys, [b"key 7"]);
}

#[test]
fn full_memory_refuses_puts_and_takes_removals() {
    let mut cluster = Cluster::new(Arc::new(ManualClock::at(Site::STARTED)));
    cluster.options.pool_bytes = 128 << 20;
    let cluster = cluster.with(1 << 20, 1).start(1);
    let store = cluster.store(0);
    let value = vec![7; 2000];
    let mut keys = 0;
    let error = loop {
        match store.put(format!("key {keys}"), &value) {
            Ok(()) => keys += 1,
            Err(error) => break error,
        }
    };
    assert!(matches!(error, WriteError::MemoryNodeFull { .. }), "{error}");
    assert!(store.get(b"key 0").unwrap().unwrap() == &value);
    for key in 0..keys {
        assert!(store.remove(format!("key {key}")).unwrap());
    }
    super::wait_until("room for a put", || store.put(b"key", b"value").is_ok());
    assert_eq!(store.len(), 1);
}

/// Puts until one is refused since memory is full. One that has waited for too long is put again.
fn put_until_full(
    store: &Store,
    mut key: impl FnMut(u64) -> Option<String>,
    value: &[u8],
) -> Option<WriteError> {
    let mut count = 0;
    while let Some(key) = key(count) {
        match store.put(key, value) {
            Ok(()) => count += 1,
            // The machine is busy.
            Err(WriteError::Unavailable(_)) => {}
            Err(error) => return Some(error),
        }
    }
    None
}

/// Ten times as much is put as the pool holds, and all of it is replaced at once.
#[test]
fn puts_over_a_few_keys_wait_for_memory() {
    let mut cluster = Cluster::new(Arc::new(ManualClock::at(Site::STARTED)));
    cluster.options.pool_bytes = 128 << 20;
    let cluster = cluster.with(1 << 20, 1).start(1);
    let key = |count: u64| (count < 6000).then(|| format!("key {}", count % 20));
    assert_eq!(put_until_full(&cluster.store(0), key, &[7; 200_000]), None);
    assert_eq!(cluster.store(0).len(), 20);
}

#[test]
fn put_after_a_clear_of_full_memory_waits_for_it() {
    let mut cluster = Cluster::new(Arc::new(ManualClock::at(Site::STARTED)));
    cluster.options.pool_bytes = 128 << 20;
    let cluster = cluster.with(1 << 20, 1).start(1);
    let store = cluster.store(0);
    let error = put_until_full(&store, |count| Some(format!("key {count}")), &[7; 2000]).unwrap();
    assert!(matches!(error, WriteError::MemoryNodeFull { .. }), "{error}");
    let text = error.to_string();
    assert!(text.contains("a larger --size") && !text.contains("grow it"), "{text}");
    store.clear().unwrap();
    let key = |count| (count < 1).then(|| "key".to_owned());
    assert_eq!(put_until_full(&store, key, b"value"), None);
    assert_eq!(store.len(), 1);
}

#[test]
fn serving_node_tells_the_size_of_the_pool() {
    let cluster = cluster();
    let (give, sizes) = std::sync::mpsc::channel();
    cluster.nodes[0].on_size(Box::new(move |size| _ = give.send(size)));
    assert_eq!(sizes.recv_timeout(std::time::Duration::from_secs(60)), Ok(256 << 20));
    let pool = cluster.nodes[0].engine().stats().pool.unwrap();
    assert_eq!(pool.size_bytes, 256 << 20);
    let figures = cluster.nodes[0].routing().figures();
    let room = figures.iter().find(|figure| figure.name == "room_bytes").unwrap().value;
    // Two segments for one of two shards are kept, at least.
    assert!((1..pool.free_bytes - (32 << 20)).contains(&room), "{room} of {}", pool.free_bytes);
}

/// Each node has a part of what fills the memory, so each has to clear.
#[test]
fn puts_after_all_nodes_were_cleared_are_not_refused() {
    let cluster = Cluster::new(Arc::new(ManualClock::at(Site::STARTED))).with(1 << 20, 1).start(3);
    let stores = [0, 1, 2].map(|nth| cluster.store(nth));
    let put = |key: &str| {
        let at = |store: &Store| match store.put(key, [7; 100_000]) {
            Err(WriteError::NotOwner { .. }) => None,
            done => Some(done),
        };
        stores.iter().find_map(at).unwrap_or_else(|| panic!("no node has {key}"))
    };
    let mut keys = 0;
    loop {
        match put(&format!("key {keys}")) {
            Ok(()) => keys += 1,
            // The machine is busy.
            Err(WriteError::Unavailable(_)) => {}
            Err(WriteError::MemoryNodeFull { .. }) => break,
            Err(error) => panic!("{error}"),
        }
    }
    stores.iter().for_each(|store| store.clear().unwrap());
    for nth in 0..30 {
        match put(&format!("key {nth}")) {
            Ok(()) | Err(WriteError::Unavailable(_)) => {}
            Err(error) => panic!("{error}"),
        }
    }
}

/// The server stores a key with the mark of databases as the mark, a zero, and the rest.
#[test]
fn escaped_key_has_the_slot_of_the_key_that_it_is() {
    const MARK: &[u8] = b"\xfe\xa7<\xd1^\x92\x0b";
    let mut cluster = Cluster::new(Arc::new(ManualClock::at(Site::STARTED))).start(2);
    // The first half of the slots is the first node's.
    let escaped = |key: &[u8]| [MARK, b"\0", &key[MARK.len()..]].concat();
    let mut keys = (0..1000_u32).map(|nth| [MARK, &nth.to_le_bytes()].concat());
    let key = keys.find(|key| slot(key) < 8192 && slot(&escaped(key)) >= 8192).unwrap();
    let stored = escaped(&key);
    let [first, second] = [0, 1].map(|nth| cluster.store(nth));
    first.put(&stored, b"value").unwrap();
    let is_elsewhere =
        |error: WriteError| matches!(error, WriteError::NotOwner { slot: of } if of == slot(&key));
    assert!(second.put(&stored, b"other").is_err_and(is_elsewhere));
    cluster.wait_for_merges(0);
    let has_it = |cluster: &Cluster| {
        assert!(cluster.store(0).get(&stored).unwrap().unwrap() == b"value");
        assert!(cluster.store(0).random_key().unwrap().unwrap() == stored);
        assert_eq!([0, 1].map(|nth| cluster.store(nth).count().get()), [1, 0]);
        let listed: [Vec<Vec<u8>>; 2] =
            [0, 1].map(|nth| cluster.store(nth).iter().map(|entry| entry.unwrap().0.to_vec()).collect());
        assert_eq!(listed, [vec![stored.clone()], vec![]]);
    };
    has_it(&cluster);
    // The keys of each slot are counted anew.
    cluster.restart_memory();
    cluster.wait_for_all();
    has_it(&cluster);
    assert_eq!(cluster.memory.as_ref().unwrap().stats().refused_changes, 0);
    cluster.store(0).clear().unwrap();
    assert_eq!(cluster.store(0).count().get(), 0);
}

/// Only scans of clients count it, and a read says what a single server's does.
#[test]
fn damaged_record_is_told_as_by_a_single_server() {
    let cluster = Cluster::new(Arc::new(ManualClock::at(Site::STARTED))).with(1, 1).start(1);
    let store = cluster.store(0);
    let value = b"a value that is damaged";
    store.put(b"key", value).unwrap();
    cluster.wait_for_merges(0);
    let pool = &cluster.options.pool;
    let bytes = std::fs::read(pool).unwrap();
    let mut places = bytes.windows(value.len()).enumerate().filter(|(_, part)| part == value);
    let (at, _) = places.next().expect("the value");
    assert!(places.next().is_none());
    let file = std::fs::File::options().write(true).open(pool).unwrap();
    file.write_all_at(b"A", at as u64).unwrap();
    let single = Store::options().path(copy_of(pool)).read_only(true).open().unwrap();
    let expected = single.get(b"key").expect_err("damage");
    assert!(matches!(expected, ReadError::Corrupt { .. }));
    assert_eq!(store.get(b"key").err(), Some(expected.clone()));
    assert_eq!(store.modify(b"key", |_| (Change::Keep, ())).err(), Some(expected.into()));
    let engine = cluster.nodes[0].engine();
    (0..10).for_each(|_| _ = engine.step(Chore::Sweep, &|| false));
    assert_eq!(engine.stats().damaged_records_skipped, 0);
    assert_eq!(store.iter().count(), 0);
    assert_eq!(engine.stats().damaged_records_skipped, 1);
    // A put replaces it.
    store.put(b"key", b"value").unwrap();
    assert!(store.get(b"key").unwrap().unwrap() == b"value");
}

/// A copy of a pool, beside it.
fn copy_of(pool: &Path) -> PathBuf {
    let copy = pool.with_extension("copy");
    std::fs::copy(pool, &copy).unwrap();
    copy
}
