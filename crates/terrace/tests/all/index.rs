//! Tests: the choice of a store's index.

use crate::common::{MEDIA, Medium, Site, assert_sound, directory, shared};
use terrace::{ByteSize, Index, Layers, NoLayers, Options};

#[test]
fn store_keeps_its_index() {
    for (medium, index) in MEDIA.into_iter().flat_map(|medium| Index::ALL.map(|index| (medium, index))) {
        let site = Site::new(medium, ByteSize::mib(4)).with_index(index);
        let store = site.create();
        for n in 0..5000u32 {
            store.put(n.to_le_bytes(), b"value").unwrap();
        }
        assert_eq!(store.stats().index.unwrap().name, index.name());
        store.close().unwrap();
        if medium == Medium::Dram {
            continue;
        }
        // The pool decides, whatever index the options name.
        for asked in Index::ALL {
            let store = site.options().index(asked).open_or_create().unwrap();
            assert_eq!((store.stats().index.unwrap().name, store.len()), (index.name(), 5000));
            assert!((0..5000u32).all(|n| store.get(n.to_le_bytes()).unwrap().is_some()));
            store.put(b"another", b"value").unwrap();
            store.remove(b"another").unwrap();
            assert!(store.check(&mut |_, _| {}).findings.is_empty());
            store.close().unwrap();
        }
    }
}

#[test]
fn salvage_keeps_the_index() {
    let site = Site::new(Medium::Shm, ByteSize::mib(4)).with_index(Index::Turbo);
    let store = site.create();
    store.put(b"key", b"value").unwrap();
    store.close().unwrap();
    let salvaged = site.options().index(Index::Clht).salvage(true).open().unwrap();
    assert_eq!(&*salvaged.get(b"key").unwrap().unwrap(), b"value");
    assert_eq!(salvaged.stats().index.unwrap().name, "turbo");
}

#[test]
fn index_names_round_trip() {
    assert!(Index::ALL.into_iter().all(|index| Index::named(index.name()) == Some(index)));
    assert_eq!(Index::named("ordered"), Some(Index::ORDERED));
    assert!(Index::ORDERED.is_ordered());
    assert_eq!(Index::named("btree"), None);
}

#[test]
fn store_over_sptree_has_layers_if_it_has_the_pool_alone() {
    const KEYS: u32 = 5000;
    let size = ByteSize::mib(64);
    for medium in [Medium::Shm, Medium::Pmem] {
        let directory = directory();
        let options = shared(&directory.path().join("pool"), medium).index(Index::SpTree).index_dram(size);
        let life = |open: fn(&Options) -> Result<terrace::Store, terrace::OpenError>,
                    is_shared: bool,
                    value: &[u8]| {
            let store = open(&options.clone().shared(is_shared)).unwrap();
            (0..KEYS).for_each(|n| store.put(n.to_le_bytes(), value).unwrap());
            let value_of = |n: u32| store.get(n.to_le_bytes()).unwrap();
            assert!((0..KEYS).all(|n| value_of(n).is_some_and(|found| *found == *value)));
            assert!((KEYS..2 * KEYS).all(|n| value_of(n).is_none()));
            let stats = store.stats();
            assert_eq!((stats.index.unwrap().name, stats.records), ("sptree", KEYS.into()));
            assert_sound(&store);
            store.close().unwrap();
            stats.index.unwrap().layers.expect("this index can have layers")
        };
        let shared = Layers::PoolAlone(NoLayers::Shared);
        assert_eq!(life(Options::create, true, b"shared"), shared);
        let Layers::InDram(layers) = life(Options::open, false, b"alone") else {
            panic!("one who has the pool alone has layers");
        };
        let [nodes, known] = layers.nodes;
        assert!(layers.budget == size.as_bytes() && layers.bytes <= layers.budget, "{layers:?}");
        assert!((1..=nodes).contains(&known), "{layers:?}");
        assert_eq!(life(Options::open, true, b"shared again"), shared);
    }
}

#[test]
fn shared_store_has_no_index_cache() {
    const KEYS: u32 = 5000;
    let (least, most) = (ByteSize::bytes(16 << 10), ByteSize::mib(1));
    for medium in [Medium::Shm, Medium::Pmem] {
        let directory = directory();
        let options = shared(&directory.path().join("pool"), medium);
        let options = options.index(Index::Rewo).index_cache(least, most);
        let life = |open: fn(&Options) -> Result<terrace::Store, terrace::OpenError>,
                    is_shared: bool,
                    value: &[u8]| {
            let store = open(&options.clone().shared(is_shared)).unwrap();
            (0..KEYS).for_each(|n| store.put(n.to_le_bytes(), value).unwrap());
            // Each key twice in a row: the cache has no room for all.
            let is_there = |n: u32| store.get(n.to_le_bytes()).unwrap().is_some_and(|found| *found == *value);
            assert!((0..KEYS).all(|n| is_there(n) && is_there(n)));
            let stats = store.stats();
            assert_eq!((stats.index.unwrap().name, stats.records), ("rewo", KEYS.into()));
            assert_sound(&store);
            store.close().unwrap();
            stats.index.unwrap().cache
        };
        assert_eq!(life(Options::create, true, b"shared"), None);
        let cache = life(Options::open, false, b"alone").expect("one who has the pool alone has a cache");
        assert!((least.as_bytes()..=most.as_bytes()).contains(&cache.bytes) && cache.hits > 0, "{cache:?}");
        assert_eq!(life(Options::open, true, b"shared again"), None);
    }
}
