//! The trees behave as ordered maps, with integers and with byte strings of every awkward shape,
//! also while several threads use them.

use super::space;
use crate::baselines::{FastFair, IntegerKeys, KeyForm, OrderedBaseline, SpaceFull, StringKeys, Woart};
use crate::{Random, spread};
use std::borrow::Borrow;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use terrace_medium::{Dram, MappedMedium};
use terrace_testkit::{TappedPmem, TappedShm, jittery};

/// A kind of keys with a key for each number.
trait NumberedKeys: KeyForm {
    fn numbered(number: u64) -> Self::Owned;

    /// The bytes of a key, by which a model sorts.
    fn in_model(key: &Self::Owned) -> Vec<u8> {
        Self::bytes(key.borrow()).as_ref().to_vec()
    }
}

impl NumberedKeys for IntegerKeys {
    /// Half of them dense, half of them anywhere.
    fn numbered(number: u64) -> u64 {
        if number.is_multiple_of(2) { number } else { spread(number) }
    }
}

impl NumberedKeys for StringKeys {
    /// Strings that begin others, with equal beginnings of all lengths, of zeros and of ones.
    fn numbered(number: u64) -> Vec<u8> {
        let digits = number / 6;
        match number % 6 {
            0 => format!("{digits:b}").into_bytes(),
            1 => vec![0; digits as usize % 3000],
            2 => format!("{:0>200}", digits % 97).into_bytes(),
            3 => [vec![0xff; digits as usize % 40], digits.to_be_bytes().to_vec()].concat(),
            4 => format!("user{:020}", spread(digits)).into_bytes(),
            _ => digits.to_le_bytes()[..digits as usize % 9].to_vec(),
        }
    }
}

fn tree<K: KeyForm, T: OrderedBaseline<M, K>, M: MappedMedium>() -> T {
    T::create(space(64 << 20)).expect("room for a tree")
}

fn scanned<M: MappedMedium, K: KeyForm>(
    tree: &impl OrderedBaseline<M, K>,
    from: &K::Key,
    most: usize,
) -> Vec<u64> {
    let mut values = Vec::new();
    tree.scan(from, most, &mut |value| values.push(value));
    values
}

/// Applies random operations to a tree and to a model. `remove` removes a key, or does nothing.
fn check_tree<K: NumberedKeys, T: OrderedBaseline<Dram, K>>(
    (numbers, operations): (u64, u64),
    remove: impl Fn(&T, &K::Key) -> Option<Option<u64>>,
) -> T {
    let (tree, mut model, mut random) = (tree::<K, T, Dram>(), BTreeMap::new(), Random::new(7));
    for nth in 0..operations {
        let number = random.below(numbers);
        let owned = K::numbered(number);
        let (key, id) = (owned.borrow(), K::in_model(&owned));
        match random.below(16) {
            0..6 => {
                let is_new = tree.insert(key, nth).expect("room for a key");
                assert_eq!(is_new, !model.contains_key(&id), "insert of {id:?}");
                model.entry(id).or_insert(nth);
            }
            6 | 7 => {
                let is_there = model.get_mut(&id).map(|value| *value = nth).is_some();
                assert_eq!(tree.update(key, nth), is_there, "update of {id:?}");
            }
            8..11 => {
                if let Some(removed) = remove(&tree, key) {
                    assert_eq!(removed, model.remove(&id), "removal of {id:?}");
                }
            }
            11 => {
                let most = random.below(130) as usize;
                let expected: Vec<u64> =
                    model.range(id.clone()..).map(|(_, value)| *value).take(most).collect();
                assert_eq!(scanned(&tree, key, most), expected, "scan of {most} from {id:?}");
            }
            _ => assert_eq!(tree.get(key), model.get(&id).copied(), "get of {id:?}"),
        }
    }
    for key in (0..numbers).map(K::numbered) {
        assert_eq!(tree.get(key.borrow()), model.get(&K::in_model(&key)).copied());
    }
    tree
}

/// Empties a tree from one end, fills it, and the same from the other end.
fn check_ends<K: NumberedKeys>(tree: &FastFair<Dram, K>, numbers: u64) {
    let mut keys: Vec<K::Owned> = (0..numbers).map(K::numbered).collect();
    keys.sort_by_key(K::in_model);
    keys.dedup_by_key(|key| K::in_model(key));
    for _ in 0..2 {
        keys.iter().for_each(|key| _ = tree.remove(key.borrow()));
        for key in keys.iter().step_by(keys.len() / 8) {
            assert_eq!((tree.get(key.borrow()), scanned(tree, key.borrow(), 1)), (None, vec![]));
        }
        keys.iter().for_each(|key| assert_eq!(tree.insert(key.borrow(), 1), Ok(true)));
        keys.reverse();
    }
    assert_eq!(scanned(tree, keys[0].borrow(), usize::MAX).len(), keys.len());
}

