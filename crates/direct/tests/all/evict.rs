//! Tests: a store that serves as a cache makes room for every write, with each index and policy.

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use terrace_direct::{Direct, Kind, Settings};
use terrace_engine::{
    Change, Commit, Count, Durably, Engine, Entry, Evicting, Eviction, First, ManualClock, Policy, Pooled,
    Put, Write, WriteError, WriteKind,
};
use terrace_index::hash::{Clht, Level, Rewo, Turbo};
use terrace_index::ordered::{Art, BwTree, Hot, Masstree, SpTree};
use terrace_index::{PointIndex, Stored};
use terrace_medium::{Dram, MappedMedium, Pmem, Shm};
use terrace_pool::{Pool, PoolOptions};
use terrace_testkit::TappedPmem;

const ALL: [First; 4] = [First::LeastRecent, First::LeastFrequent, First::Random, First::NextToExpire];

fn settings(clock: Arc<ManualClock>, expected_keys: u64) -> Settings {
    Settings { clock, ..crate::costs::settings(expected_keys) }
}

fn open<I, M: MappedMedium>(bytes: u64) -> (Direct<M>, Arc<ManualClock>)
where
    I: PointIndex<Medium = M, Kind = Kind> + Stored<Medium = M> + 'static,
{
    let clock = Arc::new(ManualClock::at(1 << 40));
    let settings = settings(clock.clone(), 1000);
    let options = PoolOptions::anonymous().size(bytes).hash_seed(7).assume_persistent(M::VOLATILE_CACHE);
    (Direct::open::<I>(options.create::<M>().unwrap(), settings).unwrap(), clock)
}

fn evicting(store: &dyn Engine, first: First, only_volatile: bool, limit_bytes: u64) {
    let policy = Some(Policy { only_volatile, first });
    let eviction = Eviction { policy, limit_bytes, ..Eviction::default() };
    store.evicting().unwrap().set_eviction(&eviction).unwrap();
}

fn put(store: &dyn Engine, n: u32, len: usize, expires_at: Option<u64>) -> Result<(), WriteError> {
    store.put(Put { key: &n.to_le_bytes(), value: &vec![n as u8; len], expires_at }, Durably::Store)
}

fn has(store: &dyn Engine, n: u32) -> bool {
    let value = store.get(&n.to_le_bytes()).unwrap();
    assert!(value.as_ref().is_none_or(|value| value.iter().all(|byte| *byte == n as u8)), "{n}");
    value.is_some()
}

fn assert_sound(store: &dyn Engine, what: &str) {
    let report = store.check(&mut |_, _| {});
    assert!(report.is_sound(), "{what}: {:#?}", report.findings);
    let memory = store.pooled().unwrap().memory();
    assert_eq!((memory.garbage, memory.used, memory.overlapping), (0, memory.reachable, 0), "{what}");
}

/// Fills a pool several times with values of all sizes, singly, in groups and in batches.
fn full_pool_takes_every_write<I, M: MappedMedium>()
where
    I: PointIndex<Medium = M, Kind = Kind> + Stored<Medium = M> + 'static,
{
    for first in ALL {
        let (store, clock) = open::<I, M>(2 << 20);
        evicting(&store, first, false, 0);
        let mut last = 0;
        for (round, len) in [40, 900, 3000, 9000, 200_000, 100].into_iter().enumerate() {
            let what = format!("{} {first:?} {len}", store.stats().index.unwrap().name);
            let all_fit = Cell::new(true);
            // Chained buckets of CLHT are not moved. Between them there may be no range of 200 kB,
            // even if nothing is left to evict.
            let fits = |done: Result<(), WriteError>| match done {
                Ok(()) => {}
                Err(WriteError::PoolFull { longest: Some(longest), .. }) if longest < len as u64 => {
                    assert!(len == 200_000 && store.len() == Count::Exact(0), "{what}: {longest}");
                    all_fit.set(false);
                }
                Err(error) => panic!("{what}: {error}: {:?}", (store.evicted(), store.used_bytes())),
            };
            for n in 0..(6 << 20) / (len as u32 + 100) {
                last = (round as u32) << 24 | n;
                clock.advance(10);
                let (key, value) = (last.to_le_bytes(), vec![last as u8; len]);
                let expires_at = (n % 3 == 0).then_some(1 << 50);
                match n % 4 {
                    0 => {
                        let group = [Put { key: &key, value: &value, expires_at }; 3];
                        let done = store.put_many(&group, Durably::Store);
                        done.into_iter().for_each(fits);
                    }
                    1 => {
                        let what_ = WriteKind::Put { value: &value, expires_at };
                        let writes = [Write { key: &key, what: what_ }, Write { key: b"other", what: what_ }];
                        fits(store.commit(&writes, &[], Durably::Store).map(drop));
                    }
                    2 => {
                        let mut change =
                            |_: Option<Entry<'_>>| Change::Put { value: value.clone(), expires_at };
                        fits(store.modify(&key, &mut change, Durably::Store));
                    }
                    _ => fits(put(&store, last, len, expires_at)),
                }
            }
            assert!(has(&store, last) || first != First::LeastRecent || !all_fit.get(), "{what}");
            assert_sound(&store, &what);
        }
        assert!(store.evicted() > 1000);
    }
}

