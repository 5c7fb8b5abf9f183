//! Tests: what a death, a crash or another thread leaves at any point of a change of the structure.

use super::change::Tried;
use super::layer::Dropped;
use super::node::Node;
use super::way::Layer;
use super::*;
use crate::hash::test_pools::{Medium, Power, interrupted, pool};
use crate::ordered::OrderedKind;
use crate::{Bytes, Decision, Direction, Fencing, Inserted, PointIndex, RangeIndex, RecordKeys, Stored, U64};
use std::collections::BTreeMap;
use std::ops::{Bound, ControlFlow};
use std::sync::{Arc, Mutex};
use terrace_medium::{Dram, MappedMedium};
use terrace_pool::Guard;
use terrace_testkit::schedule::Scheduler;

/// Records of a length and the bytes of a key.
pub(super) struct Text;

impl RecordKeys for Text {
    fn key<'g, M: MappedMedium>(guard: &'g Guard<'_, M>, offset: u64) -> Option<&'g [u8]> {
        let length = u64::from_le_bytes(guard.bytes(offset, 8)?.try_into().ok()?);
        guard.bytes(offset + 8, length.try_into().ok().filter(|length| *length <= 1 << 16)?)
    }
}

pub(super) type Strings = Bytes<Text>;
pub(super) type Texts = Masstree<Dram, Strings>;

pub(super) fn record<M: MappedMedium>(guard: &Guard<'_, M>, key: &[u8]) -> u64 {
    let fresh = guard.alloc(8 + key.len()).unwrap();
    fresh.write(0, &(key.len() as u64).to_le_bytes());
    fresh.write(8, key);
    fresh.persist().into_offset()
}

/// A tree of byte strings with nodes of four entries, and these keys.
pub(super) fn texts<'k>(keys: impl IntoIterator<Item = &'k [u8]>) -> (Texts, BTreeMap<Vec<u8>, u64>) {
    let index = Texts::with_width(&pool(4 << 20), "tree", 4).unwrap();
    let guard = index.tree.pool.pin();
    let add = |key: &[u8]| {
        let word = record(&guard, key);
        assert_eq!(index.insert(&guard, key, word), Ok(Inserted::New));
        (key.to_vec(), word)
    };
    let model = keys.into_iter().map(add).collect();
    drop(guard);
    (index, model)
}

/// A key whose first 24 bytes are those of all others in its layer, which skips a slice.
pub(super) fn text(tail: &[u8]) -> Vec<u8> {
    [&[b't'; 24], tail].concat()
}

pub(super) fn check_texts(index: &Texts, model: &BTreeMap<Vec<u8>, u64>) {
    let guard = index.tree.pool.pin();
    for (key, word) in model {
        assert_eq!(index.get_sound(&guard, key), Ok(Some(*word)), "{key:?}");
    }
    for direction in [Direction::Forward, Direction::Backward] {
        let mut found = Vec::new();
        index.range(&guard, Bound::Unbounded, Bound::Unbounded, direction, 9, |(), word| {
            found.push(word);
            ControlFlow::Continue(())
        });
        if direction == Direction::Backward {
            found.reverse();
        }
        assert!(found.iter().eq(model.values()), "{direction:?}");
    }
    assert_eq!((index.verify(&guard), index.len()), (vec![], model.len() as u64));
}

pub(super) fn deepest<'g>(index: &'g Texts, key: &[u8]) -> Layer<'g> {
    let layer = index.tree.layers_above(key, usize::MAX).unwrap().pop().unwrap();
    assert!(layer.above.is_some());
    layer
}

/// Removes a key as a thread does that dies before it looks at what is empty.
pub(super) fn remove_only<K: OrderedKind>(index: &Masstree<Dram, K>, key: &K::Key) {
    let guard = index.tree.pool.pin();
    let spot = index.locate(&guard, key).unwrap().unwrap();
    let held = index.lock_spot(&guard, &spot).unwrap().unwrap();
    let permutation = held.node.permutation(index.tree.pool.medium());
    let position = index.tree.position(held.node, permutation, spot.piece).unwrap();
    index.remove_at(&guard, held.node, position);
    held.lock.release();
}

