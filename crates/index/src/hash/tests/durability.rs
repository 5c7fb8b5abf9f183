//! Tests of every hash index: an answer is durable, even if the change that it shows was not; and
//! if everything is durable, a read costs no write-back and no fence.

use super::test_pools::{Medium, Power, pool};
use super::{Clht, Level, Rewo, Turbo};
use crate::{Deferred, Inserted, PointIndex, Stored, Swapped, U64};
use terrace_medium::{Dram, MappedMedium, Shm};
use terrace_pool::Pool;
use terrace_testkit::TappedPmem;

const NAME: &str = "index";
/// Enough that some keys are not where a search begins, and that no resize is near.
const KEYS: u64 = 60;

fn word(key: u64, nth: u64) -> u64 {
    (key + 1) << 8 | nth
}

fn filled<M: MappedMedium, I>(pool: &Pool<M>) -> I
where
    I: PointIndex<Kind = U64, Medium = M> + Stored<Medium = M>,
{
    let index = I::create(pool, NAME, 0).unwrap();
    let guard = pool.pin();
    (0..KEYS).for_each(|key| _ = index.insert(&guard, &key, word(key, 0)).unwrap());
    while index.maintain(&guard) {}
    index
}

/// Number of ways to look a key up.
const WAYS: usize = 5;

/// The word of a key, looked up in one of these ways.
fn look<I: PointIndex<Kind = U64>>(index: &I, way: usize, key: u64) -> Option<u64> {
    let (guard, mut found) = (index.pool().pin(), None);
    match way {
        0 => found = index.get(&guard, &key),
        1 => found = index.get_sound(&guard, &key).unwrap(),
        2 => index.get_many(&guard, [&key], |_, word| found = word),
        3 => index.for_each(&guard, |word| found = found.or(Some(word).filter(|word| word >> 8 == key + 1))),
        _ => match index.compare_and_swap(&guard, &key, Some(0), None).unwrap() {
            Swapped::Found(word) => found = word,
            Swapped::Done => unreachable!("no key has the word 0"),
        },
    }
    found
}

/// A deferred change of a key: it is added, gets another word, or is removed.
fn change<I: PointIndex<Kind = U64>>(index: &I, key: u64, nth: u64, after: Option<u64>) -> Deferred {
    let (guard, mut deferred) = (index.pool().pin(), Deferred::default());
    let before = (nth > 0).then(|| word(key, nth - 1));
    let swapped = index.compare_and_swap_deferred(&guard, &key, before, after, &mut deferred).unwrap();
    assert_eq!(swapped, Swapped::Done);
    deferred
}

/// The changes of a key, one after the other.
fn changes(key: u64) -> [Option<u64>; 3] {
    [Some(word(key, 0)), Some(word(key, 1)), None]
}

fn check_answers_are_durable<I>()
where
    I: PointIndex<Kind = U64, Medium = Medium> + Stored<Medium = Medium>,
{
    for way in 0..WAYS {
        let power = Power::new();
        let index: I = filled(&power.pool);
        for key in KEYS..KEYS + 6 {
            for (nth, after) in (0..).zip(changes(key)) {
                let deferred = change(&index, key, nth, after);
                assert_eq!(look(&index, way, key), after, "{}, way {way}", I::NAME);
                let pool = power.after_power_loss();
                let kept = I::recover(&pool, NAME).unwrap().unwrap().get(&pool.pin(), &key);
                pool.abandon();
                assert_eq!(kept, after, "{}, way {way}, change {nth}", I::NAME);
                index.persist_deferred(&power.pool.pin(), deferred);
            }
        }
    }
}

#[test]
fn answers_survive_power_loss() {
    check_answers_are_durable::<Clht<_, U64>>();
    check_answers_are_durable::<Level<_, U64>>();
    check_answers_are_durable::<Rewo<_, U64>>();
    check_answers_are_durable::<Turbo<_, U64>>();
}

fn check_reads_persist_nothing<I>()
where
    I: PointIndex<Kind = U64, Medium = TappedPmem> + Stored<Medium = TappedPmem>,
{
    let pool = pool(1 << 20);
    let index: I = filled(&pool);
    for key in KEYS..KEYS + 12 {
        for (nth, after) in (0..).zip(changes(key)) {
            let deferred = change(&index, key, nth, after);
            index.persist_deferred(&pool.pin(), deferred);
            for way in 0..WAYS {
                let (counts, found) = pool.medium().during(|| look(&index, way, key));
                assert_eq!(found, after);
                assert_eq!((counts.write_backs, counts.fences), (0, 0), "{}, way {way}", I::NAME);
            }
        }
    }
}

#[test]
fn reads_of_durable_keys_persist_nothing() {
    check_reads_persist_nothing::<Clht<_, U64>>();
    check_reads_persist_nothing::<Level<_, U64>>();
    check_reads_persist_nothing::<Rewo<_, U64>>();
    check_reads_persist_nothing::<Turbo<_, U64>>();
}

/// Whether each change of a key leaves a deferred write. Nothing but a change does.
fn defers_every_change<M: MappedMedium, I>() -> bool
where
    I: PointIndex<Kind = U64, Medium = M> + Stored<Medium = M>,
{
    let pool = pool(1 << 20);
    let index: I = filled(&pool);
    let left = changes(KEYS).into_iter().zip(0..).map(|(after, nth)| {
        let deferred = change(&index, KEYS, nth, after);
        let is_left = !deferred.0.is_empty();
        index.persist_deferred(&pool.pin(), deferred);
        let mut deferred = Deferred::default();
        for new in [None, Some(1)] {
            let found =
                index.compare_and_swap_deferred(&pool.pin(), &KEYS, Some(0), new, &mut deferred).unwrap();
            assert_eq!(found, Swapped::Found(after));
        }
        assert!(deferred.0.is_empty(), "{}", I::NAME);
        is_left
    });
    let left: Vec<bool> = left.collect();
    assert!(left.iter().all(|&is_left| is_left == left[0]), "{}: {left:?}", I::NAME);
    left[0]
}