#[test]
fn full_pool_takes_every_write_with_clht() {
    full_pool_takes_every_write::<Clht<Dram, Kind>, Dram>();
}

#[test]
fn full_pool_takes_every_write_with_clht_in_pmem() {
    full_pool_takes_every_write::<Clht<Pmem, Kind>, Pmem>();
}

#[test]
fn full_pool_takes_every_write_with_turbo() {
    full_pool_takes_every_write::<Turbo<Dram, Kind>, Dram>();
}

#[test]
fn full_pool_takes_every_write_with_level() {
    full_pool_takes_every_write::<Level<Dram, Kind>, Dram>();
}

#[test]
fn full_pool_takes_every_write_with_rewo() {
    full_pool_takes_every_write::<Rewo<Dram, Kind>, Dram>();
}

#[test]
fn full_pool_takes_every_write_with_art() {
    full_pool_takes_every_write::<Art<Dram, Kind>, Dram>();
}

#[test]
fn full_pool_takes_every_write_with_hot() {
    full_pool_takes_every_write::<Hot<Dram, Kind>, Dram>();
}

#[test]
fn full_pool_takes_every_write_with_masstree() {
    full_pool_takes_every_write::<Masstree<Dram, Kind>, Dram>();
}

#[test]
fn full_pool_takes_every_write_with_bwtree() {
    full_pool_takes_every_write::<BwTree<Dram, Kind>, Dram>();
}

#[test]
fn full_pool_takes_every_write_with_sptree() {
    full_pool_takes_every_write::<SpTree<Dram, Kind>, Dram>();
}

type Store = Direct<Dram>;

fn small(first: First, only_volatile: bool, limit_bytes: u64) -> (Store, Arc<ManualClock>) {
    let (store, clock) = open::<Clht<Dram, Kind>, Dram>(8 << 20);
    evicting(&store, first, only_volatile, limit_bytes);
    (store, clock)
}

#[test]
fn used_keys_stay_and_others_go() {
    for first in [First::LeastRecent, First::LeastFrequent] {
        let (store, clock) = small(first, false, 0);
        (0..1000).for_each(|n| put(&store, n, 100, None).unwrap());
        // Values in extents and records of a batch have a use, too.
        put(&store, 1001, 9000, None).unwrap();
        let value = [1002_u32 as u8; 50];
        let what = WriteKind::Put { value: &value, expires_at: None };
        let keys = [1002_u32, 1003].map(u32::to_le_bytes);
        store.commit(&keys.each_ref().map(|key| Write { key, what }), &[], Durably::Store).unwrap();
        for n in 2000..150_000 {
            clock.advance(20);
            put(&store, n, 100, None).unwrap();
            let used = n % 100;
            assert!(has(&store, used), "{first:?}: {used} after {n}");
            [1001, 1002].iter().for_each(|used| assert!(has(&store, *used), "{first:?}: {used}"));
        }
        // A key that no sample has met stays.
        let left = (500..1000).filter(|n| has(&store, *n)).count();
        assert!(left < 10, "{first:?}: {left}");
        assert_sound(&store, "at the end");
    }
}

#[test]
fn volatile_policies_spare_other_keys() {
    for first in ALL {
        let (store, _) = small(first, true, 0);
        (0..5000).for_each(|n| put(&store, n, 100, None).unwrap());
        (0..100_000).for_each(|n| put(&store, 1 << 20 | n, 100, Some((1 << 50) + u64::from(n))).unwrap());
        assert!((0..5000).all(|n| has(&store, n)), "{first:?}");
        assert!(store.evicted() > 50_000);
        // Once no key with an expiry is left, nothing can be evicted.
        let full = (1 << 21..).find_map(|n| put(&store, n, 100, None).err());
        assert!(matches!(full, Some(WriteError::PoolFull { .. })), "{full:?}");
        assert!(!(0..100_000).any(|n| has(&store, 1 << 20 | n)));
    }
}

