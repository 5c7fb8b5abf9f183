//! Tests: a full pool makes room for every size, whatever sizes filled it, with each index.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use terrace_direct::{Direct, Kind, Settings};
use terrace_engine::{Commit, Durably, Engine, ManualClock, Pooled, Put, Write, WriteError, WriteKind};
use terrace_index::hash::{Clht, Level, Rewo, Turbo};
use terrace_index::ordered::{Art, BwTree, Hot, Masstree, SpTree};
use terrace_index::{PointIndex, Stored};
use terrace_medium::{Dram, MappedMedium, Pmem, Shm};
use terrace_pool::{Pool, PoolOptions};

fn open<I, M: MappedMedium>(bytes: u64) -> (Direct<M>, Arc<ManualClock>)
where
    I: PointIndex<Medium = M, Kind = Kind> + Stored<Medium = M> + 'static,
{
    let clock = Arc::new(ManualClock::at(1000));
    let settings = Settings { clock: clock.clone(), ..crate::costs::settings(100) };
    let options = PoolOptions::anonymous().size(bytes).hash_seed(7).assume_persistent(M::VOLATILE_CACHE);
    (Direct::open::<I>(options.create::<M>().unwrap(), settings).unwrap(), clock)
}

fn put(store: &dyn Engine, n: u32, len: usize, expires_at: Option<u64>) -> Result<(), WriteError> {
    store.put(Put { key: &n.to_le_bytes(), value: &vec![n as u8; len], expires_at }, Durably::Store)
}

/// Puts values of `len` bytes until the pool is full. Returns the number of the first key that
/// failed.
fn fill(store: &dyn Engine, from: u32, len: usize, expires_at: Option<u64>) -> u32 {
    (from..).find(|&n| matches!(put(store, n, len, expires_at), Err(WriteError::PoolFull { .. }))).unwrap()
}

/// Removes all but one in five, at random.
fn thin(store: &dyn Engine, keys: std::ops::Range<u32>) -> Vec<u32> {
    let is_kept = |n: &u32| n.wrapping_mul(0x9e37_79b9) >> 16 & 0xff < 51;
    let (kept, gone): (Vec<u32>, Vec<u32>) = keys.partition(is_kept);
    gone.iter().for_each(|n| assert!(store.remove(&n.to_le_bytes(), Durably::Store).unwrap()));
    kept
}

fn assert_sound(store: &dyn Engine, what: &str) {
    let report = store.check(&mut |_, _| {});
    assert!(report.is_sound(), "{what}: {:#?}", report.findings);
    let memory = store.pooled().unwrap().memory();
    assert_eq!((memory.garbage, memory.used, memory.overlapping), (0, memory.reachable, 0), "{what}");
}

fn assert_values(store: &dyn Engine, keys: &[u32], len: usize, what: &str) {
    for n in keys {
        let value = store.get(&n.to_le_bytes()).unwrap();
        assert!(value.is_some_and(|value| *value == *vec![*n as u8; len]), "{what}: {n}");
    }
}

trait Tested: PointIndex<Kind = Kind> + Stored<Medium = <Self as PointIndex>::Medium> + 'static {}
impl<I: PointIndex<Kind = Kind> + Stored<Medium = <I as PointIndex>::Medium> + 'static> Tested for I {}

fn serves_other_sizes<I: Tested>(bytes: u64, first: usize, others: &[usize]) {
    let (store, _) = open::<I, <I as PointIndex>::Medium>(bytes);
    let count = fill(&store, 0, first, None);
    assert!(u64::from(count) * first as u64 > bytes / 2, "{}: {count}", I::NAME);
    let kept = thin(&store, 0..count);
    let mut next = count;
    for &len in others {
        // A tenth of the pool.
        let wanted = (bytes as usize / 10 / (len + 60)).max(1) as u32;
        for n in next..next + wanted {
            let what = format!("{}: value {} of {wanted} of {len} bytes after {first}", I::NAME, n - next);
            put(&store, n, len, None).unwrap_or_else(|error| panic!("{what}: {error}"));
        }
        let keys: Vec<u32> = (next..next + wanted).collect();
        assert_values(&store, &keys, len, I::NAME);
        next += wanted;
    }
    assert_values(&store, &kept, first, I::NAME);
    assert_sound(&store, I::NAME);
}

