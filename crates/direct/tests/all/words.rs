//! Statistics and error texts of a store, and comparison of values.

use std::sync::Arc;
use terrace_direct::{Direct, Key, Settings, index_in};
use terrace_engine::{
    Clock, Durably, Engine, Layers, ManualClock, NoLayers, OpenError, Pooled, Put, ReadError, WriteError,
};
use terrace_index::hash::{Clht, Level, Rewo, Turbo};
use terrace_index::ordered::{Art, SpTree};
use terrace_index::{Bytes, PointIndex, Stored};
use terrace_medium::{Pmem, Shm};
use terrace_pool::{Pool, PoolOptions};

type Index = Clht<Shm, Bytes<Key>>;

fn settings(read_only: bool) -> Settings {
    Settings { read_only, clock: Arc::new(ManualClock::at(7)), ..crate::costs::settings(100) }
}

fn put(store: &impl Engine, key: &[u8], value: &[u8]) {
    store.put(Put { key, value, expires_at: None }, Durably::Store).unwrap();
}

#[test]
fn overhead_and_load_factor_follow_the_records() {
    let store = Direct::open::<Index>(Pool::anonymous(4 << 20).unwrap(), settings(false)).unwrap();
    let empty = store.stats();
    assert_eq!((empty.overhead_per_record(), empty.index.unwrap().load_factor(0)), (0.0, 0.0));
    assert!(store.is_empty());
    (0..100u32).for_each(|n| put(&store, &n.to_le_bytes(), b"value"));
    let stats = store.stats();
    assert_eq!((stats.records, stats.data_bytes, store.is_empty()), (100, 900, false));
    assert_eq!(stats.overhead_per_record(), stats.overhead_bytes as f64 / 100.0);
    let (index, pool) = (stats.index.unwrap(), stats.pool.unwrap());
    assert_eq!(index.load_factor(stats.records), 100.0 / index.slots as f64);
    let space = store.memory();
    let used = stats.overhead_bytes + stats.data_bytes;
    assert!((space.used..pool.size_bytes).contains(&used), "{stats:?}");
    assert_eq!(used + pool.free_bytes, pool.size_bytes, "what is not free is used");
}

#[test]
fn full_pool_error_states_waiting_and_longest() {
    let full =
        |longest, waiting| WriteError::PoolFull { wanted: 100, size: 4096, longest, waiting }.to_string();
    assert_eq!(full(None, 0), "the pool is full: no room for 100 bytes in 4.0 KiB; grow it, or remove keys");
    assert!(full(None, 1).contains("(1 bytes are waiting for readers to finish)"));
    assert!(full(Some(50), 0).contains("in one piece (the longest free range has 50 bytes)"));
}

#[test]
fn refusals_of_a_cluster_name_slot_and_reason() {
    for (refused, text) in [
        (ReadError::NotOwner { slot: 5 }, "another node of the cluster owns slot 5; send the command to it"),
        (
            ReadError::Unavailable("it has no lease".into()),
            "this node of the cluster cannot answer now: it has no lease; try again, or ask another node",
        ),
    ] {
        assert_eq!((refused.to_string(), WriteError::from(refused).to_string()), (text.into(), text.into()));
    }
}

#[test]
fn values_are_compared_by_their_bytes() {
    let store = Direct::open::<Index>(Pool::anonymous(4 << 20).unwrap(), settings(false)).unwrap();
    put(&store, b"a", b"same");
    put(&store, b"b", b"same");
    put(&store, b"c", b"other");
    let get = |key: &[u8]| store.get(key).unwrap().unwrap();
    assert!(get(b"a") == get(b"b") && get(b"a") != get(b"c"));
    assert!(get(b"a") == b"same" && get(b"a") != b"sam" && get(b"c").as_ref() == b"other");
    assert_eq!(store.version(b"a").unwrap().token(), Some(get(b"a").token()));
    assert_eq!(Arc::new(ManualClock::at(7)).now_ms(), store.now_ms());
    assert_eq!(get(b"a").expires_at(), None);
    store.put(Put { key: b"a", value: b"same", expires_at: Some(8) }, Durably::Store).unwrap();
    assert_eq!(get(b"a").expires_at(), Some(8));
}