#[test]
fn next_to_expire_goes_first() {
    let (store, _) = small(First::NextToExpire, true, 0);
    let later = |n: u32| Some((1 << 50) + u64::from(n));
    (0..200_000).for_each(|n| put(&store, n, 100, later(n)).unwrap());
    let left: Vec<u32> = (0..200_000).filter(|n| has(&store, *n)).collect();
    let early = left.iter().filter(|n| **n < 140_000).count();
    assert!(left.len() > 10_000 && early < left.len() / 20, "{early} of {}", left.len());
}

#[test]
fn expired_keys_go_before_all_others() {
    for first in [First::LeastRecent, First::LeastFrequent, First::NextToExpire] {
        let (store, clock) = small(first, false, 0);
        let soon = Some((1 << 40) + 1000);
        (0..30_000).for_each(|n| put(&store, n, 100, soon.filter(|_| n % 2 == 0)).unwrap());
        assert_eq!(store.evicted(), 0);
        clock.advance(60_000);
        // Until some thousands are evicted.
        (30_000..150_000)
            .take_while(|n| put(&store, *n, 100, None).is_ok() && store.evicted() < 3000)
            .count();
        let lost = (0..30_000).filter(|n| n % 2 == 1 && !has(&store, *n)).count();
        assert!(store.evicted() >= 3000 && lost < 100, "{first:?}: {lost}");
    }
}

/// Five keys alone are all of the newer half once in 32 times.
#[test]
fn candidates_of_earlier_evictions_count() {
    let (store, clock) = small(First::LeastRecent, false, 0);
    for n in 0..200_000 {
        clock.advance(300);
        put(&store, n, 100, None).unwrap();
        if store.evicted() >= 3000 {
            let newer = (n / 2..n).filter(|n| !has(&store, *n)).count();
            return assert!(newer < 20, "{newer}");
        }
    }
    panic!("nothing was evicted");
}

/// The candidates of earlier evictions are the oldest keys. All are read, those last.
#[test]
fn candidate_that_was_used_since_stays() {
    let (store, clock) = small(First::LeastRecent, false, 0);
    for n in 0..2000 {
        clock.advance(10_000);
        put(&store, n, 9000, None).unwrap();
    }
    let all: Vec<u32> = (0..2000).rev().filter(|n| has(&store, *n)).collect();
    for n in &all {
        clock.advance(300);
        assert!(has(&store, *n));
    }
    let before = store.evicted();
    (2000..2010).for_each(|n| put(&store, n, 9000, None).unwrap());
    let (early, late) = all.split_at(all.len() / 2);
    assert!(store.evicted() > before && early.iter().any(|n| !has(&store, *n)));
    assert!(late.iter().all(|n| has(&store, *n)));
}

#[test]
fn limit_holds_below_the_pool() {
    const LIMIT: u64 = 3 << 20;
    let (store, _) = small(First::LeastRecent, false, LIMIT);
    for n in 0..100_000 {
        put(&store, n, 100, None).unwrap();
        assert!(n % 100 != 0 || store.used_bytes() < LIMIT + LIMIT / 16, "{n}: {}", store.used_bytes());
    }
    assert!(store.used_bytes() > LIMIT * 9 / 10);
    // A lower one is reached within some writes, and a higher one is used.
    evicting(&store, First::LeastRecent, false, LIMIT / 2);
    (0..1000).for_each(|n| put(&store, n, 100, None).unwrap());
    assert!(store.used_bytes() < LIMIT * 9 / 16);
    evicting(&store, First::LeastRecent, false, 2 * LIMIT);
    (0..100_000).for_each(|n| put(&store, n, 100, None).unwrap());
    assert!(store.used_bytes() > LIMIT * 18 / 10);
    assert_sound(&store, "at the end");
}

