//! Items in a map, and steps among them, that tests compare with.

use proptest::prelude::*;
use std::cmp::{Ordering, Reverse};
use std::collections::BTreeMap;
use terrace_disk::{Content, Item, OwnedItem, Sorted, Source};

/// Versions of keys, in the order of tables.
pub(crate) type Model = BTreeMap<(Vec<u8>, Reverse<u64>), Option<(Vec<u8>, Option<u64>)>>;

fn item<'m>(
    (key, seq): &'m (Vec<u8>, Reverse<u64>),
    content: &'m Option<(Vec<u8>, Option<u64>)>,
) -> Item<'m> {
    let content = match content {
        None => Content::Tombstone,
        Some((value, expires_at)) => Content::Put { value, expires_at: *expires_at },
    };
    Item { key, seq: seq.0, content }
}

pub(crate) fn items(model: &Model) -> Vec<Item<'_>> {
    model.iter().map(|(at, content)| item(at, content)).collect()
}

pub(crate) fn sorted(items: &[Item<'_>]) -> Sorted {
    Sorted::new(items.iter().map(|&item| OwnedItem::from(item)).collect::<Vec<_>>())
}

pub(crate) fn keys() -> impl Strategy<Value = Vec<u8>> {
    prop::collection::vec(prop_oneof![Just(0u8), Just(b'a'), Just(b'b'), Just(255)], 0..8)
}

pub(crate) fn models() -> impl Strategy<Value = Model> {
    let content =
        prop::option::of((prop::collection::vec(any::<u8>(), 0..40), prop::option::of(any::<u64>())));
    prop::collection::btree_map((keys(), (0..20u64).prop_map(Reverse)), content, 0..400)
}

/// A step of a source.
#[derive(Clone, Debug)]
pub(crate) enum Step {
    First,
    Last,
    Seek(Vec<u8>, u64),
    Before(Vec<u8>, u64),
    Next(u8),
    Previous(u8),
}

pub(crate) fn steps() -> impl Strategy<Value = Vec<Step>> {
    let seqs = || prop_oneof![0..20u64, Just(u64::MAX)];
    let step = prop_oneof![
        1 => Just(Step::First),
        1 => Just(Step::Last),
        2 => (keys(), seqs()).prop_map(|(key, seq)| Step::Seek(key, seq)),
        2 => (keys(), seqs()).prop_map(|(key, seq)| Step::Before(key, seq)),
        4 => (0..20u8).prop_map(Step::Next),
        4 => (0..20u8).prop_map(Step::Previous),
    ];
    prop::collection::vec(step, 1..40)
}

/// Takes steps in a source, which shows the same as a list of its items at each of them.
pub(crate) fn same_steps(source: &mut impl Source, items: &[Item<'_>], steps: &[Step]) {
    let mut at = None;
    let count_before = |key: &[u8], seq| {
        items.partition_point(|item| item.order(&Item::tombstone(key, seq)) == Ordering::Less)
    };
    let is_item = |at: &usize| *at < items.len();
    assert_eq!(source.item(), None, "a new source is at an end");
    for step in steps {
        let times = if let Step::Next(times) | Step::Previous(times) = step { *times } else { 1 };
        for _ in 0..times {
            at = match step {
                Step::First => Some(0).filter(is_item),
                Step::Last => items.len().checked_sub(1),
                Step::Seek(key, seq) => Some(count_before(key, *seq)).filter(is_item),
                Step::Before(key, seq) => count_before(key, *seq).checked_sub(1),
                Step::Next(_) => at.map(|at| at + 1).filter(is_item),
                Step::Previous(_) => at.and_then(|at| at.checked_sub(1)),
            };
            match step {
                Step::First => source.seek_first(),
                Step::Last => source.seek_last(),
                Step::Seek(key, seq) => source.seek(key, *seq),
                Step::Before(key, seq) => source.seek_before(key, *seq),
                Step::Next(_) => source.next(),
                Step::Previous(_) => source.previous(),
            }
            .unwrap();
            assert_eq!(source.item(), at.map(|at| items[at]), "{step:?}");
        }
    }
}
