//! Tests: reads and writes while a bucket is being split.

use crate::small::{PATH, tiny};
use std::ops::Bound;
use std::path::Path;
use std::sync::{Arc, Mutex};
use terrace_engine::{Chore, Durability, Durably, Engine, OnDisk, Put, Rest};
use terrace_testkit::simfs::{CallKind, Faulty, SimFs};
use terrace_wip::Wip;

#[test]
fn removed_keys_stay_removed_while_a_bucket_is_split() {
    let settings = tiny(Durability::Process);
    let store = Wip::create(SimFs::new(["/data"]), Path::new(PATH), settings).unwrap();
    let key = |number: u64| (number * 77 % 200).to_be_bytes();
    let put = |number: u64| {
        store.put(Put { key: &key(number), value: &[1; 900], expires_at: None }, Durably::Store).unwrap();
    };
    let mut count = 0;
    while store.stats().disk.unwrap().splits == 0 {
        put(count);
        while store.step(Chore::Flush, &|| false) == Rest::More {}
        // The parent keeps this one in memory, so it is not divided yet.
        put(count + 1);
        let _ = store.step(Chore::Merge, &|| false);
        count += 2;
    }
    assert!(store.stats().disk.unwrap().buckets == 2 && count < 200, "{count} keys");
    let is_there = |number: u64| store.get(&key(number)).unwrap().is_some();
    for number in 0..count {
        assert!(is_there(number), "{number} is there before it is removed");
        assert!(store.remove(&key(number), Durably::Store).unwrap());
        assert!(!is_there(number), "{number} is removed");
        assert!(!store.remove(&key(number), Durably::Store).unwrap(), "once");
    }
    OnDisk::flush(&store).unwrap();
    (0..count).for_each(|number| assert!(!is_there(number), "{number} stays removed"));
    assert_eq!(store.check(&mut |_, _| {}).findings, []);
}

/// Puts what is next to be done in the place of a call of the file system.
type Next = Arc<Mutex<Option<Box<dyn FnOnce() + Send>>>>;

fn has(store: &dyn Engine, key: &[u8], value: &[u8]) -> bool {
    store.get(key).unwrap().is_some_and(|found| *found == *value)
}

/// A merge of a new bucket's last level takes longer than the division of its parent, whose older
/// tables come into the same level.
#[test]
fn merge_that_outlasts_a_division_stays_newer() {
    let (disk, next) = (SimFs::new(["/data"]), Next::default());
    let called = Arc::clone(&next);
    let files = Faulty::watched(disk.clone(), move |call| {
        let is_new_table =
            call.kind == CallKind::Name && call.path.extension().is_some_and(|end| end == "table");
        let next = is_new_table.then(|| called.lock().unwrap().take()).flatten();
        next.into_iter().for_each(|next| next());
    });
    let settings = tiny(Durability::Process);
    let store = Arc::new(Wip::create(files, Path::new(PATH), settings.clone()).unwrap());
    let key = |number: u64| (number * 77 % 200).to_be_bytes();
    let put = |number: u64, value: &[u8]| {
        store.put(Put { key: &key(number), value, expires_at: None }, Durably::Store).unwrap();
    };
    let stats = || store.stats().disk.unwrap();
    let mut count = 0;
    while stats().splits == 0 {
        put(count, &[1; 900]);
        while store.step(Chore::Flush, &|| false) == Rest::More {}
        // The parent keeps this one in memory, so it is not divided yet.
        put(count + 1, &[1; 900]);
        let _ = store.step(Chore::Merge, &|| false);
        count += 2;
    }
    let level = |level: usize| stats().tables[level];
    let (before, turns) = (level(2), 1..);
    let last = turns.into_iter().find(|&turn: &u8| {
        // Such a value fills a MemTable, which is larger than the parent's.
        put(0, &[turn; 5000]);
        assert_eq!(store.step(Chore::Flush, &|| false), Rest::More);
        let is_due = || level(2) - before == 20;
        while !is_due() && store.step(Chore::Merge, &|| false) == Rest::More {}
        is_due()
    });
    let beside = Arc::clone(&store);
    *next.lock().unwrap() = Some(Box::new(move || {
        while beside.step(Chore::Flush, &|| false) == Rest::More {}
        assert_eq!(beside.step(Chore::Merge, &|| false), Rest::More, "the division");
    }));
    assert_eq!(store.step(Chore::Merge, &|| false), Rest::More);
    assert!(next.lock().unwrap().is_none(), "the division came between");
    assert_eq!(stats().splits, 1);
    let newest = [last.expect("enough turns"); 5000];
    assert!(has(&*store, &key(0), &newest));
    drop(store);
    let store = Wip::open(disk, Path::new(PATH), settings).unwrap();
    assert!(has(&store, &key(0), &newest));
}

/// The parent's last MemTable is flushed by the call, which then divides the parent.
#[test]
fn compact_at_a_split_leaves_one_table_a_bucket() {
    let store = Wip::create(SimFs::new(["/data"]), Path::new(PATH), tiny(Durability::Process)).unwrap();
    let stats = || store.stats().disk.unwrap();
    let put = |number: u64| {
        let put = Put { key: &number.to_be_bytes(), value: &[1; 900], expires_at: None };
        store.put(put, Durably::Store).unwrap();
    };
    let mut count = 0;
    while stats().splits == 0 {
        put(count);
        while store.step(Chore::Flush, &|| false) == Rest::More {}
        put(count + 1);
        let _ = store.step(Chore::Merge, &|| false);
        count += 2;
    }
    store.compact(Bound::Unbounded, Bound::Unbounded).unwrap();
    let tables = stats().tables;
    assert_eq!((tables[0] + tables[1], tables[2]), (0, stats().buckets));
}