/// What a batch takes, no one of its records tells.
#[test]
fn batches_stay_below_the_limit() {
    const LIMIT: u64 = 3 << 20;
    let (store, _) = small(First::LeastRecent, false, LIMIT);
    let value = [7; 700];
    let what = WriteKind::Put { value: &value, expires_at: None };
    let commit = |batch: u32, records: u32| {
        let keys: Vec<[u8; 4]> = (0..records).map(|n| (batch * records + n).to_le_bytes()).collect();
        let writes: Vec<Write<'_>> = keys.iter().map(|key| Write { key, what }).collect();
        store.commit(&writes, &[], Durably::Store)
    };
    for batch in 0..1000 {
        assert_eq!(commit(batch, 10 + batch % 50), Ok(Commit::Done));
        assert!(store.used_bytes() < LIMIT + LIMIT / 16, "{batch}: {}", store.used_bytes());
    }
    assert!(store.used_bytes() > LIMIT * 3 / 4);
    // One that is larger than the limit.
    assert_eq!(commit(0, 6000), Err(WriteError::MemoryLimit { limit: LIMIT }));
    store.set_eviction(&Eviction { limit_bytes: LIMIT, ..Eviction::default() }).unwrap();
    let refused = (1000..).find_map(|batch| commit(batch, 10).err());
    assert_eq!(refused, Some(WriteError::MemoryLimit { limit: LIMIT }));
    assert_sound(&store, "at the end");
}

#[test]
fn limit_without_a_policy_refuses_puts_only() {
    let (store, _) = small(First::Random, false, 0);
    let limited = |limit_bytes| Eviction { limit_bytes, ..Eviction::default() };
    store.set_eviction(&limited(3 << 20)).unwrap();
    let full = (0..).find(|&n| put(&store, n, 100, None).is_err()).unwrap();
    assert_eq!(put(&store, full, 100, None), Err(WriteError::MemoryLimit { limit: 3 << 20 }));
    assert!(has(&store, 0) && store.evicted() == 0);
    store.unlimited(&mut || assert_eq!(put(&store, 0, 100, Some(1 << 50)), Ok(())));
    let panics = || store.unlimited(&mut || panic!("a test of what is left behind"));
    catch_unwind(AssertUnwindSafe(panics)).unwrap_err();
    assert!(put(&store, full, 100, None).is_err());
    let keys: Vec<[u8; 4]> = (0..full / 2).map(u32::to_le_bytes).collect();
    let keys: Vec<&[u8]> = keys.iter().map(|key| &key[..]).collect();
    assert_eq!(store.remove_all(&keys, Durably::Store), Ok(u64::from(full / 2)));
    (0..100).for_each(|n| put(&store, n, 100, None).unwrap());
    store.set_eviction(&limited(0)).unwrap();
    (0..full + 1000).for_each(|n| put(&store, n, 100, None).unwrap());
}

#[test]
fn spared_key_is_never_evicted() {
    for first in ALL {
        let (store, _) = open::<Clht<Dram, Kind>, Dram>(1 << 20);
        store.put(Put { key: b"spared", value: b"", expires_at: None }, Durably::Store).unwrap();
        let policy = Some(Policy { only_volatile: false, first });
        let eviction = Eviction { policy, spared: Some(b"spared"), ..Eviction::default() };
        store.set_eviction(&eviction).unwrap();
        (0..20_000).for_each(|n| put(&store, n, 100, None).unwrap());
        assert!(store.get(b"spared").unwrap().is_some(), "{first:?}");
    }
}

#[test]
fn use_of_a_key_follows_reads() {
    let (store, clock) = small(First::LeastRecent, false, 0);
    let key = 7_u32.to_le_bytes();
    let idle = || store.key_use(&key).unwrap().unwrap().idle_ms.unwrap();
    put(&store, 7, 100, None).unwrap();
    assert!(idle() < 256);
    clock.advance(5000);
    assert!((4700..=5000).contains(&idle()));
    store.unrecorded(&mut || assert!(has(&store, 7)));
    assert!(idle() > 4700);
    let version = store.version(&key).unwrap();
    assert!(has(&store, 7) && idle() < 256);
    // Recording a use changes no version, and a record that was moved keeps its use.
    assert!(store.version(&key).unwrap().meets(&version));
    clock.advance(9000);
    store.move_all();
    assert!(idle() > 8500 && store.version(&key).unwrap().meets(&version));
    assert_eq!(store.key_use(b"absent").unwrap(), None);

    evicting(&store, First::LeastFrequent, false, 0);
    let frequency = |n: u32| store.key_use(&n.to_le_bytes()).unwrap().unwrap().frequency.unwrap();
    put(&store, 8, 100, None).unwrap();
    assert_eq!((frequency(8), store.key_use(&key).unwrap().unwrap().idle_ms), (5, None));
    (0..2000).for_each(|_| assert!(has(&store, 8)));
    let used = frequency(8);
    assert!((12..40).contains(&used), "{used}");
    // A new value keeps it, and time takes from it.
    put(&store, 8, 100, None).unwrap();
    assert!((used..=used + 1).contains(&frequency(8)));
    clock.advance(5 * 60_000);
    assert!((used - 5..=used - 4).contains(&frequency(8)));
    assert_sound(&store, "at the end");
}

