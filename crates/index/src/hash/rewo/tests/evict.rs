//! Tests of `evict.rs`.

use super::super::super::test_pools::pool;
use super::super::ops::Rewo;
use super::super::shape::Probe;
use super::super::shape::sealed::Shape;
use super::*;
use crate::key::NoRecords;
use crate::{Bytes, KeyKind, PointIndex, Stored, U64};
use terrace_medium::{Dram, Offset};
use terrace_pool::Pool;

/// Its record is unreadable, so only its slot and its bucket are known of its hash.
#[test]
fn unreadable_key_moves_to_its_mapped_home() {
    let pool = pool::<Dram>(1 << 20);
    let (guard, entry) = (pool.pin(), Entry { tag: 9, key: 0, word: 64 });
    for (nth, (from, to, index)) in
        [(6, 3, 0), (6, 3, 17), (6, 3, 63), (3, 6, 5), (3, 6, 7), (20, 27, 77_777)].into_iter().enumerate()
    {
        let map = Rewo::<Dram, Bytes<NoRecords>>::with_shape(&pool, &format!("map {nth}"), 1, 0).unwrap();
        let place = Place::new(64, from);
        let home = map.tables.home_in(&guard, Place::new(64, from), (place, index), entry);
        assert_eq!((home, map.damage()), (index, None), "in a table of the same size");
        let second = (place, place.second(index, entry.tag));
        let placed = Bytes::<NoRecords>::placed(entry, true);
        for (at, entry) in [((place, index), entry), (second, placed)] {
            let home = map.tables.home_in(&guard, Place::new(64, to), at, entry);
            assert_eq!(home, (index << to) >> from, "2^{from} to 2^{to}");
        }
        assert!(map.damage().is_some());
    }
}

type Map = Rewo<Dram, U64>;

/// A table of sixteen buckets, each with a lock of its own.
fn table(pool: &Pool<Dram>) -> (Map, Place) {
    let map = Map::with_shape(pool, "map", 4, 4).unwrap();
    let place = map.base().view().directory().cells[0];
    (map, place)
}

fn mark_of(map: &Map, place: Place, index: u64) -> SlotLock {
    meta(map.pool().medium(), map.base().bucket(place, index)).slot_lock::<U64>()
}

/// Keys whose home is this bucket, as entries.
fn entries_of_home(map: &Map, place: Place, index: u64) -> impl Iterator<Item = Entry> {
    let seed = map.tables.seed;
    let keys = (0..).filter(move |key| place.home(U64::hash(key, seed)) == index);
    keys.map(move |key| U64::entry(&Probe::new(&key, seed), key, false))
}

/// Puts a key into a slot, whether or not the table has it elsewhere.
fn put(map: &Map, place: Place, index: u64, slot: usize, entry: Entry) {
    map.tables.install(&map.pool().pin(), Slot { place, index, slot }, entry);
}

#[test]
fn vacancy_prefers_the_first_bucket() {
    let pool = pool::<Dram>(1 << 20);
    let (map, place) = table(&pool);
    let (guard, tag) = (pool.pin(), 100);
    let second = place.second(3, tag);
    let chosen = |free: [u32; 2], mark| {
        for (index, free) in [3, second].into_iter().zip(free) {
            let mark = if index == 3 { SlotLock::None } else { mark };
            let meta = Meta(0).becoming::<U64>(all_slots::<U64>() >> free, mark);
            store_meta(pool.medium(), map.base().bucket(place, index), meta);
        }
        let mut held = map.base().lock_buckets(&guard, &[place.bucket(3), place.bucket(second)]);
        let Ok(at) = map.tables.vacancy(&guard, &mut held, map.base().view(), place, (3, tag)) else {
            panic!("there is room")
        };
        assert_eq!(mark_of(&map, place, second), SlotLock::None, "what was left there is ended");
        at.index == 3
    };
    let cases = [[14, 14], [4, 14], [3, 14], [3, 3], [3, 2], [2, 3], [1, 0], [0, 1], [0, 14]];
    let is_first = [true, true, false, true, true, false, true, false, false];
    assert_eq!(cases.map(|free| chosen(free, SlotLock::None)), is_first);
    assert!(!chosen([0, 14], SlotLock::Slot(13)));
}

