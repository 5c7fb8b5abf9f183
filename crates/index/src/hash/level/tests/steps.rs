//! Tests of single resize steps: which units each moves, under which locks, at what cost; and when
//! a resize begins, continues, and turns around.

use super::super::super::test_pools::pool;
use super::super::ops::Level;
use super::super::shape::positions;
use super::super::shape::sealed::Shape;
use super::*;
use crate::{KeyKind, PointIndex, Stored, U64};
use terrace_medium::Dram;
use terrace_testkit::TappedPmem;

type Table<M> = Level<M, U64>;

const SLOTS: u64 = U64::SLOTS as u64;
const FULL: u64 = all_slots::<U64>();

/// An empty table with 2^`top` buckets above.
fn table<M: MappedMedium>(top: u32) -> Table<M> {
    let table = Table::create(&pool(4 << 20), "table", ((3 * SLOTS) << (top - 1)) * 4 / 5).unwrap();
    assert_eq!(table.units.view().high.log2(), top);
    table
}

/// A table of 2^`top` upper buckets that is about to double.
fn growing<M: MappedMedium>(top: u32) -> (Table<M>, View) {
    let table = table(top);
    table.resize(&table.units.pool.pin()).start_expanding(&table.units.view()).unwrap();
    let view = table.units.view();
    assert_eq!((view.high.log2(), view.state.phase()), (top + 1, Phase::Expand));
    (table, view)
}

/// A table of 2^`top` upper buckets that is about to be halved.
fn shrinking<M: MappedMedium>(top: u32) -> (Table<M>, View) {
    let table = table(top);
    let guard = table.units.pool.pin();
    assert_eq!(table.resize(&guard).start_clearing(&table.units.view()), Ok(true));
    while table.units.state().phase() == Phase::Clearing {
        table.resize(&guard).help_resize(&table.units.view());
    }
    drop(guard);
    let view = table.units.view();
    assert_eq!((view.low.log2(), view.state.phase()), (top - 2, Phase::Shrink));
    (table, view)
}

/// The units that use the two upper tiers.
fn upper_units<M: MappedMedium>(table: &Table<M>, view: &View) -> Vec<u64> {
    (0..view.low.buckets())
        .filter(|&unit| table.units.uses_upper(view, view.low.first_position(unit)))
        .collect()
}

/// Tokens and marks of a bucket.
fn bits_of<M: MappedMedium>(table: &Table<M>, tier: Tier, index: u64) -> (u64, u64) {
    let now = meta(table.units.pool.medium(), table.units.bucket(tier.bucket(index)));
    (now.tokens::<U64>(), now.marks::<U64>())
}

/// Gives a bucket these tokens, whatever is in its slots.
fn fill<M: MappedMedium>(table: &Table<M>, tier: Tier, index: u64, tokens: u64) {
    let (medium, bucket) = (table.units.pool.medium(), table.units.bucket(tier.bucket(index)));
    store_meta(medium, bucket, meta(medium, bucket).becoming::<U64>(tokens, 0));
}

/// Puts a key into the first free slot of a bucket.
fn put<M: MappedMedium>(table: &Table<M>, tier: Tier, index: u64, key: u64, is_marked: bool) {
    let (medium, bucket) = (table.units.pool.medium(), table.units.bucket(tier.bucket(index)));
    let before = meta(medium, bucket);
    let slot = before.vacancy::<U64>().unwrap();
    U64::write(&table.units.pool.pin(), bucket, slot, Entry { key, word: !key });
    let after = if is_marked { before.with_marked::<U64>(slot) } else { before.with::<U64>(slot) };
    store_meta(medium, bucket, after);
}

fn lock_of<M: MappedMedium>(table: &Table<M>, tier: Tier, index: u64) -> &Lock {
    Lock::of(lock_word(table.units.bucket(tier.bucket(index))))
}

#[test]
fn help_moves_two_free_units_of_the_next_eight() {
    let (table, view) = growing::<Dram>(5);
    let guard = table.units.pool.pin();
    table.resize(&guard).help_resize(&view);
    assert_eq!(upper_units(&table, &view), [0, 1]);
    let hold = |units: &[u64]| {
        let locks = units.iter().map(|&unit| lock_of(&table, view.low, unit).acquire(&guard));
        locks.collect::<Vec<_>>()
    };
    let some = hold(&[2, 3, 5]);
    table.resize(&guard).help_resize(&view);
    assert_eq!(upper_units(&table, &view), [0, 1, 4, 6]);
    let others = hold(&[7, 8, 9]);
    table.resize(&guard).help_resize(&view);
    assert_eq!(upper_units(&table, &view), [0, 1, 4, 6], "the tenth is too far ahead");
    drop((some, others));
    table.resize(&guard).help_resize(&view);
    assert_eq!(upper_units(&table, &view), [0, 1, 2, 3, 4, 6]);
}