#[test]
fn records_from_before_a_policy_count_as_used_then() {
    let (store, clock) = open::<Clht<Dram, Kind>, Dram>(8 << 20);
    put(&store, 7, 100, None).unwrap();
    assert_eq!(store.key_use(&7_u32.to_le_bytes()).unwrap().unwrap().idle_ms, None);
    clock.advance(10_000);
    evicting(&store, First::LeastRecent, false, 0);
    clock.advance(3000);
    let idle = store.key_use(&7_u32.to_le_bytes()).unwrap().unwrap().idle_ms.unwrap();
    assert!((2700..=3256).contains(&idle), "{idle}");
    assert!(has(&store, 7));
}

/// Keys and values of all places of a use, written before the policy.
fn before_a_policy(store: &dyn Engine) -> Vec<Vec<u8>> {
    let keys = [b"short".to_vec(), vec![7; 2000], b"long value".to_vec(), b"batch".to_vec(), vec![8; 2000]];
    let values = [100, 100, 9000, 100, 9000].map(|len| vec![7; len]);
    for (key, value) in keys[..3].iter().zip(&values) {
        store.put(Put { key, value, expires_at: Some(1 << 50) }, Durably::Store).unwrap();
    }
    let writes: Vec<Write<'_>> = (3..5)
        .map(|nth| Write { key: &keys[nth], what: WriteKind::Put { value: &values[nth], expires_at: None } })
        .collect();
    store.commit(&writes, &[], Durably::Store).unwrap();
    keys.to_vec()
}

#[test]
fn read_gives_a_use_to_a_record_from_before_a_policy() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("pool");
    let clock = Arc::new(ManualClock::at(1 << 40));
    let open = || {
        let pool = PoolOptions::at(&path).size(8 << 20).open_or_create::<Shm>().unwrap();
        Direct::open::<Clht<Shm, Kind>>(pool, settings(clock.clone(), 1000)).unwrap()
    };
    let store = open();
    let keys = before_a_policy(&store);
    let versions: Vec<_> = keys.iter().map(|key| store.version(key).unwrap()).collect();
    evicting(&store, First::LeastRecent, false, 0);
    clock.advance(60_000);
    let idle = |store: &Direct<Shm>, key: &[u8]| store.key_use(key).unwrap().unwrap().idle_ms.unwrap();
    let values: Vec<Vec<u8>> = keys.iter().map(|key| store.get(key).unwrap().unwrap().to_vec()).collect();
    for (key, version) in keys.iter().zip(&versions) {
        assert!(idle(&store, key) < 256 && store.version(key).unwrap().meets(version), "{key:?}");
    }
    assert_sound(&store, "after a read");
    clock.advance(60_000);
    // A batch of reads, a move, another process.
    let names: Vec<&[u8]> = keys.iter().map(|key| &key[..]).collect();
    store.get_many(&names, &mut |_, entry| assert!(entry.unwrap().is_some()));
    store.move_all();
    assert_sound(&store, "after a move");
    drop(store);
    let store = open();
    evicting(&store, First::LeastRecent, false, 0);
    for (key, value) in keys.iter().zip(&values) {
        assert!(idle(&store, key) < 256, "{key:?}");
        assert_eq!(&*store.get(key).unwrap().unwrap(), value);
        assert!(store.remove(key, Durably::Store).unwrap());
    }
    assert_sound(&store, "at the end");
}

#[test]
fn keys_from_before_a_policy_stay_while_they_are_read() {
    for first in [First::LeastRecent, First::LeastFrequent] {
        let (store, clock) = open::<Clht<Dram, Kind>, Dram>(8 << 20);
        (0..200).for_each(|n| put(&store, n, 100, None).unwrap());
        evicting(&store, first, false, 0);
        for round in 1..40 {
            (0..3000).for_each(|n| put(&store, round * 10_000 + n, 100, None).unwrap());
            clock.advance(1000);
            let left = (0..200).filter(|&n| has(&store, n)).count();
            assert_eq!(left, 200, "{first:?} after {round} rounds, {} evicted", store.evicted());
        }
        assert!(store.evicted() > 10_000);
        assert_sound(&store, "at the end");
    }
}