#[test]
fn pool_full_of_one_size_serves_others_in_each_index() {
    const OTHERS: [usize; 5] = [3000, 10, 100_000, 100, 1100];
    serves_other_sizes::<Clht<Dram, Kind>>(16 << 20, 1000, &OTHERS);
    serves_other_sizes::<Level<Dram, Kind>>(16 << 20, 1000, &OTHERS);
    serves_other_sizes::<Art<Dram, Kind>>(16 << 20, 1000, &OTHERS);
    serves_other_sizes::<Hot<Dram, Kind>>(16 << 20, 1000, &OTHERS);
    serves_other_sizes::<Masstree<Dram, Kind>>(16 << 20, 1000, &OTHERS);
    serves_other_sizes::<BwTree<Dram, Kind>>(16 << 20, 1000, &OTHERS);
    serves_other_sizes::<SpTree<Dram, Kind>>(16 << 20, 1000, &OTHERS);
    serves_other_sizes::<Rewo<Dram, Kind>>(16 << 20, 1000, &OTHERS);
    serves_other_sizes::<Turbo<Dram, Kind>>(16 << 20, 1000, &OTHERS);
    serves_other_sizes::<Clht<Pmem, Kind>>(16 << 20, 1000, &OTHERS);
    serves_other_sizes::<Clht<Dram, Kind>>(64 << 20, 1000, &OTHERS);
}

#[test]
fn pool_full_of_large_values_serves_others_in_each_index() {
    const OTHERS: [usize; 4] = [10, 300_000, 1000, 60_000];
    serves_other_sizes::<Clht<Dram, Kind>>(16 << 20, 6000, &OTHERS);
    serves_other_sizes::<Level<Dram, Kind>>(16 << 20, 6000, &OTHERS);
    serves_other_sizes::<Art<Dram, Kind>>(16 << 20, 6000, &OTHERS);
    serves_other_sizes::<Hot<Dram, Kind>>(16 << 20, 6000, &OTHERS);
    serves_other_sizes::<Masstree<Dram, Kind>>(16 << 20, 6000, &OTHERS);
    serves_other_sizes::<BwTree<Dram, Kind>>(16 << 20, 6000, &OTHERS);
    serves_other_sizes::<SpTree<Dram, Kind>>(16 << 20, 6000, &OTHERS);
    serves_other_sizes::<Rewo<Dram, Kind>>(16 << 20, 6000, &OTHERS);
    serves_other_sizes::<Turbo<Dram, Kind>>(16 << 20, 6000, &OTHERS);
}

fn sizes_drift<I: Tested>() {
    let (store, _) = open::<I, <I as PointIndex>::Medium>(16 << 20);
    // At most two thirds of the pool.
    const KEYS: u32 = 15_000;
    let mut lengths = BTreeMap::new();
    for (round, len) in (100..=640).step_by(30).enumerate() {
        for n in
            (0..KEYS).filter(|n| round == 0 || (n.wrapping_mul(0x9e37_79b9) >> 8) % 3 != round as u32 % 3)
        {
            put(&store, n, len, None).unwrap_or_else(|error| panic!("{}: {len}: {error}", I::NAME));
            lengths.insert(n, len);
        }
    }
    lengths.iter().for_each(|(&n, &len)| assert_values(&store, &[n], len, I::NAME));
    assert_sound(&store, I::NAME);
}

#[test]
fn drifting_sizes_are_served_in_each_index() {
    sizes_drift::<Clht<Dram, Kind>>();
    sizes_drift::<Level<Dram, Kind>>();
    sizes_drift::<Art<Dram, Kind>>();
    sizes_drift::<Hot<Dram, Kind>>();
    sizes_drift::<Masstree<Dram, Kind>>();
    sizes_drift::<BwTree<Dram, Kind>>();
    sizes_drift::<SpTree<Dram, Kind>>();
    sizes_drift::<Rewo<Dram, Kind>>();
    sizes_drift::<Turbo<Dram, Kind>>();
}