#[test]
fn cursor_advances_64_units_and_belongs_to_a_state() {
    let (table, view) = growing::<Dram>(8);
    let (guard, medium, cursor) =
        (table.units.pool.pin(), table.units.pool.medium(), &table.units.root[0].0[CURSOR]);
    (0..128).for_each(|unit| assert!(table.resize(&guard).move_unit(&view, unit, false) == Step::Moved));
    for passed in [64, 128, 128] {
        assert_eq!(table.resize(&guard).advance_cursor(&view), passed);
        assert_eq!(cursor.load(medium, Relaxed), cursor_word(view.state, passed));
    }
    // A late store with the previous state.
    let next = cursor_word(view.state.next(9, Phase::Two), 3);
    assert_eq!(
        (cursor_in(next, view.state), cursor_in(next, view.state.next(9, Phase::Two))),
        (None, Some(3))
    );
    cursor.store(medium, next, Relaxed);
    assert_eq!((table.resize(&guard).advance_cursor(&view), cursor.load(medium, Relaxed)), (64, next));
}

#[test]
fn load_is_sampled_in_larger_tables() {
    let table = table::<Dram>(8);
    let (guard, view) = (table.units.pool.pin(), table.units.view());
    (2..256).step_by(2).for_each(|index| fill(&table, view.high, index, FULL));
    let load = |keys: u64| keys * 1000 / (256 * SLOTS);
    assert_eq!(table.resize(&guard).load_permille(&view), load(127 * SLOTS));
    (1..256).step_by(2).for_each(|index| fill(&table, view.high, index, FULL));
    assert_eq!(table.resize(&guard).load_permille(&view), load(127 * SLOTS), "nobody looks at those");
    fill(&table, view.mid, 5, 0b111);
    assert_eq!(table.resize(&guard).load_permille(&view), load(127 * SLOTS + 3));
}

#[test]
fn new_tier_does_not_count_as_load() {
    let (table, view) = growing::<Dram>(4);
    let guard = table.units.pool.pin();
    (0..32).for_each(|index| fill(&table, view.high, index, FULL));
    fill(&table, view.mid, 3, 0b111);
    let load = |keys: u64| keys * 1000 / (48 * SLOTS);
    assert_eq!(table.resize(&guard).load_permille(&view), load(3));
    assert!(table.resize(&guard).move_unit(&view, 2, false) == Step::Moved);
    assert_eq!(table.resize(&guard).load_permille(&view), load(3));
    (8..12).for_each(|index| fill(&table, view.high, index, FULL));
    assert_eq!(table.resize(&guard).load_permille(&view), load(4 * SLOTS + 3));
}

#[test]
fn move_locks_three_buckets_from_below() {
    for (table, view) in [growing::<Dram>(4), shrinking::<Dram>(5)] {
        let guard = table.units.pool.pin();
        let all = || {
            [view.mid, view.low].into_iter().flat_map(|tier| (0..tier.buckets()).map(move |at| (tier, at)))
        };
        // A lock that was never taken is 0.
        let zero = |(tier, at)| {
            lock_word(table.units.bucket(Tier::bucket(tier, at))).store(table.units.pool.medium(), 0, Relaxed)
        };
        all().for_each(zero);
        assert!(table.resize(&guard).move_unit(&view, 3, false) == Step::Moved);
        let was_taken =
            |&(tier, at): &(Tier, u64)| lock_of(&table, tier, at).load_word(table.units.pool.medium()) != 0;
        assert_eq!(
            all().filter(was_taken).collect::<Vec<_>>(),
            [(view.mid, 6), (view.mid, 7), (view.low, 3)]
        );
    }
}

#[test]
fn moved_unit_is_not_moved_again() {
    let (table, view) = growing::<Dram>(4);
    let guard = table.units.pool.pin();
    for key in 0..30 {
        let [position, _] = positions(U64::hash(&key, table.units.seed));
        if bits_of(&table, view.low, view.low.index(position)).0 != FULL {
            put(&table, view.low, view.low.index(position), key, false);
        }
    }
    let side = table.units.side(&view, 0);
    assert!(table.units.is_current(&view, &side));
    assert!((0..8).all(|unit| table.resize(&guard).move_unit(&view, unit, false) == Step::Moved));
    assert!(!table.units.is_current(&view, &side), "it uses other tiers");
    assert!(table.units.is_current(&view, &table.units.side(&view, 0)));
    let keys = || (0..32).map(|index| bits_of(&table, view.high, index)).collect::<Vec<_>>();
    let before = keys();
    assert!((0..8).all(|unit| table.resize(&guard).move_unit(&view, unit, false) == Step::Already));
    assert!((0..8).all(|unit| table.resize(&guard).move_unit(&view, unit, true) == Step::Already));
    assert_eq!(keys(), before);
    assert!(before.iter().any(|&(tokens, _)| tokens != 0));
}