/// No other thread removes anything.
#[test]
fn write_at_the_limit_removes_what_has_expired() {
    let none = Eviction { limit_bytes: 3 << 20, ..Eviction::default() };
    let volatile = Policy { only_volatile: true, first: First::NextToExpire };
    let policies = [none.clone(), Eviction { policy: Some(volatile), ..none }];
    for (nth, eviction) in policies.iter().enumerate() {
        let (store, clock) = small(First::Random, false, 0);
        let late = Some((1 << 40) + 1000);
        store.set_eviction(&policies[0]).unwrap();
        let full = (0..).find(|&n| put(&store, n, 100, late).is_err()).unwrap();
        store.set_eviction(eviction).unwrap();
        clock.advance(1000);
        (full..2 * full - 100).for_each(|n| put(&store, n, 100, None).unwrap());
        let refused = (2 * full..).find_map(|n| put(&store, n, 100, None).err());
        assert_eq!(refused, Some(WriteError::MemoryLimit { limit: 3 << 20 }), "{nth}");
        assert!((full..2 * full - 100).all(|n| has(&store, n)));
        assert!(store.used_bytes() <= (3 << 20) + (3 << 20) / 16);
        assert_sound(&store, "at the end");
    }
}

/// A get under a policy touches no line more, and writes nothing back. It stores into a line that
/// it has loaded, if the use has changed.
#[test]
fn recorded_get_touches_no_line_more() {
    let gets = |first: Option<First>| {
        let pool: Pool<TappedPmem> =
            PoolOptions::anonymous().size(16 << 20).hash_seed(5).assume_persistent(true).create().unwrap();
        let clock = Arc::new(ManualClock::at(1 << 40));
        let store = Direct::open::<Clht<_, Kind>>(pool.clone(), settings(clock.clone(), 20_000)).unwrap();
        if let Some(first) = first {
            evicting(&store, first, false, 0);
        }
        let keys: Vec<[u8; 16]> = (0..2000_u128).map(u128::to_le_bytes).collect();
        keys.iter().for_each(|key| {
            store.put(Put { key, value: &[7; 64], expires_at: None }, Durably::Store).unwrap();
        });
        let read = || keys.iter().for_each(|key| assert!(store.get(key).unwrap().is_some()));
        let (touched, ()) = pool.medium().touched(read);
        clock.advance(60_000);
        let (changed, ()) = pool.medium().during(read);
        let (unchanged, ()) = pool.medium().during(read);
        let lines = touched.lines();
        (lines, [changed, unchanged].map(|counts| (counts.write_backs, counts.fences, counts.stores)))
    };
    let (lines, [plain, _]) = gets(None);
    let (recorded_lines, [changed, unchanged]) = gets(Some(First::LeastRecent));
    assert_eq!(recorded_lines, lines);
    assert_eq!(changed, (0, 0, plain.2 + 2000));
    assert_eq!(unchanged, plain);
    let (frequent_lines, [changed, _]) = gets(Some(First::LeastFrequent));
    assert_eq!((frequent_lines, changed.0, changed.1), (lines, 0, 0));
}

/// A record with a use is damage to a program of format 3, so such a program must refuse the pool.
#[test]
fn policy_by_use_raises_the_format_of_a_pool() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("pool");
    let format = || u32::from_le_bytes(std::fs::read(&path).unwrap()[8..12].try_into().unwrap());
    let open = || {
        let pool = PoolOptions::at(&path).size(8 << 20).open_or_create::<Shm>().unwrap();
        let clock = Arc::new(ManualClock::at(1 << 40));
        Direct::open::<Clht<Shm, Kind>>(pool, settings(clock, 1000)).unwrap()
    };
    let store = open();
    evicting(&store, First::Random, false, 0);
    put(&store, 7, 100, None).unwrap();
    assert_eq!(format(), 3);
    evicting(&store, First::LeastRecent, false, 0);
    put(&store, 8, 100, None).unwrap();
    assert_eq!(format(), 5);
    // It stays so: the records are there.
    drop(store);
    let store = open();
    assert!(has(&store, 7) && has(&store, 8) && format() == 5);
    evicting(&store, First::LeastFrequent, false, 0);
    assert_eq!(format(), 5);
    assert_sound(&store, "at the end");
}
