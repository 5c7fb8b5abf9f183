//! Tests: readers see the newest versions, and compactions keep what anyone sees.

use crate::model::{Model, items, keys, sorted};
use proptest::prelude::*;
use std::cmp::Reverse;
use std::collections::BTreeMap;
use terrace_disk::{Content, Entry, Item, Kept, Merge, OwnedItem, Visible};

/// Few keys with many versions.
fn versions() -> impl Strategy<Value = Model> {
    let key = prop::collection::vec(prop_oneof![Just(0u8), Just(b'a')], 0..3);
    let content =
        prop::option::weighted(0.6, (prop::collection::vec(any::<u8>(), 0..9), prop::option::of(0..100u64)));
    prop::collection::btree_map((key, (1..150u64).prop_map(Reverse)), content, 0..400)
}

/// What a reader sees at `at`: the newest versions, tombstones too.
fn newest<'m>(items: &[Item<'m>], at: u64) -> BTreeMap<&'m [u8], Item<'m>> {
    let mut seen = BTreeMap::new();
    for &item in items.iter().filter(|item| item.seq <= at) {
        seen.entry(item.key).or_insert(item);
    }
    seen
}

fn entry<'m>(item: &Item<'m>) -> Option<Entry<'m>> {
    let Content::Put { value, expires_at } = item.content else { return None };
    Some(Entry { key: item.key, seq: item.seq, value, expires_at })
}

#[derive(Clone, Debug)]
enum Step {
    First,
    Last,
    Seek(Vec<u8>),
    Before(Vec<u8>),
    Next,
    Previous,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        1 => Just(Step::First),
        1 => Just(Step::Last),
        1 => keys().prop_map(Step::Seek),
        1 => keys().prop_map(Step::Before),
        4 => Just(Step::Next),
        4 => Just(Step::Previous),
    ];
    prop::collection::vec(step, 1..60)
}

