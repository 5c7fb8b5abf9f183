//! Crashes at every store: in each kind of node, in growth, and between a link and a header.

use super::*;
use crate::baselines::tests::crash::{Crashing, History, Left, Recovers, opened, shuffled};
use std::collections::HashSet;
use terrace_testkit::crash::Op;

impl Recovers<IntegerKeys> for Woart<Crashing> {
    fn open(space: Arc<Space<Crashing>>, root: u64) -> Option<Self> {
        Some(Self::over(space, root))
    }
    fn remove(&self, _: &u64) -> Option<u64> {
        unreachable!("it removes nothing")
    }
    /// Half of them children of one node.
    fn key(number: usize) -> u64 {
        number as u64 * if number < 60 { 3 } else { 1 << (number % 50) }
    }
}

impl Recovers<StringKeys> for Woart<Crashing, StringKeys> {
    fn open(space: Arc<Space<Crashing>>, root: u64) -> Option<Self> {
        Some(Self::over(space, root))
    }
    fn remove(&self, _: &[u8]) -> Option<u64> {
        unreachable!("it removes nothing")
    }
    /// Each other one begins the next one.
    fn key(number: usize) -> Vec<u8> {
        format!("a common beginning {:03}{}", number / 2, &"of any length"[..number % 2 * 7]).into_bytes()
    }
}

/// What the next process does.
fn then(keys: usize) -> Vec<Op> {
    let update = |key| Op::Update(key, 1000 + key as u64);
    let insert = |key| Op::Insert(key, 2000 + key as u64);
    (0..keys).step_by(3).map(update).chain((0..keys).map(insert)).collect()
}

fn crash_everywhere<K: KeyForm>(keys: usize)
where
    Woart<Crashing, K>: Recovers<K>,
{
    let mut ops = shuffled(keys, 3);
    ops.extend([Op::Update(7, 500), Op::Update(23, 501)]);
    let history = History::new::<K, Woart<Crashing, K>>(keys, ops);
    let explored = history.explore::<K, Woart<Crashing, K>>(0, &then(keys));
    assert!(explored.points > 200, "{explored:?}");
    assert_eq!(history.not_durable(), [].into());
    assert_eq!(explored.settled, 0, "each line is written back after its last store");
}

#[test]
fn crash_at_any_store_loses_no_integer() {
    crash_everywhere::<IntegerKeys>(90);
}

#[test]
fn crash_at_any_store_loses_no_string() {
    crash_everywhere::<StringKeys>(90);
}

/// Inserts that part a shared piece again and again, each ended by a crash at any point.
fn crash_twice<K: KeyForm>(order: [usize; 6])
where
    Woart<Crashing, K>: Recovers<K>,
{
    let inserts =
        |keys: &[usize]| keys.iter().map(|&key| Op::Insert(key, key as u64 + 1)).collect::<Vec<_>>();
    let keys = 1 + order.into_iter().max().unwrap_or(0);
    let first = History::new::<K, Woart<Crashing, K>>(keys, inserts(&order[..3]));
    let (mut images, mut stale) = (HashSet::new(), 0);
    for events in first.events(2) {
        for left in [Left::All, Left::Durable] {
            let image = first.left(events, left);
            if !images.insert(image.clone()) {
                continue;
            }
            let tree = opened::<K, Woart<Crashing, K>>(&image);
            stale += usize::from(has_stale_header(&tree.tree));
            let second =
                first.crashed::<K, Woart<Crashing, K>>((events, left), 64 << 10, inserts(&order[3..]));
            second.explore::<K, Woart<Crashing, K>>(0, &then(keys));
            let end = second.events(order.len() - 4).end;
            assert!(!has_stale_header(&opened::<K, Woart<Crashing, K>>(&second.left(end, Left::All)).tree));
        }
    }
    assert!(stale > 0, "a crash between link and header");
}

/// Whether the first node below the root has a header from before a crash.
fn has_stale_header<M: Medium>(tree: &Tree<M>) -> bool {
    let root = tree.child(tree.root);
    let is_node = |child: Child| !matches!(child.kind(), Kind::None | Kind::Leaf);
    if !is_node(root) {
        return false;
    }
    let level = tree.node(root).header().level();
    let below = (0..=256).map_while(|symbol| tree.node(root).next(symbol));
    below.into_iter().any(|(_, child)| is_node(child) && tree.node(child).header().depth != level + 1)
}

#[test]
fn header_behind_its_link_is_mended() {
    // The last byte differs, then one before it, then ones before that.
    crash_twice::<IntegerKeys>([0, 1, 70, 71, 65, 66]);
    crash_twice::<StringKeys>([20, 22, 40, 21, 80, 199]);
}
