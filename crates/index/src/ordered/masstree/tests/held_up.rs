//! Tests: a thread that is held up at any point of a call, while another one changes the structure,
//! takes nothing for damage, and misses nothing that is there throughout.

use super::Masstree;
use super::layer::Dropped;
use super::tests::{
    Integers, Strings, Texts, check_texts, deepest, integers, record, remove_only, text, texts,
};
use super::tree::Step;
use crate::hash::test_pools::{Medium, Power, interrupted};
use crate::{Direction, Inserted, PointIndex, RangeIndex, Stored};
use std::collections::BTreeMap;
use std::ops::{Bound, ControlFlow};
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use terrace_testkit::schedule::Scheduler;

/// Runs `one` for each number of steps, then `other`, then the rest of `one`, each time over what
/// `make` makes; `check` gets that, the answer and the number of steps.
fn held_up_anywhere<I: Send + Sync + 'static, T: Send + 'static>(
    make: impl Fn() -> I,
    one: fn(&I) -> T,
    other: fn(&I),
    check: impl Fn(&I, T, u32),
) {
    let scheduler = Scheduler::new();
    for steps in 1.. {
        let made = Arc::new(make());
        let (answer, is_late) = (Arc::new(Mutex::new(None)), Arc::new(AtomicBool::new(false)));
        let (first, found) = (made.clone(), answer.clone());
        let (second, before, late) = (made.clone(), answer.clone(), is_late.clone());
        interrupted(
            &scheduler,
            steps,
            move || *found.lock().unwrap() = Some(one(&first)),
            move || {
                late.store(before.lock().unwrap().is_some(), SeqCst);
                other(&second);
            },
        );
        check(&made, answer.lock().unwrap().take().expect("an answer"), steps);
        if is_late.load(SeqCst) {
            assert!(steps > 20, "{steps} steps");
            return;
        }
    }
}

/// A tree of integers, its pool, and what it has.
type Tree = (Power, Integers, BTreeMap<u64, u64>);

fn tree(gone: impl IntoIterator<Item = u64>) -> Tree {
    let power = Power::new();
    let (index, mut model) = integers(&power, 320);
    for key in gone {
        assert_eq!(index.remove(&power.pool.pin(), &key), model.remove(&key));
    }
    (power, index, model)
}

fn range(index: &Integers, direction: Direction) -> Vec<(u64, u64)> {
    let mut found = Vec::new();
    index.range(&index.tree.pool.pin(), Bound::Unbounded, Bound::Unbounded, direction, 9, |key, word| {
        found.push((key, word));
        ControlFlow::Continue(())
    });
    found
}

/// The leaf that a walk has read takes over what lies before it, and is split below its old begin.
#[test]
fn walk_beside_a_join_and_a_split_misses_no_key() {
    // Three keys are left in the second leaf, and two in the third.
    let make = || tree([180, 190, 200, 210, 220, 230, 110, 120, 130, 140, 150]);
    let ranges: [fn(&(Power, Integers, _)) -> _; 2] = [
        |(_, index, _)| range(index, Direction::Forward),
        |(_, index, _)| {
            let mut found = range(index, Direction::Backward);
            found.reverse();
            found
        },
    ];
    for walk in ranges {
        let other = |(_, index, _): &Tree| {
            let guard = index.tree.pool.pin();
            assert_eq!(index.remove(&guard, &100), Some(101));
            for key in 81..86 {
                assert_eq!(index.insert(&guard, &key, key + 1), Ok(Inserted::New));
            }
        };
        held_up_anywhere(make, walk, other, |(power, index, model), found, steps| {
            assert!(found.is_sorted_by(|one, next| one.0 < next.0), "{found:?} after {steps} steps");
            let stays = |key: &u64| key.is_multiple_of(10) && *key != 100;
            let found: Vec<_> = found.into_iter().filter(|(key, _)| stays(key)).collect();
            let stay = model.clone().into_iter().filter(|(key, _)| stays(key));
            assert!(stay.eq(found.iter().copied()), "{found:?} after {steps} steps");
            let guard = power.pool.pin();
            assert_eq!((index.damage(), index.verify(&guard)), (None, vec![]), "after {steps} steps");
        });
    }
}