/// The leaves of a layer.
fn leaves<'g, M: MappedMedium, K: OrderedKind>(index: &'g Masstree<M, K>, root: Node<'g>) -> Vec<Node<'g>> {
    let mut leaves = vec![index.tree.leaf_for(root, 0).unwrap().unwrap()];
    while !leaves[leaves.len() - 1].next(index.tree.pool.medium()).is_none() {
        leaves.push(index.tree.right_of(leaves[leaves.len() - 1], 0).unwrap());
    }
    leaves
}

#[test]
fn layer_that_has_come_since_is_not_dropped() {
    let keys = [text(b"one"), text(b"two")];
    let (index, mut model) = texts(keys.iter().map(|key| &key[..]));
    let guard = index.tree.pool.pin();
    let stale = deepest(&index, &keys[0]);
    keys.iter().for_each(|key| assert_eq!(index.remove(&guard, key), model.remove(key)));
    for key in &keys {
        let word = record(&guard, key);
        assert_eq!(index.insert(&guard, key, word), Ok(Inserted::New));
        model.insert(key.clone(), word);
    }
    assert!(deepest(&index, &keys[0]).depth == stale.depth);
    assert!(matches!(index.drop_layer(&guard, &stale), Ok(Dropped::No)));
    check_texts(&index, &model);
}

/// Threads that died have left a layer of empty leaves that nobody has frozen.
#[test]
fn layer_of_empty_leaves_that_nobody_froze_goes() {
    let keys: Vec<Vec<u8>> = (0..16).map(|tail| text(&[tail])).collect();
    let (index, mut model) = texts(keys.iter().map(|key| &key[..]));
    assert!(leaves(&index, deepest(&index, &keys[0]).root).len() > 2);
    keys.iter().for_each(|key| remove_only(&index, &key[..]));
    model.clear();
    check_texts(&index, &model);
    let guard = index.tree.pool.pin();
    assert_eq!(index.change(&guard, &text(b"new"), Fencing::Now, |_| Decision::Keep), Ok(None));
    let word = record(&guard, &text(b"new"));
    assert_eq!(index.insert(&guard, &text(b"new"), word), Ok(Inserted::New));
    model.insert(text(b"new"), word);
    check_texts(&index, &model);
    assert_eq!(index.stats(&guard).nodes, [1, 0, 0, 0]);
}

/// A leaf that was frozen by a thread that died keeps records that are gone: none of them tells
/// which keys the layer has.
#[test]
fn records_of_a_frozen_leaf_are_not_read() {
    let keys: Vec<Vec<u8>> = (0..12).map(|tail| text(&[tail])).collect();
    let (index, mut model) = texts(keys.iter().map(|key| &key[..]));
    let guard = index.tree.pool.pin();
    let all = leaves(&index, deepest(&index, &keys[0]).root);
    let first_of = |leaf: Node<'_>| {
        let medium = index.tree.pool.medium();
        leaf.permutation(medium).slots().map(|slot| leaf.entry(medium, slot).offset()).collect::<Vec<_>>()
    };
    // One key is left in the second leaf and in the third.
    let [second, third] = [first_of(all[1]), first_of(all[2])];
    for gone in second.iter().skip(1).chain(third.iter().skip(1)) {
        let key = model.iter().find(|(_, word)| *word == gone).unwrap().0.clone();
        remove_only(&index, &key[..]);
        model.remove(&key);
    }
    let locks = [all[1], all[2]].map(|leaf| index.lock(&guard, leaf, (0, 3)).unwrap());
    index.join_locked(all[1], all[2], 0);
    drop(locks);
    check_texts(&index, &model);
    for gone in first_of(all[0]).iter().chain(&second[..1]) {
        let key = model.iter().find(|(_, word)| *word == gone).unwrap().0.clone();
        remove_only(&index, &key[..]);
        model.remove(&key);
    }
    // The memory of the record has another one now.
    let other = [7u64, u64::from_le_bytes(*b"tttttttx")];
    for (nth, word) in other.into_iter().enumerate() {
        let place: &terrace_medium::Word =
            index.tree.pool.region().at(terrace_medium::Offset::new(second[0] + 8 * nth as u64));
        place.store(index.tree.pool.medium(), word, std::sync::atomic::Ordering::Relaxed);
    }
    for new in [text(b"new"), [&[b't'; 9][..], b"elsewhere"].concat()] {
        let word = record(&guard, &new);
        assert_eq!(index.insert(&guard, &new, word), Ok(Inserted::New));
        model.insert(new, word);
        check_texts(&index, &model);
    }
}