#[test]
fn unit_moves_with_two_fences() {
    for (table, view) in [growing::<TappedPmem>(4), shrinking::<TappedPmem>(5)] {
        let (guard, medium) = (table.units.pool.pin(), table.units.pool.medium());
        for unit in [0, 1] {
            let (counts, step) = medium.during(|| table.resize(&guard).move_unit(&view, unit, false));
            assert!(step == Step::Moved && counts.fences == 2, "{counts:?}");
        }
        // The unit behind them has not moved, and may not be durable.
        let held = lock_of(&table, view.low, 2).acquire(&guard);
        let (counts, cursor) = medium.during(|| table.resize(&guard).advance_cursor(&view));
        assert_eq!((cursor, counts.write_backs, counts.fences), (2, 0, 0));
        drop(held);
        let write_back = || medium.during(|| table.units.write_back_state()).0;
        assert_eq!((write_back().write_backs, write_back().fences), (0, 0));
        let held = Lock::of(&table.units.root[0].0[ROOT_LOCK]).acquire(&guard);
        assert_eq!(
            (write_back().write_backs, write_back().fences),
            (1, 0),
            "the holder may change the state"
        );
        drop(held);
    }
}

#[test]
fn unfenced_unit_is_persisted_before_it_moves() {
    for middle in [None, Some(4), Some(5)] {
        for (table, view) in [growing::<TappedPmem>(4), shrinking::<TappedPmem>(5)] {
            let guard = table.units.pool.pin();
            let lock = middle.map_or(lock_of(&table, view.low, 2), |index| lock_of(&table, view.mid, index));
            lock.acquire(&guard).release_unfenced();
            let (counts, step) =
                table.units.pool.medium().during(|| table.resize(&guard).move_unit(&view, 2, false));
            assert!(step == Step::Moved && counts.fences == 3, "{middle:?}: {counts:?}");
        }
    }
}

#[test]
fn marks_move_along_when_a_unit_grows() {
    let (table, view) = growing::<Dram>(4);
    let of_unit = |unit: u64| {
        let is_its = move |key: &u64| view.low.index(positions(U64::hash(key, 11))[0]) == unit;
        (0..).filter(is_its).take(7).collect::<Vec<u64>>()
    };
    assert_eq!(table.units.seed, 11);
    let keys = of_unit(5);
    for (key, is_marked) in keys.iter().zip([false, true, true, false, true, true, false]) {
        put(&table, view.low, 5, *key, is_marked);
    }
    assert!(table.resize(&table.units.pool.pin()).move_unit(&view, 5, false) == Step::Moved);
    let guard = table.units.pool.pin();
    let mut seen = 0;
    for index in 20..24 {
        let bucket = table.units.bucket(view.high.bucket(index));
        for slot in 0..U64::SLOTS {
            let Some(entry) = U64::read(&guard, bucket, slot) else { continue };
            let nth = keys.iter().position(|&key| key == entry.key).unwrap();
            assert_eq!(view.high.index(positions(U64::hash(&entry.key, 11))[0]), index);
            let is_marked = meta(table.units.pool.medium(), bucket).is_marked::<U64>(slot);
            assert_eq!((entry.word, is_marked), (!entry.key, [1, 2, 4, 5].contains(&nth)), "{nth}");
            seen += 1;
        }
    }
    assert_eq!((seen, bits_of(&table, view.low, 5)), (7, (0, 0)));
}