/// The versions in several sources.
fn spread(items: &[Item<'_>], sources: u64) -> Merge<terrace_disk::Sorted> {
    let of = |nth| items.iter().copied().filter(|item| item.seq % sources == nth).collect::<Vec<_>>();
    Merge::new((0..sources).map(|nth| sorted(&of(nth))).collect())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn visible_entries_step_as_a_list(
        model in versions(),
        at in prop_oneof![0..160u64, Just(u64::MAX)],
        bounds in prop::option::of((keys(), prop::option::of(keys()))),
        steps in steps(),
        sources in 1..4u64,
    ) {
        let items = items(&model);
        let is_within = |key: &[u8]| bounds.as_ref().is_none_or(|(from, to)| {
            key >= &from[..] && to.as_ref().is_none_or(|to| key < &to[..])
        });
        let entries: Vec<Entry<'_>> =
            newest(&items, at).values().filter_map(entry).filter(|entry| is_within(entry.key)).collect();
        let mut visible = Visible::new(spread(&items, sources), at);
        if let Some((from, to)) = &bounds {
            visible = visible.within(from, to.as_deref());
        }
        let mut here = None;
        let count_before = |key: &[u8]| entries.partition_point(|entry| entry.key < key);
        let is_entry = |here: &usize| *here < entries.len();
        prop_assert_eq!(visible.entry(), None);
        for step in &steps {
            here = match step {
                Step::First => Some(0).filter(is_entry),
                Step::Last => entries.len().checked_sub(1),
                Step::Seek(key) => Some(count_before(key)).filter(is_entry),
                Step::Before(key) => count_before(key).checked_sub(1),
                Step::Next => here.map(|here| here + 1).filter(is_entry),
                Step::Previous => here.and_then(|here: usize| here.checked_sub(1)),
            };
            match step {
                Step::First => visible.seek_first(),
                Step::Last => visible.seek_last(),
                Step::Seek(key) => visible.seek(key),
                Step::Before(key) => visible.seek_before(key),
                Step::Next => visible.next(),
                Step::Previous => visible.previous(),
            }.unwrap();
            prop_assert_eq!(visible.entry(), here.map(|here| entries[here]), "{:?}", step);
        }
    }

    /// `below` is what a compaction does not read: older versions.
    #[test]
    fn kept_versions_show_the_same_to_everyone(
        model in versions(),
        below in versions(),
        mut snapshots in prop::collection::vec(0..300u64, 0..5),
        is_last in any::<bool>(),
        now_ms in 0..100u64,
    ) {
        snapshots.sort_unstable();
        let newer: Model =
            model.into_iter().map(|((key, seq), content)| ((key, Reverse(seq.0 + 150)), content)).collect();
        let (items, below) = (items(&newer), if is_last { Vec::new() } else { items(&below) });
        let mut kept = Kept::new(spread(&items, 2), snapshots.clone(), is_last, now_ms);
        let mut output: Vec<OwnedItem> = Vec::new();
        kept.seek_first().unwrap();
        while let Some(item) = kept.item() {
            output.push(item.into());
            kept.next().unwrap();
        }
        let output: Vec<Item<'_>> = output.iter().map(OwnedItem::item).collect();
        prop_assert!(output.is_sorted_by(|one, other| one.order(other).is_lt()));

        // Everyone sees what they saw.
        let is_alive = |entry: &Entry<'_>| entry.expires_at.is_none_or(|at| at > now_ms);
        for &at in snapshots.iter().chain([&u64::MAX]) {
            let sees = |layer: &[Item<'_>]| -> Vec<OwnedItem> {
                let all = [layer, &below].concat();
                let seen = newest(&all, at);
                let entries = seen.values().filter(|item| entry(item).filter(is_alive).is_some());
                entries.map(|&item| item.into()).collect()
            };
            prop_assert_eq!(sees(&output), sees(&items), "at {}", at);
        }

        // Nothing is kept in vain.
        let points: Vec<u64> = snapshots.iter().copied().chain([u64::MAX]).collect();
        for (nth, item) in output.iter().enumerate() {
            prop_assert!(points.iter().any(|&at| newest(&items, at).get(item.key).is_some_and(|seen| seen.seq == item.seq)));
            let has_older = output.get(nth + 1).is_some_and(|next| next.key == item.key);
            prop_assert!(!is_last || has_older || item.content != Content::Tombstone);
            prop_assert!(entry(item).is_none_or(|entry| is_alive(&entry)));
        }
        let bytes = |items: &[Item<'_>]| -> u64 {
            items.iter().map(|item| (item.key.len() + item.value().map_or(0, <[u8]>::len)) as u64).sum()
        };
        prop_assert_eq!(kept.dropped().items, (items.len() - output.len()) as u64);
        prop_assert_eq!(kept.dropped().bytes, bytes(&items) - bytes(&output));
    }
}

#[test]
fn tombstones_in_front_are_counted_and_bounded() {
    let keys: Vec<[u8; 4]> = (0..100_000u32).map(u32::to_be_bytes).collect();
    let items: Vec<Item<'_>> = keys
        .iter()
        .enumerate()
        .map(|(nth, key)| if nth == 99_999 { Item::put(key, 7, b"") } else { Item::tombstone(key, 9) })
        .collect();
    let source = sorted(&items);
    let mut visible = Visible::new(source.clone(), 10);
    visible.seek_first().unwrap();
    assert_eq!((visible.entry().unwrap().key, visible.skipped()), (&keys[99_999][..], 99_999));
    visible.previous().unwrap();
    assert_eq!((visible.entry(), visible.skipped()), (None, 2 * 99_999));
    let mut visible = Visible::new(source, 10).within(&keys[50], Some(&keys[60]));
    visible.seek_first().unwrap();
    assert_eq!((visible.entry(), visible.skipped()), (None, 10));
    visible.seek_last().unwrap();
    assert_eq!((visible.entry(), visible.skipped()), (None, 20));
}

/// A seek passes the versions of a hot key.
#[test]
fn versions_of_a_hot_key_are_not_read_one_by_one() {
    let items: Vec<Item<'_>> = (1..100_001u64)
        .rev()
        .map(|seq| Item::put(b"b", seq, b"value"))
        .chain([Item::put(b"c", 4, b"")])
        .collect();
    let items = [&[Item::put(b"a", 1, b"")][..], &items].concat();
    for at in [4, 50_000, 100_000] {
        let mut visible = Visible::new(sorted(&items), at);
        visible.seek_first().unwrap();
        for (key, seq) in [(b"a", 1), (b"b", at), (b"c", 4)] {
            assert_eq!(visible.entry().map(|entry| (entry.key, entry.seq)), Some((&key[..], seq)));
            visible.next().unwrap();
        }
        visible.seek_last().unwrap();
        for (key, seq) in [(b"c", 4), (b"b", at), (b"a", 1)] {
            assert_eq!(visible.entry().map(|entry| (entry.key, entry.seq)), Some((&key[..], seq)));
            visible.previous().unwrap();
        }
        assert!(visible.skipped() < 200, "{}", visible.skipped());
    }
}

#[test]
#[should_panic(expected = "snapshots that are not in order")]
fn snapshots_out_of_order_are_refused() {
    let _ = Kept::new(sorted(&[]), vec![7, 3], true, 0);
}