/// A key that goes to the right half of a leaf that was split since it was looked for makes a layer
/// there: a recount that has passed the left half has not passed it.
#[test]
fn new_layer_is_counted_with_the_leaf_that_has_it() {
    let keys: Vec<Vec<u8>> = (0..4).map(|first| [&[first * 2; 8][..], b"one"].concat()).collect();
    let (index, mut model) = texts(keys.iter().map(|key| &key[..]));
    let guard = index.tree.pool.pin();
    let new = [&[6; 8][..], b"two"].concat();
    let spot = index.locate(&guard, &new[..]).unwrap().unwrap();
    let key = [&[1; 8][..], b"one"].concat();
    model.insert(key.clone(), record(&guard, &key));
    assert_eq!(index.insert(&guard, &key[..], model[&key]), Ok(Inserted::New));
    let medium = index.tree.pool.medium();
    spot.leaf.set_shape(medium, spot.leaf.shape(medium).with_counted(7));
    model.insert(new.clone(), record(&guard, &new));
    let added: Tried<()> = index.add(&guard, &new[..], &spot, model[&new], &mut Fencing::Now);
    assert_eq!(added, Ok(Some(())));
    assert_eq!(deepest(&index, &new).root.shape(medium).counted(), 0);
    check_texts(&index, &model);
}

pub(super) type Integers = Masstree<Medium, U64>;

fn check_integers(index: &Integers, model: &BTreeMap<u64, u64>, at: &str) {
    let guard = index.tree.pool.pin();
    for key in 0..400 {
        assert_eq!(index.get_sound(&guard, &key), Ok(model.get(&key).copied()), "{key} {at}");
    }
    for direction in [Direction::Forward, Direction::Backward] {
        let mut found = Vec::new();
        index.range(&guard, Bound::Unbounded, Bound::Unbounded, direction, 9, |key, word| {
            found.push((key, word));
            ControlFlow::Continue(())
        });
        if direction == Direction::Backward {
            found.reverse();
        }
        assert!(found.into_iter().eq(model.clone()), "{direction:?} {at}");
    }
}

/// Loses power behind each event of a change, with each set of these lines kept, and lets `then`
/// go on. The change makes the model into the later one.
fn cut_off_anywhere(
    power: &Power,
    events: std::ops::Range<usize>,
    lines: &[Vec<u64>],
    (before, after): (&BTreeMap<u64, u64>, &BTreeMap<u64, u64>),
    then: impl Fn(&Integers, &mut BTreeMap<u64, u64>, &str),
) {
    for (event, kept) in
        (events.start..=events.end).flat_map(|event| lines.iter().map(move |kept| (event, kept)))
    {
        let pool = power.after_power_loss_at(event, kept);
        let index = Integers::recover(&pool, "tree").unwrap().unwrap();
        let at = format!("behind event {} of {}, {kept:?} kept", event - events.start, events.len());
        let differs = before.iter().find(|(key, word)| after.get(key) != Some(word));
        let differs = differs.or_else(|| after.iter().find(|(key, _)| !before.contains_key(key)));
        let key = *differs.expect("a change").0;
        let is_done = index.get(&pool.pin(), &key) == after.get(&key).copied();
        let mut model = if is_done { after.clone() } else { before.clone() };
        check_integers(&index, &model, &at);
        then(&index, &mut model, &at);
        check_integers(&index, &model, &at);
        // Counts are right once a collection has run.
        let trace = |marker: &mut terrace_pool::Marker<'_>| index.trace(&pool.pin(), marker, |_, _| ());
        pool.request_collection();
        pool.collect(&mut { trace });
        assert_eq!(index.verify(&pool.pin()), [], "{at}");
        for key in model.keys() {
            assert_eq!(index.remove(&pool.pin(), key), model.get(key).copied(), "{at}");
        }
        check_integers(&index, &BTreeMap::new(), &at);
        assert_eq!((index.verify(&pool.pin()), index.len()), (vec![], 0), "{at}");
        drop(index);
        pool.abandon();
    }
}