fn check_defers<M: MappedMedium>(wanted: bool) {
    assert_eq!(defers_every_change::<M, Clht<M, U64>>(), wanted);
    assert_eq!(defers_every_change::<M, Level<M, U64>>(), wanted);
    assert_eq!(defers_every_change::<M, Rewo<M, U64>>(), wanted);
    assert_eq!(defers_every_change::<M, Turbo<M, U64>>(), wanted);
}

#[test]
fn changes_are_deferred_only_with_volatile_cache() {
    check_defers::<Dram>(false);
    check_defers::<Shm>(false);
    check_defers::<TappedPmem>(true);
}

fn check_scan_in_pieces<I>()
where
    I: PointIndex<Kind = U64, Medium = Dram> + Stored<Medium = Dram>,
{
    let pool = pool(4 << 20);
    let index = I::create(&pool, NAME, 5000).unwrap();
    let guard = pool.pin();
    (0..4000).for_each(|key| _ = index.insert(&guard, &key, word(key, 0)).unwrap());
    for at_least in [1, 7, 50] {
        let (mut words, mut place) = (Vec::new(), crate::Place::Start);
        loop {
            let before = words.len();
            place = index.scan(&guard, &place, at_least, |word| words.push(word));
            let seen = words.len() - before;
            assert!(seen < 2 * at_least + 100, "{}: {seen} of {at_least}", I::NAME);
            if place.is_end() {
                break;
            }
            assert!(seen >= at_least, "{}: {seen} of {at_least}", I::NAME);
        }
        words.sort_unstable();
        assert_eq!(words, (0..4000).map(|key| word(key, 0)).collect::<Vec<_>>(), "{}", I::NAME);
    }
}

#[test]
fn scan_returns_about_as_many_words_as_asked() {
    check_scan_in_pieces::<Clht<_, U64>>();
    check_scan_in_pieces::<Level<_, U64>>();
    check_scan_in_pieces::<Rewo<_, U64>>();
    check_scan_in_pieces::<Turbo<_, U64>>();
}

/// Checks the collector's walk over a durable table: it costs one fence, for what the root names.
fn check_walk_costs<I>()
where
    I: PointIndex<Kind = U64, Medium = TappedPmem> + Stored<Medium = TappedPmem>,
{
    let pool = pool(1 << 20);
    let index: I = filled(&pool);
    let walk = || {
        let (counts, words) = pool.medium().during(|| {
            let mut words = 0;
            pool.reachable(&mut |marker| index.trace(&pool.pin(), marker, |_, _| words += 1));
            words
        });
        assert_eq!(words, KEYS, "{}", I::NAME);
        (counts.write_backs, counts.fences)
    };
    assert_eq!(walk(), (0, 1), "{}", I::NAME);
    let deferred = change(&index, KEYS - 1, 1, Some(word(KEYS - 1, 1)));
    assert!(walk().0 > 0, "{}", I::NAME);
    assert_eq!(walk(), (0, 1), "{}", I::NAME);
    index.persist_deferred(&pool.pin(), deferred);
}

#[test]
fn trace_persists_the_root_only() {
    check_walk_costs::<Clht<_, U64>>();
    check_walk_costs::<Level<_, U64>>();
}

/// Checks that each operation returns the state that it found.
fn check_found_states<I>()
where
    I: PointIndex<Kind = U64, Medium = Dram> + Stored<Medium = Dram>,
{
    let pool = pool(1 << 20);
    let index = I::create(&pool, NAME, 0).unwrap();
    let guard = pool.pin();
    for key in 0..KEYS {
        assert_eq!((index.len(), index.is_empty()), (key, key == 0), "{}", I::NAME);
        assert_eq!((index.update(&guard, &key, 1), index.remove(&guard, &key)), (None, None));
        assert_eq!(index.compare_and_swap(&guard, &key, Some(1), Some(2)), Ok(Swapped::Found(None)));
        assert_eq!((index.get(&guard, &key), index.upsert(&guard, &key, 3)), (None, Ok(None)));
        assert_eq!(
            (index.get(&guard, &key), index.insert(&guard, &key, 4)),
            (Some(3), Ok(Inserted::Present(3)))
        );
        assert_eq!((index.upsert(&guard, &key, 5), index.update(&guard, &key, 6)), (Ok(Some(3)), Some(5)));
        assert_eq!(index.compare_and_swap(&guard, &key, Some(5), None), Ok(Swapped::Found(Some(6))));
        assert_eq!(index.compare_and_swap(&guard, &key, Some(6), Some(7)), Ok(Swapped::Done));
        assert_eq!((index.remove(&guard, &key), index.get(&guard, &key)), (Some(7), None));
        assert_eq!(index.insert(&guard, &key, word(key, 0)), Ok(Inserted::New));
    }
    assert!((0..KEYS).all(|key| index.get(&guard, &key) == Some(word(key, 0))), "{}", I::NAME);
    assert_eq!((index.verify(&guard), index.damage()), (vec![], None));
}

#[test]
fn operations_return_the_state_found() {
    check_found_states::<Clht<_, U64>>();
    check_found_states::<Level<_, U64>>();
    check_found_states::<Rewo<_, U64>>();
    check_found_states::<Turbo<_, U64>>();
}