/// The last leaf is split, and joins its new neighbour: a reader that took it for the last one goes
/// on to that.
#[test]
fn key_of_a_last_leaf_that_was_split_and_joined_is_found() {
    let other = |(_, index, _): &Tree| {
        let guard = index.tree.pool.pin();
        assert_eq!(index.insert(&guard, &315, 316), Ok(Inserted::New));
        for key in (260..320).step_by(10) {
            assert_eq!(index.remove(&guard, &key), Some(key + 1));
        }
    };
    let one = |(_, index, _): &Tree| {
        let guard = index.tree.pool.pin();
        let mut found = vec![index.get_sound(&guard, &240).unwrap(), index.get(&guard, &250)];
        index.get_many(&guard, &[240], |_, word| found.push(word));
        found
    };
    held_up_anywhere(
        || tree([]),
        one,
        other,
        |(_, index, _), found, steps| {
            assert_eq!(found, [Some(241), Some(251), Some(241)], "after {steps} steps");
            assert_eq!(index.damage(), None, "after {steps} steps");
        },
    );
}

/// A split that moves only the new entry changes the node's end, and no permutation.
#[test]
fn end_of_a_node_beside_a_split_is_no_damage() {
    let other = |(_, index, _): &Tree| {
        assert_eq!(index.insert(&index.tree.pool.pin(), &155, 156), Ok(Inserted::New));
    };
    let ones: [fn(&Tree) -> usize; 2] = [
        |(_, index, _)| {
            let guard = index.tree.pool.pin();
            [151, 154].iter().filter(|key| index.get_sound(&guard, *key) != Ok(None)).count()
        },
        |(_, index, _)| {
            let found = range(index, Direction::Forward);
            found.iter().filter(|(key, _)| key % 10 == 0).count() - 32
        },
    ];
    for one in ones {
        held_up_anywhere(
            || tree([]),
            one,
            other,
            |(_, index, _), wrong, steps| {
                assert_eq!((wrong, index.damage()), (0, None), "after {steps} steps");
            },
        );
    }
}

/// A parent has taken over the range before its first entry, whose child is split at just that
/// entry: a reader that goes by the entries of before does not take the new child for the first.
#[test]
fn reader_beside_a_split_at_a_parents_first_entry_finds_its_key() {
    // The range of the last parent but one goes to the first child of the last one.
    let make = || {
        let power = Power::new();
        let (index, mut model) = integers(&power, 3040);
        let (guard, medium) = (power.pool.pin(), power.pool.medium());
        let root = index.tree.first_layer().unwrap().root;
        let last = index.tree.node_for(root, 1, 3030).unwrap().unwrap();
        let end = last.low(medium);
        let low = index.tree.node_for(root, 1, end - 1).unwrap().unwrap().low(medium);
        // Four keys are left there, and four come before them.
        for key in (low..end).step_by(10).chain((end + 40..end + 80).step_by(10)) {
            assert_eq!(index.remove(&guard, &key), model.remove(&key));
        }
        for key in low..low + 4 {
            assert_eq!(index.insert(&guard, &key, key + 1), Ok(Inserted::New));
        }
        let first = last.slice(medium, last.permutation(medium).slot(0));
        assert_eq!((last.low(medium), first), (low, end), "a parent that has taken over a range");
        drop(guard);
        (power, index, (low, end))
    };
    held_up_anywhere(
        make,
        |(_, index, (low, _))| index.get_sound(&index.tree.pool.pin(), &(low + 2)),
        |(_, index, (_, end))| {
            let key = end + 5;
            assert_eq!(index.insert(&index.tree.pool.pin(), &key, key + 1), Ok(Inserted::New));
        },
        |(_, index, (low, _)), found, steps| {
            assert_eq!((found, index.damage()), (Ok(Some(low + 3)), None), "after {steps} steps");
        },
    );
}