fn check_fast_fair<K: NumberedKeys>(size: (u64, u64)) {
    let tree = check_tree::<K, FastFair<Dram, K>>(size, |tree, key| Some(tree.remove(key)));
    check_ends::<K>(&tree, size.0);
}

#[test]
fn fast_fair_is_an_ordered_map() {
    for size in [(60, 20_000), (1000, 60_000), (60_000, 200_000)] {
        check_fast_fair::<IntegerKeys>(size);
        check_fast_fair::<StringKeys>((size.0, size.1 / 4));
    }
}

#[test]
fn woart_is_an_ordered_map() {
    for size in [(60, 20_000), (1000, 60_000), (60_000, 200_000)] {
        check_tree::<IntegerKeys, Woart<Dram>>(size, |_, _| None);
        check_tree::<StringKeys, Woart<Dram, StringKeys>>((size.0, size.1 / 4), |_, _| None);
    }
}

#[test]
fn trees_hold_any_value_and_extreme_keys() {
    fn check<K: KeyForm<Key = u64>>(tree: &impl OrderedBaseline<Dram, K>, greatest: u64) {
        // Equal values in a row, and 0.
        let keys = [0, 1, 2, 3, 255, 256, 257, 1 << 32, 1 << 63, greatest - 1, greatest];
        for (nth, key) in keys.into_iter().enumerate() {
            assert_eq!(tree.insert(&key, [0, 7, u64::MAX][nth % 3]), Ok(true));
        }
        assert!(keys.iter().all(|key| tree.update(key, 5) && tree.get(key) == Some(5)));
        assert_eq!(scanned(tree, &0, 100), [5; 11]);
        assert_eq!(scanned(tree, &greatest, 100), [5]);
        assert_eq!((tree.get(&4), tree.insert(&0, 1)), (None, Ok(false)));
    }
    check(&tree::<IntegerKeys, FastFair<Dram>, Dram>(), u64::MAX - 1);
    check(&tree::<IntegerKeys, Woart<Dram>, Dram>(), u64::MAX);
}

#[test]
fn full_memory_refuses_keys_and_keeps_the_others() {
    fn check<K: NumberedKeys, T: OrderedBaseline<Dram, K>>() {
        let tree = T::create(space(1 << 20)).expect("room for a tree");
        let refused = (0..)
            .map(|number| 6 * number + 4)
            .find(|&number| tree.insert(K::numbered(number).borrow(), number) == Err(SpaceFull));
        let refused = refused.expect("a full tree");
        for number in (4..refused).step_by(6) {
            assert_eq!(tree.get(K::numbered(number).borrow()), Some(number), "{}", T::NAME);
        }
        assert_eq!(tree.get(K::numbered(refused).borrow()), None);
        assert!(refused > 6 * 5000 && tree.bytes() <= 1 << 20, "full after {} keys", refused / 6);
    }
    check::<IntegerKeys, FastFair<Dram>>();
    check::<StringKeys, FastFair<Dram, StringKeys>>();
    check::<IntegerKeys, Woart<Dram>>();
    check::<StringKeys, Woart<Dram, StringKeys>>();
}

/// Write-backs and fences of a random insert, the mean of many.
fn costs<K: KeyForm, T: OrderedBaseline<TappedPmem, K>>(key: impl Fn(u64) -> K::Owned) -> [f64; 2] {
    const KEYS: u64 = 100_000;
    let space = space::<TappedPmem>(128 << 20);
    let tree = T::create(space.clone()).expect("room for a tree");
    let keys: Vec<K::Owned> = (0..KEYS).map(key).collect();
    let insert = |key: &K::Owned| assert_eq!(tree.insert(key.borrow(), 1), Ok(true));
    let counts = space.medium().during(|| keys.iter().for_each(insert)).0;
    for (what, most) in [(true, 1), (false, 0)] {
        let counts = space.medium().during(|| {
            let key = keys[keys.len() / 2].borrow();
            assert!(if what { tree.update(key, 2) } else { tree.get(key) == Some(2) });
        });
        assert_eq!((counts.0.write_backs, counts.0.fences), (most, most), "{}", T::NAME);
    }
    [counts.write_backs, counts.fences].map(|count| count as f64 / KEYS as f64)
}

#[test]
fn inserts_cost_the_documented_write_backs_and_fences() {
    let near = |found: [f64; 2], expected: [f64; 2]| {
        let is_near = found.iter().zip(expected).all(|(found, expected)| (found - expected).abs() < 0.05);
        assert!(is_near, "{found:?} write-backs and fences an insert, not {expected:?}");
    };
    let string = |n| format!("user{:020}", spread(n)).into_bytes();
    near(costs::<IntegerKeys, FastFair<_>>(spread), [4.14, 3.94]);
    near(costs::<StringKeys, FastFair<_, StringKeys>>(string), [5.14, 4.94]);
    near(costs::<IntegerKeys, Woart<_>>(spread), [2.57, 2.43]);
    near(costs::<StringKeys, Woart<_, StringKeys>>(string), [2.87, 2.67]);
}