fn expired_make_room<I: Tested>() {
    for (first, other) in [(1000, 1000), (1000, 100), (100, 3000), (6000, 10), (300, 200_000)] {
        let (store, clock) = open::<I, <I as PointIndex>::Medium>(8 << 20);
        let refused = fill(&store, 0, first, Some(5000));
        // A refused write gives back what it took, and the next may find room there for a node.
        let count = fill(&store, refused, first, Some(5000));
        assert!(count <= refused + 2, "{}: {} more of {first}", I::NAME, count - refused);
        clock.advance(5000);
        for n in count..count + 10 {
            let what = format!("{}: {other} after {first}", I::NAME);
            put(&store, n, other, None).unwrap_or_else(|error| panic!("{what}: {error}"));
        }
        assert_sound(&store, I::NAME);
    }
}

#[test]
fn pool_whose_keys_have_all_expired_serves_at_once() {
    expired_make_room::<Clht<Dram, Kind>>();
    expired_make_room::<Level<Dram, Kind>>();
    expired_make_room::<Art<Dram, Kind>>();
    expired_make_room::<Hot<Dram, Kind>>();
    expired_make_room::<Masstree<Dram, Kind>>();
    expired_make_room::<BwTree<Dram, Kind>>();
    expired_make_room::<SpTree<Dram, Kind>>();
    expired_make_room::<Rewo<Dram, Kind>>();
    expired_make_room::<Turbo<Dram, Kind>>();
}

/// A write fails only if it would not fit, and changes nothing.
#[test]
fn refused_write_has_no_room() {
    let (store, _) = open::<Clht<Dram, Kind>, Dram>(8 << 20);
    let count = fill(&store, 0, 1000, None);
    let kept = thin(&store, 0..count);
    let more = fill(&store, count, 100, None);
    let data = u64::from(more - count) * 104 + kept.len() as u64 * 1004;
    let space = store.stats().pool.unwrap();
    assert!(data > space.size_bytes * 6 / 10, "{data} of {space:?}");
    assert_values(&store, &kept, 1000, "kept");
    assert_values(&store, &(count..more).collect::<Vec<_>>(), 100, "more");
    assert_sound(&store, "refused");
}

#[test]
fn used_memory_follows_the_data_down() {
    let (store, _) = open::<Clht<Dram, Kind>, Dram>(16 << 20);
    let count = fill(&store, 0, 1000, None);
    thin(&store, 0..count);
    (0..2000).for_each(|_| {
        store.maintain();
        store.compact();
    });
    let stats = store.stats();
    let pool = stats.pool.unwrap();
    let used = pool.size_bytes - pool.free_bytes;
    assert!(used < stats.data_bytes * 3 / 2 + (2 << 20), "{used} used, {stats:?}");
}

/// Writers, a reader that holds values, batches and transactions run during moves: all values are
/// as written.
#[test]
fn concurrent_moves_change_nothing() {
    concurrent_moves::<Clht<Dram, Kind>>(8 << 20);
    concurrent_moves::<Rewo<Dram, Kind>>(8 << 20);
}