#[test]
fn eviction_needs_an_unlocked_bucket_with_room() {
    let pool = pool::<Dram>(1 << 20);
    let (map, place) = table(&pool);
    let (guard, view, medium) = (pool.pin(), map.base().view(), pool.medium());
    let entry = entries_of_home(&map, place, 3).next().unwrap();
    let to = place.second(3, entry.tag);
    put(&map, place, 3, 0, entry);
    let victim = Victim { at: Slot { place, index: 3, slot: 0 }, entry, to };
    let bucket = map.base().bucket(place, to);
    let evict = |view: View<'_, Dram>| {
        let mut held = map.base().lock_buckets(&guard, &[place.bucket(3)]);
        let outcome = map.tables.evict_one(&guard, &mut held, view, victim);
        let is_left = U64::read(&guard, map.base().bucket(place, 3), 0) == Some(entry);
        assert_eq!(is_left, outcome.is_err());
        outcome.map_err(|blocked| match blocked {
            Blocked::Busy(stripe) => Some(stripe),
            Blocked::Full => None,
        })
    };
    let (full, empty) = (Meta(0).becoming::<U64>(all_slots::<U64>(), SlotLock::None), meta(medium, bucket));
    store_meta(medium, bucket, full);
    assert_eq!(evict(view), Err(None));
    store_meta(medium, bucket, empty.becoming::<U64>(0, SlotLock::Slot(5)));
    assert_eq!((evict(view), mark_of(&map, place, to)), (Err(None), SlotLock::Slot(5)));
    store_meta(medium, bucket, empty);
    let stripe = map.base().stripe_of(place.bucket(to));
    let other = map.base().lock_buckets(&guard, &[place.bucket(to)]);
    assert_eq!(evict(view), Err(Some(stripe)));
    drop(other);
    assert_eq!(evict(View { offset: Offset::new(64), ..view }), Err(Some(stripe)));
    assert_eq!(evict(view), Ok(()));
    assert_eq!((map.get(&guard, &entry.key), map.verify(&guard)), (Some(entry.word), vec![]));
    assert_eq!(map.base().evictions(), 1);
}

#[test]
fn second_eviction_checks_the_bucket_again() {
    let pool = pool::<Dram>(1 << 20);
    let (map, place) = table(&pool);
    let (guard, view) = (pool.pin(), map.base().view());
    let entry = entries_of_home(&map, place, 3).next().unwrap();
    let to = place.second(3, entry.tag);
    put(&map, place, 3, 0, entry);
    let there: Vec<Entry> = entries_of_home(&map, place, to).take(14).collect();
    there.iter().enumerate().for_each(|(slot, &entry)| put(&map, place, to, slot, entry));
    let victim = Victim { at: Slot { place, index: 3, slot: 0 }, entry, to };
    let evict = |buckets| {
        let mut held = map.base().lock_buckets(&guard, &[place.bucket(3)]);
        map.tables.evict_two(&guard, &mut held, view, victim, buckets).is_ok()
    };
    let before = meta(pool.medium(), map.base().bucket(place, to));
    assert!(!evict([3, to]), "there is no room for what comes from there");
    map.tables.lock_slots(place, to, SlotLock::Slot(9));
    assert!(!evict([3, 3]) && mark_of(&map, place, to) == SlotLock::Slot(9));
    store_meta(
        pool.medium(),
        map.base().bucket(place, to),
        before.becoming::<U64>(before.valid::<U64>(), SlotLock::None),
    );
    let other = map.base().lock_buckets(&guard, &[place.bucket(to)]);
    assert!(!evict([3, 3]));
    drop(other);
    assert_eq!((map.base().evictions(), map.verify(&guard)), (0, vec![]));
    assert!(evict([3, 3]));
    assert_eq!((map.base().evictions(), map.verify(&guard)), (2, vec![]));
    let mut all = there.iter().chain([&entry]);
    assert!(all.all(|entry| map.get(&guard, &entry.key) == Some(entry.word)));
}