/// Threads change keys of their own; others read keys that are always there, and scan.
fn check_threads<K: NumberedKeys, T: OrderedBaseline<TappedShm, K>>(
    remove: impl Fn(&T, &K::Key) -> Option<Option<u64>> + Sync,
) {
    const NUMBERS: u64 = 3000;
    const CHANGES: u64 = 15_000;
    const OWNERS: u64 = 3;
    let (tree, is_over) = (jittery(tree::<K, T, TappedShm>), AtomicBool::new(false));
    let mut keys: Vec<K::Owned> = (0..NUMBERS).map(K::numbered).collect();
    keys.sort_by_key(K::in_model);
    keys.dedup_by_key(|key| K::in_model(key));
    let of = |owner: u64| (0..keys.len() as u64).filter(move |nth| nth % OWNERS == owner);
    // A value is the place of its key among all, and the number of the change.
    let value = |nth: u64, change: u64| change << 32 | nth;
    of(0).for_each(|nth| assert_eq!(tree.insert(keys[nth as usize].borrow(), value(nth, 0)), Ok(true)));
    let change = |owner: u64| {
        let (mut random, mut model) = (Random::new(owner), BTreeMap::new());
        for change in 1..CHANGES {
            let nth = random.below(keys.len() as u64) / OWNERS * OWNERS + owner;
            let Some(key) = keys.get(nth as usize) else { continue };
            let key = key.borrow();
            match random.below(4) {
                0 => assert_eq!(tree.update(key, value(nth, change)), model.contains_key(&nth)),
                1 => match remove(&tree, key) {
                    Some(removed) => assert_eq!(removed, model.remove(&nth)),
                    None => continue,
                },
                _ => assert_eq!(tree.insert(key, value(nth, change)), Ok(!model.contains_key(&nth))),
            }
            let now = tree.get(key);
            assert!(now.is_none_or(|now| now & 0xffff_ffff == nth), "{now:?} for key {nth}");
            match now {
                Some(now) => model.insert(nth, now),
                None => model.remove(&nth),
            };
        }
        model
    };
    let read = || {
        let mut random = Random::new(9);
        while !is_over.load(Relaxed) {
            let nth = random.below(keys.len() as u64) / OWNERS * OWNERS;
            let found = tree.get(keys[nth as usize].borrow());
            assert_eq!(found, Some(value(nth, 0)), "key {nth} is always there");
            let most = 1 + random.below(400) as usize;
            let seen: Vec<u64> = scanned(&tree, keys[nth as usize].borrow(), most);
            let seen: Vec<u64> = seen.into_iter().map(|value| value & 0xffff_ffff).collect();
            assert!(seen.is_sorted_by(|one, next| one < next), "a scan is in order: {seen:?}");
            let last = seen.last().copied().filter(|_| seen.len() == most).unwrap_or(keys.len() as u64 - 1);
            let steady = seen.iter().copied().filter(|nth| nth % OWNERS == 0);
            assert!(steady.eq(of(0).filter(|always| (nth..=last).contains(always))), "from {nth}: {seen:?}");
        }
    };
    let models: Vec<_> = std::thread::scope(|scope| {
        let readers = [scope.spawn(read), scope.spawn(read)];
        let writers: Vec<_> = (1..OWNERS).map(|owner| scope.spawn(move || change(owner))).collect();
        let models: Vec<_> = writers.into_iter().map(|writer| writer.join()).collect();
        is_over.store(true, Relaxed);
        readers.into_iter().for_each(|reader| reader.join().expect("a reader"));
        models.into_iter().map(|model| model.expect("a writer")).collect()
    });
    let mut all: BTreeMap<u64, u64> = of(0).map(|nth| (nth, value(nth, 0))).collect();
    models.into_iter().for_each(|model: BTreeMap<u64, u64>| all.extend(model));
    let all: Vec<u64> = all.into_values().collect();
    assert_eq!(scanned(&tree, keys[0].borrow(), usize::MAX), all);
}

#[test]
fn fast_fair_threads_change_and_read_during_splits() {
    check_threads::<IntegerKeys, FastFair<_>>(|tree, key| Some(tree.remove(key)));
    check_threads::<StringKeys, FastFair<_, StringKeys>>(|tree, key| Some(tree.remove(key)));
}

#[test]
fn woart_threads_take_turns() {
    check_threads::<IntegerKeys, Woart<_>>(|_, _| None);
}
