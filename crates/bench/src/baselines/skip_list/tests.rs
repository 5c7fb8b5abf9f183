//! The skip list behaves as an ordered map, has the levels that its head states, and costs the
//! fences of its comments.

use super::*;
use crate::baselines::tests::space;
use crate::{Random, spread};
use std::collections::BTreeMap;
use terrace_medium::Dram;
use terrace_testkit::TappedPmem;

#[test]
fn skip_list_is_an_ordered_map() {
    let mut list = SkipList::<Dram>::create(space(16 << 20)).expect("room for a list");
    let (mut model, mut random) = (BTreeMap::new(), Random::new(3));
    let extremes = [0, 1, u64::MAX - 1, u64::MAX];
    let keys = (0..60_000).map(|_| spread(random.below(20_000))).chain(extremes);
    for (nth, key) in (0..).zip(keys.collect::<Vec<_>>()) {
        assert_eq!(list.get(key), model.get(&key).copied());
        assert_eq!(list.put(key, nth), Ok(()));
        model.insert(key, nth);
        if nth % 64 == 0 {
            let mut values = Vec::new();
            list.scan(key.wrapping_add(nth % 2), 40, &mut |value| values.push(value));
            let expected = model.range(key.wrapping_add(nth % 2)..).map(|(_, value)| *value).take(40);
            assert!(expected.eq(values), "scan from {key}");
        }
    }
    assert!(model.iter().all(|(key, value)| list.get(*key) == Some(*value)));
}

#[test]
fn quarter_of_each_level_is_on_the_next() {
    let mut list = SkipList::<Dram>::create(space(16 << 20)).expect("room for a list");
    (0..100_000).for_each(|n| assert_eq!(list.put(spread(n), n), Ok(())));
    let next = |node: u64, level| Some(list.next(node, level)).filter(|next| *next != 0);
    let nodes = |level| std::iter::successors(next(list.head, level), move |node| next(*node, level)).count();
    let counts: Vec<usize> = (0..6).map(nodes).collect();
    for pair in counts.windows(2) {
        let share = pair[1] as f64 / pair[0] as f64;
        assert!((0.2..0.3).contains(&share), "{counts:?}");
    }
}

#[test]
fn new_key_costs_two_fences_and_a_value_one() {
    let space = space::<TappedPmem>(16 << 20);
    let mut list = SkipList::create(space.clone()).expect("room for a list");
    for n in 0..5000 {
        let mut fences = |value| space.medium().during(|| list.put(spread(n), value).expect("room")).0.fences;
        assert_eq!([fences(1), fences(2)], [2, 1]);
    }
}