/// A layer goes, and the leaf above it is empty. Before its thread looks at that, others remove the
/// layer above, too, or make a new layer at the old one's place.
#[test]
fn layers_that_have_changed_above_a_removed_one_are_left_alone() {
    // In a layer of one key, two slices below another one that has nothing else.
    let [last, beside] = [text(b"bbbbbbbbbbbbbbbbbbbbbbbb1"), text(b"bbbbbbbbbbbbbbbbbbbbbbbb2")];
    let single = text(b"a");
    let news = [text(b"bbbbbbbbcccccccc1"), text(b"bbbbbbbbcccccccc2")];
    for nth in 0..3 {
        let (index, mut model) = texts([&last[..], &beside, &single]);
        let guard = index.tree.pool.pin();
        let remove = |key: &[u8]| assert!(index.remove(&guard, key).is_some(), "{key:?}");
        let insert = |key: &[u8]| {
            let word = record(&guard, key);
            assert_eq!(index.insert(&guard, key, word), Ok(Inserted::New));
            (key.to_vec(), word)
        };
        model.clear();
        remove(&beside);
        remove(&single);
        let removed = deepest(&index, &last);
        remove_only(&index, &last[..]);
        let Ok(Dropped::Gone(Some(leaf))) = index.drop_layer(&guard, &removed) else {
            panic!("the leaf above, which is empty");
        };
        match nth {
            0 => {}
            1 => {
                insert(&single);
                remove(&single);
            }
            _ => model.extend(news.iter().map(|key| insert(key))),
        }
        let next = index.layer_above(&last, &removed, &mut None).unwrap();
        assert_eq!(next.is_some(), nth == 0);
        if let Some(layer) = next {
            index.tidy(&guard, &last, leaf, layer);
        }
        check_texts(&index, &model);
        assert_eq!(index.damage(), None);
    }
}

/// A layer goes while one of its nodes is frozen and linked still: a reader in the node before that
/// is led on past both.
#[test]
fn reader_in_a_layer_that_goes_is_led_past_its_frozen_nodes() {
    for level in [0, 1] {
        let keys: Vec<Vec<u8>> = (0..100).map(|tail| text(&[tail])).collect();
        let (index, mut model) = texts(keys.iter().map(|key| &key[..]));
        let (guard, tree) = (index.tree.pool.pin(), &index.tree);
        let layer = deepest(&index, &keys[0]);
        let first = tree.node_for(layer.root, level, 0).unwrap().unwrap();
        let second = tree.right_of(first, level).unwrap();
        let third = tree.right_of(second, level).unwrap();
        let locks = [second, third].map(|node| index.lock(&guard, node, (level, layer.depth)).unwrap());
        index.join_locked(second, third, level);
        drop(locks);
        keys.iter().for_each(|key| remove_only(&index, &key[..]));
        model.clear();
        assert!(matches!(index.drop_layer(&guard, &layer), Ok(Dropped::Gone(Some(_)))));
        let mut node = first;
        while let Step::Right(next) = tree.step(node, level, 0).unwrap() {
            node = next;
        }
        assert!(node != first && index.damage().is_none(), "{:?}", index.damage());
        check_texts(&index, &model);
    }
}

/// A tree with one key, in the second of two layers below the first one, and that key. Both skip
/// slices.
fn last_of_two_layers() -> (Texts, Vec<u8>) {
    let last = text(&[b'b'; 25]);
    let others = [text(&[&[b'b'; 24][..], b"c"].concat()), text(b"c")];
    let (index, _) = texts([&last].into_iter().chain(&others).map(|key| &key[..]));
    for key in &others {
        assert!(index.remove(&index.tree.pool.pin(), key).is_some());
    }
    (index, last)
}

/// Keys that differ from the last one in the slices that the lower and the upper layer skips.
fn between() -> [Vec<u8>; 2] {
    [text(&[&[b'b'; 9][..], b"elsewhere"].concat()), [&[b't'; 9][..], b"elsewhere"].concat()]
}

