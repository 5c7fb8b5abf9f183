//! Tests: reads and writes while a bucket is being split.

use crate::wip::PATH;
use crate::wip_moments::tiny;
use std::path::Path;
use terrace_engine::wip::Wip;
use terrace_engine::{Chore, Durability, Durably, Engine, OnDisk, Put, Rest};
use terrace_testkit::simfs::SimFs;

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