fn lines_of(power: &Power, node: Node<'_>, count: u64) -> impl Iterator<Item = u64> {
    let first = node.offset(power.pool.region()) / 64;
    first..first + count
}

/// A tree of nodes of eight entries: the even keys below so many.
pub(super) fn integers(power: &Power, below: u64) -> (Integers, BTreeMap<u64, u64>) {
    let index = Integers::with_width(&power.pool, "tree", 8).unwrap();
    let model: BTreeMap<u64, u64> = (0..below).step_by(10).map(|key| (key, key + 1)).collect();
    for (key, word) in &model {
        assert_eq!(index.insert(&power.pool.pin(), key, *word), Ok(Inserted::New));
    }
    (index, model)
}

#[test]
fn join_cut_off_anywhere_is_completed_or_undone() {
    let power = Power::new();
    let (index, mut model) = integers(&power, 320);
    // Two keys are left in the third leaf, and three in the second, of which one goes.
    for gone in [180, 190, 200, 210, 220, 230, 100, 110, 120, 130, 140] {
        assert_eq!(index.remove(&power.pool.pin(), &gone), model.remove(&gone));
    }
    let (left, right) = {
        let top = index.tree.top().unwrap();
        let leaves = leaves(&index, top);
        assert_eq!(leaves.len(), 4);
        (leaves[1], leaves[2])
    };
    let kept = [
        vec![],
        lines_of(&power, left, 1).collect(),
        lines_of(&power, right, 1).collect(),
        lines_of(&power, right, 5).collect(),
        lines_of(&power, left, 5).chain(lines_of(&power, right, 5)).collect(),
    ];
    let begun = power.trace().events().len();
    let before = model.clone();
    assert_eq!(index.remove(&power.pool.pin(), &150), model.remove(&150));
    assert!(leaves(&index, index.tree.top().unwrap()).len() < 4, "a join");
    let events = begun..power.trace().events().len();
    // The left one, or its heir, is filled and split, and emptied.
    cut_off_anywhere(&power, events, &kept, (&before, &model), |index, model, at| {
        let keys = || (81..200).filter(|key| key % 10 != 0).step_by(6);
        for key in keys() {
            assert_eq!(index.insert(&index.tree.pool.pin(), &key, 7), Ok(Inserted::New), "{at}");
            model.insert(key, 7);
        }
        check_integers(index, model, at);
        for key in keys() {
            assert_eq!(index.remove(&index.tree.pool.pin(), &key), model.remove(&key), "{at}");
        }
    });
}

#[test]
fn split_cut_off_anywhere_is_completed_or_undone() {
    let power = Power::new();
    let (index, mut model) = integers(&power, 320);
    let left = leaves(&index, index.tree.top().unwrap())[1];
    let root = index.tree.top().unwrap();
    let kept = [
        vec![],
        lines_of(&power, left, 1).collect(),
        lines_of(&power, root, 5).collect(),
        lines_of(&power, left, 5).chain(lines_of(&power, root, 5)).collect(),
    ];
    let begun = power.trace().events().len();
    let before = model.clone();
    assert_eq!(index.insert(&power.pool.pin(), &95, 3), Ok(Inserted::New));
    model.insert(95, 3);
    assert_eq!(leaves(&index, index.tree.top().unwrap()).len(), 5, "a split");
    let events = begun..power.trace().events().len();
    // The halves are split again, and emptied.
    cut_off_anywhere(&power, events, &kept, (&before, &model), |index, model, at| {
        let keys = || (81..170).filter(|key| key % 5 != 0).step_by(3);
        for key in keys() {
            assert_eq!(index.insert(&index.tree.pool.pin(), &key, 7), Ok(Inserted::New), "{at}");
            model.insert(key, 7);
        }
        check_integers(index, model, at);
        for key in keys() {
            assert_eq!(index.remove(&index.tree.pool.pin(), &key), model.remove(&key), "{at}");
        }
    });
}