/// A thread has found the last key of a layer. Before it removes it, keys come that part the layer
/// from the one that its thread knows to be above it.
#[test]
fn layer_that_goes_as_others_come_above_it_is_removed() {
    let [lower, upper] = between();
    for news in [vec![&lower], vec![&upper], vec![&lower, &upper], vec![&upper, &lower]] {
        let (index, last) = last_of_two_layers();
        let guard = index.tree.pool.pin();
        let spot = index.locate(&guard, &last[..]).unwrap().unwrap();
        let mut model = BTreeMap::new();
        for key in &news {
            model.insert(key.to_vec(), record(&guard, key));
            assert_eq!(index.insert(&guard, key, model[*key]), Ok(Inserted::New));
        }
        let held = index.lock_spot(&guard, &spot).unwrap().unwrap();
        index.remove_at(&guard, held.node, 0);
        held.lock.release();
        index.tidy(&guard, &last, spot.leaf, spot.layer);
        check_texts(&index, &model);
        news.iter().for_each(|key| assert_eq!(index.remove(&guard, key), model.remove(*key)));
        check_texts(&index, &model);
        assert_eq!((index.stats(&guard).nodes, index.damage()), ([1, 0, 0, 0], None), "{news:?}");
    }
}

/// A thread knows the layers above one that it removes. Meanwhile another one has come between.
#[test]
fn layer_that_came_above_a_removed_one_is_found() {
    let (index, last) = last_of_two_layers();
    let guard = index.tree.pool.pin();
    let mut above = Some(index.tree.layers_above(&last, 6).unwrap());
    let [lower, _] = between();
    assert_eq!(index.insert(&guard, &lower, record(&guard, &lower)), Ok(Inserted::New));
    remove_only(&index, &lower[..]);
    remove_only(&index, &last[..]);
    let layer = index.tree.layer_at(&last, 6).unwrap().expect("the layer");
    let Ok(Dropped::Gone(Some(leaf))) = index.drop_layer(&guard, &layer) else {
        panic!("the leaf above, which is empty");
    };
    let next = index.layer_above(&last, &layer, &mut above).unwrap().expect("the layer between");
    assert_eq!(next.depth, 4);
    index.tidy(&guard, &last, leaf, next);
    check_texts(&index, &BTreeMap::new());
    assert_eq!((index.stats(&guard).nodes, index.damage()), ([1, 0, 0, 0], None));
}

/// Byte strings, and their pool.
type Strung = (Power, Masstree<Medium, Strings>);

fn insert((power, index): &Strung, key: &[u8]) {
    let guard = power.pool.pin();
    assert_eq!(index.insert(&guard, key, record(&guard, key)), Ok(Inserted::New));
}

fn remove((power, index): &Strung, key: &[u8]) {
    assert!(index.remove(&power.pool.pin(), key).is_some());
}

/// As above, with the thread held up at each of its first steps, and the keys in either order.
#[test]
fn layer_that_goes_beside_others_that_come_is_removed() {
    let last = || text(&[b'b'; 25]);
    let others: [fn(&Strung); 2] = [
        |made| between().iter().for_each(|key| insert(made, key)),
        |made| between().iter().rev().for_each(|key| insert(made, key)),
    ];
    let scheduler = Scheduler::new();
    for (steps, other) in (1..400).flat_map(|steps| others.map(|other| (steps, other))) {
        let power = Power::new();
        let index = Masstree::with_width(&power.pool, "tree", 4).unwrap();
        let made = Arc::new((power, index));
        let beside = [text(&[&[b'b'; 24][..], b"c"].concat()), text(b"c")];
        [last()].iter().chain(&beside).for_each(|key| insert(&made, key));
        beside.iter().for_each(|key| remove(&made, key));
        let (first, second) = (made.clone(), made.clone());
        interrupted(&scheduler, steps, move || remove(&first, &last()), move || other(&second));
        let (power, index) = &*made;
        assert_eq!(index.verify(&power.pool.pin()), [], "after {steps} steps");
        between().iter().for_each(|key| remove(&made, key));
        let guard = power.pool.pin();
        let found = (index.stats(&guard).nodes, index.len(), index.damage());
        assert_eq!(found, ([1, 0, 0, 0], 0, None), "after {steps} steps");
    }
}
