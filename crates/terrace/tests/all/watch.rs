//! Tests: waiting for changes of keys, in this process and in others.

use crate::common::{Medium, Site, shared};
use std::path::Path;
use std::time::Duration;
use terrace::{Change, Put, Store, Watch, WatchError};
use terrace_testkit::process::{Victim, acknowledge, task};

/// Longer than any change takes.
const LONG: Duration = Duration::from_secs(60);

fn batch(store: &Store, keys: &[&[u8]]) {
    let mut batch = store.batch();
    keys.iter().for_each(|key| _ = batch.put(key, b"1"));
    batch.commit().unwrap();
}

/// Whether each of these changes is reported, in order.
fn reports(store: &Store, watch: &mut Watch, changes: &[fn(&Store)]) -> Vec<bool> {
    let told = changes.iter().map(|change| {
        change(store);
        watch.has_changed()
    });
    told.collect()
}

#[test]
fn watch_reports_every_change_and_nothing_else() {
    for medium in crate::common::MEDIA {
        let site = Site::new(medium, terrace::ByteSize::mib(16));
        let store = site.create();
        let mut watch = store.watch(b"k").unwrap();
        let put = |key, value| Put { key, value, expires_at: None };
        let changes: [fn(&Store); 11] = [
            |store| store.put(b"k1", b"v").unwrap(),
            |store| store.put_expiring(b"k1", b"v", LONG).unwrap(),
            |store| assert!(store.put_many(&[Put { key: b"k2", value: b"v", expires_at: None }])[0].is_ok()),
            |store| assert_eq!(store.increment(b"k3", 2), Ok(2)),
            |store| assert_eq!(store.expire(b"k3", LONG), Ok(true)),
            |store| assert_eq!(store.compare_and_swap(b"k3", Some(b"2"), b"3"), Ok(true)),
            |store| assert_eq!(store.remove(b"k3"), Ok(true)),
            |store| batch(store, &[b"a", b"k4"]),
            |store| batch(store, &[b"k5"]),
            |store| _ = store.transaction(|transaction| transaction.remove(b"k5")).unwrap(),
            |store| store.clear().unwrap(),
        ];
        assert_eq!(reports(&store, &mut watch, &changes), [true; 11], "{medium:?}");
        let others: [fn(&Store); 6] = [
            |store| store.put(b"other", b"v").unwrap(),
            |store| assert!(store.get(b"k1").unwrap().is_none()),
            |store| assert_eq!(store.remove(b"k1"), Ok(false)),
            |store| assert_eq!(store.compare_and_swap(b"k1", Some(b"2"), b"3"), Ok(false)),
            |store| store.modify(b"k1", |_| (Change::Keep, ())).unwrap(),
            |store| batch(store, &[b"a", b"b"]),
        ];
        assert_eq!(reports(&store, &mut watch, &others), [false; 6], "{medium:?}");
        store.put_many(&[put(b"k6", b"v"), put(b"x", b"v")]).into_iter().for_each(|done| done.unwrap());
        assert!(watch.wait(LONG) && !watch.wait(Duration::ZERO));
    }
}

#[test]
fn watch_reports_swept_entry() {
    let site = Site::new(Medium::Shm, terrace::ByteSize::mib(16));
    let store = site.create();
    store.put_expiring(b"k", b"v", Duration::from_secs(5)).unwrap();
    let mut watch = store.watch(b"k").unwrap();
    site.clock.advance(6000);
    assert!(store.get(b"k").unwrap().is_none() && !watch.has_changed());
    while store.upkeep().sweep_expired(1000) == 0 {}
    assert!(watch.has_changed());
}

/// Two handles, as of two processes: each writes after the other has, and waits only for the watch.
#[test]
fn watch_misses_no_change_of_another_participant() {
    let directory = crate::common::directory();
    let path = directory.path().join("pool");
    let stores = [(); 2].map(|()| shared(&path, Medium::Shm).open_or_create().unwrap());
    std::thread::scope(|threads| {
        for (store, mine, other) in [(&stores[0], b"ping", b"pong"), (&stores[1], b"pong", b"ping")] {
            let mut watch = store.watch(other).unwrap();
            threads.spawn(move || {
                for round in 1..=1000u32 {
                    store.put(mine, round.to_be_bytes()).unwrap();
                    while store.get(other).unwrap().is_none_or(|value| value[..] < round.to_be_bytes()[..]) {
                        assert!(watch.wait(LONG), "round {round}");
                    }
                }
            });
        }
    });
}

/// Not a test by itself: the child.
#[test]
fn child() {
    let Some(task) = task() else { return };
    let (what, path) = task.split_once(' ').unwrap();
    let store = shared(Path::new(path), Medium::Shm).open().unwrap();
    match what {
        "answer" => {
            let mut watch = store.watch(b"question").unwrap();
            store.put(b"listening", b"").unwrap();
            while store.get(b"question").unwrap().is_none() {
                assert!(watch.wait(LONG));
            }
            store.put(b"answer", b"42").unwrap();
        }
        "watch" => {
            let watches: Vec<Watch> = std::iter::from_fn(|| store.watch(b"k").ok()).collect();
            acknowledge(0, watches.len() as u64);
            store.put(b"listening", b"").unwrap();
            loop {
                std::thread::park();
            }
        }
        _ => panic!("{task}"),
    }
}

fn start(what: &str, store: &Store, path: &Path) -> Victim {
    let mut watch = store.watch(b"listening").unwrap();
    store.remove(b"listening").unwrap();
    let victim = Victim::of_test("watch::child", &format!("{what} {}", path.display()), &[]).unwrap();
    while store.get(b"listening").unwrap().is_none() {
        assert!(watch.wait(LONG));
    }
    victim
}

#[test]
fn processes_wait_for_each_other_s_keys() {
    let directory = crate::common::directory();
    let path = directory.path().join("pool");
    let store = shared(&path, Medium::Shm).create().unwrap();
    let victim = start("answer", &store, &path);
    let mut watch = store.watch(b"answer").unwrap();
    store.put(b"question", b"?").unwrap();
    while store.get(b"answer").unwrap().is_none() {
        assert!(watch.wait(LONG));
    }
    assert!(!victim.wait().killed);
}

#[test]
fn watches_of_dead_process_are_freed_and_notified() {
    let directory = crate::common::directory();
    let path = directory.path().join("pool");
    let store = shared(&path, Medium::Shm).create().unwrap();
    let victim = start("watch", &store, &path);
    // One watch was left for `start`, and that one is free again.
    let mut watch = store.watch(b"something else").unwrap();
    assert!(matches!(store.watch(b"k"), Err(WatchError::TooMany(_))));
    assert!(!watch.has_changed());
    let ended = victim.kill();
    assert!(ended.returned(0) >= 8, "{ended:?}");
    // The dead process may have changed a key without notifying the watch. The thread that recovers
    // it, this one or the store's, notifies.
    store.sharing().recover_dead();
    assert!(watch.wait(LONG));
    let watches: Vec<Watch> = (0..ended.returned(0)).map(|_| store.watch(b"k").unwrap()).collect();
    drop(watches);
}