/// A reader that is held up anywhere while its key's slot is emptied and taken by another key, so
/// that the permutation is the same again, does not return that one's word.
#[test]
fn reader_held_up_while_its_slot_is_used_again_starts_anew() {
    let scheduler = Scheduler::new();
    for steps in 1..80 {
        let power = Power::new();
        let (index, _) = integers(&power, 30);
        let index = Arc::new(index);
        let found = Arc::new(Mutex::new(None));
        let (reader, answer) = (index.clone(), found.clone());
        let read = move || {
            *answer.lock().unwrap() = Some(reader.get(&reader.tree.pool.pin(), &10));
        };
        let other = index.clone();
        interrupted(&scheduler, steps, read, move || {
            assert_eq!(other.remove(&other.tree.pool.pin(), &10), Some(11));
            assert_eq!(other.insert(&other.tree.pool.pin(), &11, 12), Ok(Inserted::New));
        });
        let found = found.lock().unwrap().take().expect("an answer");
        assert!(found.is_none_or(|word| word == 11), "{found:?} after {steps} steps");
    }
}

/// Layers in a row, each with nothing but the next one, the last of which is empty: what threads
/// leave that have died. The first one may have another key, behind its entry of the next one. The
/// last one's leaf may be frozen.
fn nested(count: usize, (has_other, is_frozen): (bool, bool)) -> (Texts, BTreeMap<Vec<u8>, u64>) {
    let along = |layers: usize, tail: &[u8]| text(&[&vec![b'b'; 24 * layers], tail].concat());
    let last = [along(count - 1, b"1"), along(count - 1, b"2")];
    let others: Vec<_> = (0..count - 1).map(|layers| along(layers, b"c")).collect();
    let (index, mut model) = texts(last.iter().chain(&others).map(|key| &key[..]));
    let guard = index.tree.pool.pin();
    let layer = deepest(&index, &last[0]);
    assert_eq!((layer.depth, model.len()), (3 * count, count + 1));
    last.iter().for_each(|key| remove_only(&index, &key[..]));
    if is_frozen {
        let locked = index.lock(&guard, layer.root, (0, layer.depth)).unwrap();
        index.freeze(layer.root);
        locked.release();
    }
    others.iter().skip(usize::from(has_other)).for_each(|key| remove_only(&index, &key[..]));
    model.retain(|key, _| has_other && *key == others[0]);
    drop(guard);
    (index, model)
}

/// The words of a range to both sides of a key.
fn around(index: &Texts, key: &[u8], direction: Direction) -> Vec<u64> {
    let (guard, mut found) = (index.tree.pool.pin(), Vec::new());
    for (from, to) in [(Bound::Unbounded, Bound::Excluded(key)), (Bound::Included(key), Bound::Unbounded)] {
        index.range(&guard, from, to, direction, 9, |(), word| {
            found.push(word);
            ControlFlow::Continue(())
        });
    }
    found
}

/// A layer's keys are sought to be compared with a new one, and its first entry leads to layers
/// without keys.
#[test]
fn layers_without_keys_below_others_are_in_nobodys_way() {
    let news = [
        text(b"a"),
        text(b"new"),
        text(&[b'b'; 9]),
        text(&[b'b'; 25]),
        text(&[b'b'; 49]),
        text(&[&[b'b'; 30][..], b"elsewhere"].concat()),
        [&[b't'; 9][..], b"elsewhere"].concat(),
    ];
    for new in &news {
        for (count, has_other, is_frozen) in
            (2..5).flat_map(|count| (0..4).map(move |bits| (count, bits & 1 > 0, bits & 2 > 0)))
        {
            let at = format!("{new:?}, {count} layers, {has_other}, {is_frozen}");
            let (index, mut model) = nested(count, (has_other, is_frozen));
            let guard = index.tree.pool.pin();
            for direction in [Direction::Forward, Direction::Backward] {
                assert!(around(&index, new, direction).iter().eq(model.values()), "{direction:?}, {at}");
            }
            let tries = (0..9).find(|_| index.locate(&guard, &new[..]).unwrap().is_some());
            assert!(tries.is_some_and(|tries| tries < 2), "{tries:?}, {at}");
            model.insert(new.clone(), record(&guard, new));
            assert_eq!(index.insert(&guard, new, model[new]), Ok(Inserted::New), "{at}");
            check_texts(&index, &model);
            for (key, word) in &model {
                assert_eq!(index.remove(&guard, key), Some(*word), "{at}");
            }
            assert_eq!((index.stats(&guard).nodes, index.damage()), ([1, 0, 0, 0], None), "{at}");
        }
    }
}