#[test]
fn pool_names_its_index_and_reader_creates_none() {
    let directory = tempfile::tempdir_in("/dev/shm").unwrap();
    let options = PoolOptions::at(directory.path().join("pool")).size(4 << 20).shared(true);
    let pool = options.create::<Shm>().unwrap();
    assert_eq!(index_in(&pool), None);
    // The pool would accept writes, but the store is opened read-only.
    assert!(matches!(Direct::open::<Index>(options.open().unwrap(), settings(true)), Err(OpenError::Empty)));
    assert_eq!(index_in(&pool), None);
    let store = Direct::open::<Turbo<Shm, Bytes<Key>>>(pool.clone(), settings(false)).unwrap();
    assert_eq!(index_in(&pool).as_deref(), Some("turbo"));
    put(&store, b"key", b"value");
    let reader = Direct::open::<Turbo<Shm, Bytes<Key>>>(options.open().unwrap(), settings(true)).unwrap();
    assert_eq!(reader.get(b"key").unwrap().unwrap(), b"value");
    let refused = reader.put(Put { key: b"key", value: b"new", expires_at: None }, Durably::Store);
    assert_eq!(refused, Err(WriteError::ReadOnly));
    assert!(!reader.maintain() && reader.grow(8 << 20).is_err());
    assert_eq!((reader.sweep_expired(10), reader.recover_dead(), reader.other_processes().len()), (0, 0, 1));
}

/// What serves the index of a new store, if it can have layers in DRAM.
fn layers_of<I>(pool: Pool<Shm>, index_dram: Option<u64>) -> Option<Layers>
where
    I: PointIndex<Medium = Shm, Kind = Bytes<Key>> + Stored<Medium = Shm> + 'static,
{
    let settings = Settings { index_dram, ..settings(false) };
    Direct::open::<I>(pool, settings).unwrap().stats().index.unwrap().layers
}

#[test]
fn index_says_why_it_has_no_layers() {
    type Layered = SpTree<Shm, Bytes<Key>>;
    let alone = || Pool::anonymous(4 << 20).unwrap();
    let directory = tempfile::tempdir_in("/dev/shm").unwrap();
    let shared = || PoolOptions::at(directory.path().join("pool")).size(4 << 20).shared(true);
    let none = |why| Some(Layers::PoolAlone(why));
    assert_eq!(layers_of::<Layered>(alone(), Some(0)), none(NoLayers::NotAsked));
    assert_eq!(layers_of::<Layered>(alone(), None), none(NoLayers::FastMedium));
    for asked in [None, Some(0), Some(64 << 20)] {
        let pool = shared().open_or_create().unwrap();
        assert_eq!(layers_of::<Layered>(pool, asked), none(NoLayers::Shared), "{asked:?}");
        assert_eq!(layers_of::<Index>(alone(), asked), None, "{asked:?}");
    }
}

/// The layers that a new store over SPTree in persistent memory of this size has.
fn budget_in_pmem(bytes: u64, index_dram: Option<u64>) -> u64 {
    let settings = Settings { index_dram, ..settings(false) };
    let pool = Pool::anonymous(bytes).unwrap();
    let store = Direct::open_ordered::<SpTree<Pmem, Bytes<Key>>>(pool, settings).unwrap();
    match store.stats().index.unwrap().layers {
        Some(Layers::InDram(stats)) => stats.budget,
        none => panic!("{none:?} of {index_dram:?}"),
    }
}

#[test]
fn layers_have_an_eighth_of_persistent_memory_unless_set() {
    assert_eq!(budget_in_pmem(32 << 20, None), 4 << 20);
    // At least a mebibyte.
    assert_eq!(budget_in_pmem(4 << 20, None), 1 << 20);
    assert_eq!(budget_in_pmem(4 << 20, Some(64 << 20)), 64 << 20);
}

#[test]
fn put_costs_follow_from_the_index() {
    fn costs<I: PointIndex<Medium = Pmem, Kind = Bytes<Key>> + Stored<Medium = Pmem> + 'static>() {
        let costs =
            Direct::open::<I>(Pool::anonymous(4 << 20).unwrap(), settings(false)).unwrap().stats().costs;
        assert_eq!(costs.fences_per_put, 1 + I::FENCES_PER_INSERT, "{}", I::NAME);
        assert_eq!(costs.write_backs_per_put, I::FENCES_PER_INSERT, "{}", I::NAME);
    }
    costs::<Clht<Pmem, Bytes<Key>>>();
    costs::<Level<Pmem, Bytes<Key>>>();
    costs::<Art<Pmem, Bytes<Key>>>();
    costs::<Rewo<Pmem, Bytes<Key>>>();
    costs::<Turbo<Pmem, Bytes<Key>>>();
}