/// A duplicate that was not moving is damage for people to see.
#[test]
fn locked_slot_is_cleared_only_with_a_copy() {
    let pool = pool::<Dram>(1 << 20);
    let (map, place) = table(&pool);
    let guard = pool.pin();
    let entries: Vec<Entry> = entries_of_home(&map, place, 3).take(2).collect();
    for (slot, &entry) in entries.iter().enumerate() {
        put(&map, place, 3, slot, entry);
        store_overflow::<_, U64>(pool.medium(), map.base().bucket(place, 3), entry.tag);
        put(&map, place, place.second(3, entry.tag), slot, entry);
    }
    map.tables.lock_slots(place, 3, SlotLock::Slot(1));
    let mut held = map.base().lock_buckets(&guard, &[place.bucket(3)]);
    assert_eq!(map.tables.resolve(&guard, &mut held, map.base().view(), place, 3), Ok(()));
    drop(held);
    let left = [0, 1].map(|slot| U64::read(&guard, map.base().bucket(place, 3), slot));
    assert_eq!((left, mark_of(&map, place, 3)), ([Some(entries[0]), None], SlotLock::None));
    assert_eq!(map.verify(&guard).len(), 1);
}

#[test]
fn moving_bucket_clears_only_copied_keys() {
    let pool = pool::<Dram>(1 << 20);
    let map = Map::with_shape(&pool, "map", 4, 5).unwrap();
    let (guard, mut keys) = (pool.pin(), 0..);
    while !map.base().view().is_moving() {
        map.insert(&guard, &keys.next().unwrap(), 1).unwrap();
    }
    let (view, directory) = (map.base().view(), map.base().view().directory());
    let (from, to) = (directory.cells[0], directory.to.unwrap());
    let index = view.count();
    let entries =
        || (0..14).filter_map(|slot| Some((slot, U64::read(&guard, map.base().bucket(from, index), slot)?)));
    let leaves = |of: &(usize, Entry)| map.tables.leaves(&directory, from, of.1);
    let goes = entries().find(leaves).unwrap();
    let stays = entries().find(|of| !leaves(of)).unwrap();
    map.tables.lock_slots(from, index, SlotLock::Moving);
    for (slot, (_, entry)) in [goes, stays].into_iter().enumerate() {
        put(&map, to, map.tables.home_in(&guard, to, (from, index), entry), slot, entry);
    }
    let mut held = map.base().lock_buckets(&guard, &[from.bucket(index)]);
    assert_eq!(map.tables.resolve(&guard, &mut held, view, from, index), Ok(()));
    let is_left =
        |(slot, _): (usize, Entry)| U64::read(&guard, map.base().bucket(from, index), slot).is_some();
    assert_eq!([goes, stays].map(is_left), [false, true]);
}

#[test]
fn locked_slot_of_a_single_bucket_has_no_copy() {
    let pool = pool::<Dram>(1 << 20);
    let map = Map::with_shape(&pool, "map", 1, 0).unwrap();
    let (guard, place) = (pool.pin(), map.base().view().directory().cells[0]);
    (0..5).for_each(|key| _ = map.insert(&guard, &key, key).unwrap());
    map.tables.lock_slots(place, 0, SlotLock::Slot(2));
    assert_eq!(map.update(&guard, &100, 1), None);
    assert_eq!((mark_of(&map, place, 0), map.len(), map.verify(&guard)), (SlotLock::None, 5, vec![]));
}
