//! Which index a store has.

mod common;

use common::{MEDIA, Medium, Site};
use terrace::{ByteSize, Index};

#[test]
fn a_store_keeps_the_index_that_it_was_made_with() {
    for (medium, index) in MEDIA.into_iter().flat_map(|medium| Index::ALL.map(|index| (medium, index))) {
        let site = Site::new(medium, ByteSize::mib(4)).with_index(index);
        let store = site.create();
        for n in 0..5000u32 {
            store.put(&n.to_le_bytes(), b"value").unwrap();
        }
        assert_eq!(store.stats().index, index.name());
        store.close().unwrap();
        if medium == Medium::Dram {
            continue;
        }
        // Whatever is asked for, it is the pool that says.
        for asked in Index::ALL {
            let store = site.options().index(asked).open_or_create().unwrap();
            assert_eq!((store.stats().index, store.len()), (index.name(), 5000));
            assert!((0..5000u32).all(|n| store.get(&n.to_le_bytes()).unwrap().is_some()));
            store.put(b"another", b"value").unwrap();
            store.remove(b"another").unwrap();
            assert!(store.check(&mut |_, _| {}).findings.is_empty());
            store.close().unwrap();
        }
    }
}

#[test]
fn what_is_salvaged_has_the_same_index() {
    let site = Site::new(Medium::Shm, ByteSize::mib(4)).with_index(Index::Turbo);
    let store = site.create();
    store.put(b"key", b"value").unwrap();
    store.close().unwrap();
    let salvaged = site.options().index(Index::Clht).salvage(true).open().unwrap();
    assert_eq!(&*salvaged.get(b"key").unwrap().unwrap(), b"value");
    assert_eq!(salvaged.stats().index, "turbo");
}

#[test]
fn names_are_those_of_the_indexes() {
    assert!(Index::ALL.into_iter().all(|index| Index::named(index.name()) == Some(index)));
    assert_eq!(Index::named("btree"), None);
}
