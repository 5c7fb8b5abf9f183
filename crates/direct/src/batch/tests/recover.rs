//! Tests of `recover`.

use super::*;
use crate::tests::fixtures::{Store, settings, store};
use std::sync::atomic::Ordering::Relaxed;
use terrace_engine::Pooled;
use terrace_engine::{Commit, Durably, Engine, Write, WriteKind};
use terrace_medium::{Dram, Shm};
use terrace_pool::PoolOptions;

/// The error when the running batch is finished.
fn finish_error(store: &Store) -> String {
    store.slots().claims().finish_batch().unwrap_err().to_string()
}

/// Puts "a" and "b", and leaves a batch whose descriptor says that the record of "a" replaces that
/// of "b".
fn left_behind<'g>(store: &Store, guard: &'g Guard<'_, Dram>) -> Descriptor<'g, Dram> {
    let what = WriteKind::Put { value: b"value", expires_at: None };
    let writes = [b"a", b"b"].map(|key| Write { key, what });
    assert_eq!(store.commit(&writes, &[], Durably::Store), Ok(Commit::Done));
    let block = Descriptor::alloc(guard, 1).unwrap();
    let descriptor = Descriptor::init(guard, block, 1);
    descriptor.set_new(0, store.record_offset(b"a"));
    descriptor.set_old(0, Some(store.record_offset(b"b")));
    store.root().set_active(descriptor.offset());
    descriptor
}

#[test]
fn batch_with_damaged_descriptor_is_not_finished() {
    let (store, _) = store();
    assert_eq!(store.slots().claims().finish_batch().unwrap(), None);
    let (guard, medium) = (store.pool().pin(), store.pool().medium());
    let at = left_behind(&store, &guard).offset();
    store.raw(at).store(medium, 0, Relaxed);
    assert!(finish_error(&store).contains("the descriptor of the interrupted batch"));
    store.raw(at).store(medium, u64::from_le_bytes(*b"batch  1"), Relaxed);
    // More entries than there can be, and more than the pool has room for.
    for count in [1 << 27, 1 << 25] {
        store.raw(at + 16).store(medium, count, Relaxed);
        assert!(finish_error(&store).contains("the descriptor of the interrupted batch"));
    }
    store.raw(at + 16).store(medium, 1, Relaxed);
    store.root().set_active(store.pool().size());
    assert!(finish_error(&store).contains("the descriptor of the interrupted batch"));
    store.root().set_active(at);
    let text = {
        store.raw(at).store(medium, u64::from_le_bytes(*b"batch  1"), Relaxed);
        store.raw(at + 8).store(medium, 4, Relaxed);
        finish_error(&store)
    };
    assert!(text.contains("the status of the interrupted batch"), "{text}");
}

#[test]
fn batch_with_damaged_record_is_not_finished() {
    let (store, _) = store();
    let guard = store.pool().pin();
    let descriptor = left_behind(&store, &guard);
    let at = descriptor.offset();
    // The record that would be restored; not needed if the batch is committed.
    store.damage(store.record_offset(b"b") + 24);
    let text = finish_error(&store);
    assert!(
        text.contains("a record of the interrupted batch")
            && text.contains(&format!("{:#x}", store.record_offset(b"b"))),
        "{text}"
    );
    descriptor.set_status(Status::Committed);
    assert_eq!(store.slots().claims().finish_batch().unwrap(), Some(true));
    assert_eq!(store.root().active(), 0);
    // The new record.
    store.root().set_active(at);
    store.damage(store.record_offset(b"a") + 24);
    assert!(finish_error(&store).contains(&format!("{:#x}", store.record_offset(b"a"))));
    assert_eq!(store.root().active(), at, "the batch stays for inspection");
}

#[test]
fn unfinishable_batch_disables_writes() {
    let directory = tempfile::tempdir_in("/dev/shm").unwrap();
    let options = PoolOptions::at(directory.path().join("pool")).size(4 << 20).shared(true);
    let store = crate::tests::fixtures::open::<Shm>(options.create().unwrap(), settings()).unwrap();
    store.put(terrace_engine::Put { key: b"a", value: b"value", expires_at: None }, Durably::Store).unwrap();
    assert_eq!(store.recover_dead(), 0);
    store.put(terrace_engine::Put { key: b"a", value: b"new", expires_at: None }, Durably::Store).unwrap();
    // No descriptor lies there, and no thread works on it.
    store.root().set_active(64);
    assert_eq!(store.recover_dead(), 0);
    let error = store
        .put(terrace_engine::Put { key: b"a", value: b"later", expires_at: None }, Durably::Store)
        .unwrap_err();
    assert!(error.to_string().contains("the batch of a dead process cannot be finished"), "{error}");
    assert_eq!(store.get(b"a").unwrap().unwrap(), b"new");
    // After the first failure, writes are disabled and no batch is finished any more.
    let guard = store.pool().pin();
    let block = Descriptor::alloc(&guard, 0).unwrap();
    let descriptor = Descriptor::init(&guard, block, 0).offset();
    store.root().set_active(descriptor);
    assert_eq!((store.recover_dead(), store.root().active()), (0, descriptor));
    store.root().set_active(0);
    assert_eq!(store.recover_dead(), 0);
}

#[test]
fn idle_thread_that_has_finished_a_batch_holds_no_memory_up() {
    let directory = tempfile::tempdir_in("/dev/shm").unwrap();
    let options = PoolOptions::at(directory.path().join("pool")).size(4 << 20).shared(true);
    let store = crate::tests::fixtures::open::<Shm>(options.create().unwrap(), settings()).unwrap();
    let (done, is_done) = std::sync::mpsc::channel();
    let (end, may_end) = std::sync::mpsc::channel();
    std::thread::scope(|scope| {
        let finisher = &store;
        scope.spawn(move || {
            for value in [b"one", b"two"] {
                let put = terrace_engine::Put { key: b"key", value, expires_at: None };
                finisher.put(put, Durably::Store).unwrap();
            }
            assert!(finisher.pool().waiting_bytes() > 0, "the first record was retired");
            let guard = finisher.pool().pin();
            let block = Descriptor::alloc(&guard, 0).unwrap();
            finisher.root().set_active(Descriptor::init(&guard, block, 0).offset());
            drop(guard);
            finisher.recover_dead();
            done.send(()).unwrap();
            may_end.recv().unwrap();
        });
        is_done.recv().unwrap();
        while store.pool().reclaim_blocking() {}
        let waiting = store.pool().waiting_bytes();
        end.send(()).unwrap();
        assert_eq!(waiting, 0);
    });
}