fn concurrent_moves<I: Tested>(bytes: u64) {
    let (store, _) = open::<I, <I as PointIndex>::Medium>(bytes);
    let store: Arc<dyn Engine> = Arc::new(store);
    let (is_over, watched) = (AtomicBool::new(false), &b"watched"[..]);
    store.put(Put { key: watched, value: b"stays", expires_at: None }, Durably::Store).unwrap();
    let version = store.version(watched).unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !is_over.load(Relaxed) {
                store.pooled().unwrap().compact();
                store.pooled().unwrap().maintain();
            }
        });
        scope.spawn(|| {
            let mut n = 0u32;
            while !is_over.load(Relaxed) {
                n = n.wrapping_add(7919);
                let held = store.get(&(n % 4000).to_le_bytes()).unwrap();
                let seen = held.as_ref().map(|value| value.to_vec());
                (0..50u32).for_each(|more| drop(store.get(&more.to_le_bytes()).unwrap()));
                assert_eq!(held.as_ref().map(|value| value.to_vec()), seen);
            }
        });
        let writers: Vec<_> = (0..2u32)
            .map(|writer| {
                let (store, version) = (store.clone(), version);
                scope.spawn(move || writes(&*store, writer, version))
            })
            .collect();
        let models: Vec<_> = writers.into_iter().map(|writer| writer.join().unwrap()).collect();
        is_over.store(true, Relaxed);
        for (n, value) in models.into_iter().flatten() {
            assert_eq!(store.get(&n.to_le_bytes()).unwrap().map(|it| it.to_vec()), value, "{n}");
        }
    });
    assert!(store.version(watched).unwrap() == version);
    assert_sound(&*store, I::NAME);
}

/// Writes the writer's own keys. Returns the final value of each.
fn writes(
    store: &dyn Engine,
    writer: u32,
    watched: terrace_engine::Version,
) -> BTreeMap<u32, Option<Vec<u8>>> {
    let mut model = BTreeMap::new();
    let mut random = u64::from(writer) + 1;
    for turn in 0..12_000u32 {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let n = (random >> 33) as u32 % 2000 * 2 + writer;
        let phase = turn / 2000 % 3;
        let value = vec![turn as u8; [100, 900, 30][phase as usize] + (random >> 50) as usize % 64];
        let put = WriteKind::Put { value: &value, expires_at: None };
        let (key, other) = (n.to_le_bytes(), (n ^ 2).to_le_bytes());
        let done = match random >> 40 & 7 {
            0..3 => store.remove(&key, Durably::Store).map(|_| model.insert(n, None)).map(drop),
            3 => {
                let writes = [Write { key: &key, what: put }, Write { key: &other, what: WriteKind::Remove }];
                store.commit(&writes, &[(b"watched", watched)], Durably::Store).map(|done| {
                    assert_eq!(done, Commit::Done, "no other writer has changed what was read");
                    model.insert(n, Some(value.clone()));
                    model.insert(n ^ 2, None);
                })
            }
            4 if turn % 50 == 0 => {
                let large = vec![turn as u8; 50_000];
                let done = store.put(Put { key: &key, value: &large, expires_at: None }, Durably::Store);
                done.map(|()| _ = model.insert(n, Some(large)))
            }
            _ => {
                let done = store.put(Put { key: &key, value: &value, expires_at: None }, Durably::Store);
                done.map(|()| _ = model.insert(n, Some(value.clone())))
            }
        };
        assert!(matches!(done, Ok(()) | Err(WriteError::PoolFull { .. })), "{done:?}");
    }
    model
}

#[test]
fn store_closed_during_a_round_is_sound() {
    let folder = tempfile::tempdir_in("/dev/shm").unwrap();
    let options = PoolOptions::at(folder.path().join("pool")).size(8 << 20);
    let settings = || Settings { clock: Arc::new(ManualClock::at(1000)), ..crate::costs::settings(100) };
    let pool: Pool<terrace_medium::Shm> = options.create().unwrap();
    let store = Arc::new(Direct::open::<Clht<Shm, Kind>>(pool, settings()).unwrap());
    let count = fill(&*store, 0, 1000, None);
    let kept = thin(&*store, 0..count);
    // A reader delays the end of a round.
    let (held, is_over) = (std::sync::Barrier::new(2), std::sync::Barrier::new(2));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let value = store.get(&kept[0].to_le_bytes()).unwrap();
            held.wait();
            is_over.wait();
            drop(value);
        });
        held.wait();
        (0..5).for_each(|_| _ = store.compact());
        is_over.wait();
    });
    (store as Arc<dyn Engine>).close().unwrap();
    let store = Direct::open::<Clht<Shm, Kind>>(options.open().unwrap(), settings()).unwrap();
    assert_values(&store, &kept, 1000, "after a close");
    put(&store, count, 100_000, None).unwrap();
    assert_sound(&store, "after a close");
}