#[test]
fn unit_shrinks_with_at_most_seven_keys_above() {
    // Keys in each of the four buckets above, tokens in the two below them, the expected step, and
    // the number of keys in those two afterwards.
    let cases = [
        ([3, 4, 0, 0], [0, 0], Step::Moved, [7, 7]),
        ([4, 4, 0, 0], [0, 7], Step::Stuck, [7, 0]),
        ([4, 4, 0, 0], [1, 7], Step::Moved, [7, 0]),
        ([0, 0, 4, 4], [7, 1], Step::Moved, [0, 7]),
        ([2, 2, 2, 2], [7, 7], Step::Moved, [1, 0]),
        ([7, 7, 7, 7], [7, 7], Step::Stuck, [7, 7]),
        ([7, 7, 7, 0], [7, 7], Step::Moved, [7, 7]),
    ];
    for (above, free, step, below) in cases {
        let (table, view) = shrinking::<Dram>(5);
        let mut key = 0;
        for (index, count) in (8..12).zip(above) {
            (0..count).for_each(|_| {
                put(&table, view.high, index, key, false);
                key += 1;
            });
        }
        (4..6).zip(free).for_each(|(index, free)| fill(&table, view.mid, index, FULL >> free));
        assert!(
            table.resize(&table.units.pool.pin()).move_unit(&view, 2, false) == step,
            "{above:?} {free:?}"
        );
        let loads = [4, 5].map(|index| bits_of(&table, view.mid, index).0.count_ones());
        assert_eq!(loads, below, "{above:?} {free:?}");
        let others = (0..16).filter(|index| !(4..6).contains(index));
        assert!(others.into_iter().all(|index| bits_of(&table, view.mid, index) == (0, 0)));
        if step == Step::Moved {
            let left = above.iter().sum::<u32>() + free.iter().map(|free| 7 - free).sum::<u32>()
                - below.iter().sum::<u32>();
            assert_eq!(bits_of(&table, view.low, 2), (FULL >> (7 - left), 0), "{above:?} {free:?}");
        }
    }
    let (table, view) = shrinking::<Dram>(5);
    put(&table, view.high, 8, 70, false);
    put(&table, view.high, 8, 71, true);
    put(&table, view.high, 9, 72, true);
    // The other copy of a key that a crash has left twice.
    put(&table, view.high, 11, 71, true);
    assert!(table.resize(&table.units.pool.pin()).move_unit(&view, 2, false) == Step::Moved);
    assert_eq!(bits_of(&table, view.low, 2), (0b111, 0b110));
}

#[test]
fn marked_key_is_not_moved_down() {
    let (table, view) = shrinking::<Dram>(5);
    (0..8).for_each(|key| put(&table, view.high, 8 + key / 2, key, true));
    assert!(table.resize(&table.units.pool.pin()).move_unit(&view, 2, false) == Step::Stuck);
    assert_eq!([4, 5].map(|index| bits_of(&table, view.mid, index)), [(0, 0); 2]);
}

#[test]
fn stuck_shrink_turns_around_and_records_its_keys() {
    let (table, view) = shrinking::<Dram>(5);
    (0..4).for_each(|index| fill(&table, view.high, index, FULL));
    (0..2).for_each(|index| fill(&table, view.mid, index, FULL));
    table.units.count().add(0, 0, 30);
    table.resize(&table.units.pool.pin()).help_resize(&view);
    assert_eq!(table.units.state().phase(), Phase::Unshrink);
    assert_eq!(table.units.root[2].0[STUCK].load(table.units.pool.medium(), Relaxed), 31);
}

/// What the table does if a key with these positions finds no place.
fn room<M: MappedMedium>(table: &Table<M>, positions: [u64; 2]) -> Result<Phase, PoolFull> {
    let probe = Probe { positions, ..Probe::<U64>::new(&7, table.units.seed) };
    table
        .resize(&table.units.pool.pin())
        .make_place(&table.units.view(), &probe)
        .map(|()| table.units.state().phase())
}

#[test]
fn insert_without_place_grows_at_a_quarter_load() {
    let table = table::<Dram>(4);
    (0..5).for_each(|index| fill(&table, table.units.view().high, index, FULL));
    fill(&table, table.units.view().high, 5, FULL >> 1);
    // 41 of 168.
    let full = room(&table, [0, !0]).unwrap_err();
    assert_eq!((full.wanted, table.units.state().phase()), (2 * 16 * 128, Phase::Two));
    fill(&table, table.units.view().high, 5, FULL);
    assert_eq!(room(&table, [0, !0]), Ok(Phase::Expand));
}

#[test]
fn insert_without_place_moves_its_own_units() {
    let (table, view) = growing::<Dram>(6);
    let [one, other] = [20, 25].map(|unit| view.low.first_position(unit) + 5);
    assert_eq!(room(&table, [one, other]), Ok(Phase::Expand));
    assert_eq!(upper_units(&table, &view), [20, 25]);
    let another = view.low.first_position(30);
    assert_eq!(room(&table, [other, another]), Ok(Phase::Expand));
    assert_eq!(upper_units(&table, &view), [20, 25, 30]);
    assert!(room(&table, [one, other]).is_err(), "both have moved, and hardly a slot is taken");
    (0..48).for_each(|index| fill(&table, view.mid, index, FULL));
    assert_eq!(room(&table, [one, other]), Ok(Phase::Expand));
    assert_eq!(upper_units(&table, &view), [0, 1, 20, 25, 30]);
}

#[test]
fn insert_without_place_turns_a_shrink_around() {
    let (shrinking, _) = shrinking::<Dram>(5);
    assert_eq!(room(&shrinking, [0, !0]), Ok(Phase::Unshrink));
    let clearing = table::<Dram>(5);
    let used = |table: &Table<Dram>| {
        while table.units.pool.reclaim_blocking() {}
        table.units.pool.space().used_by_blocks
    };
    let before = used(&clearing);
    assert_eq!(clearing.resize(&clearing.units.pool.pin()).start_clearing(&clearing.units.view()), Ok(true));
    assert_eq!(clearing.units.view().low.log2(), 3);
    assert!(used(&clearing) > before);
    assert_eq!(room(&clearing, [0, !0]), Ok(Phase::Two));
    assert_eq!(used(&clearing), before);
}

#[test]
fn one_removal_in_256_checks_for_a_shrink() {
    for (end, phase) in [(0, Phase::Clearing), (1, Phase::Two), (0xff, Phase::Two), (0x80, Phase::Two)] {
        let table = table::<Dram>(4);
        let guard = table.units.pool.pin();
        let key = (0..).find(|key| U64::hash(key, table.units.seed) & 0xff == end).unwrap();
        table.insert(&guard, &key, 0).unwrap();
        assert_eq!(table.remove(&guard, &key), Some(0));
        assert_eq!(table.units.state().phase(), phase, "{end:#x}");
    }
    for (table, view) in [growing::<Dram>(4), shrinking::<Dram>(5)] {
        table.resize(&table.units.pool.pin()).shrink_if_needed(&view, 0);
        assert!(table.units.state() == view.state);
    }
}

#[test]
fn unused_tier_is_retired() {
    for (table, view) in [growing::<Dram>(4), shrinking::<Dram>(5)] {
        while table.units.state() == view.state {
            table.resize(&table.units.pool.pin()).help_resize(&view);
        }
        while table.units.pool.reclaim_blocking() {}
        let guard = table.units.pool.pin();
        let blocks = table.units.pool.reachable(&mut |marker| table.trace(&guard, marker, |_, _| ()));
        let bytes: u64 = blocks.iter().map(|&(_, bytes)| bytes).sum();
        assert_eq!(bytes, table.units.pool.space().used_by_blocks);
    }
}

#[test]
fn growth_does_not_start_a_shrink() {
    let (table, view) = growing::<Dram>(4);
    let guard = table.units.pool.pin();
    while table.units.state() == view.state {
        table.resize(&guard).help_resize(&view);
    }
    assert_eq!((table.units.state().top(), table.units.state().phase()), (5, Phase::Two));
    assert_eq!(table.stats(&guard).resizes, 1);
}

#[test]
fn levels_during_a_shrink_are_the_lower_tiers() {
    let (table, _) = shrinking::<Dram>(5);
    let stats = table.stats(&table.units.pool.pin());
    assert_eq!((stats.buckets, stats.slots, stats.resizing), (24, 168, true));
    assert_eq!(stats.bytes, (32 + 16 + 8) * 128 + 3 * 64 + STRIPES_BYTES);
    let (table, _) = growing::<Dram>(4);
    let stats = table.stats(&table.units.pool.pin());
    assert_eq!((stats.buckets, stats.slots, stats.resizing), (48, 336, true));
}

const STRIPES_BYTES: u64 = crate::count::STRIPES * 64;

#[test]
fn recovery_resets_cursor_and_balance_once() {
    let (table, view) = growing::<Dram>(4);
    let (pool, medium) = (&table.units.pool, table.units.pool.medium());
    let estimates =
        [&table.units.root[0].0[CURSOR], &table.units.root[0].0[BALANCE], &table.units.root[2].0[STUCK]];
    let set = [cursor_word(view.state, 8), 7, 9];
    let spoil = || estimates.iter().zip(set).for_each(|(word, value)| word.store(medium, value, Relaxed));
    let reopened = || {
        spoil();
        drop(Table::<Dram>::recover(pool, "table").unwrap());
        estimates.map(|word| word.load(medium, Relaxed))
    };
    assert_eq!(reopened(), [cursor_word(view.state, 0), 0, 0]);
    // Other processes use it.
    pool.initialize().done();
    assert_eq!(reopened(), set);
}
