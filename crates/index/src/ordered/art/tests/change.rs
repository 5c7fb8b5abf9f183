//! Tests of `change.rs`.

use super::super::node::Prefix;
use super::*;
use crate::{ChangeError, PointIndex, Stored, U64};
use std::sync::atomic::Ordering::Relaxed;
use terrace_medium::Dram;
use terrace_pool::Pool;

/// A read finds a key, and a damaged prefix that fits its check hides it from writers: a caller
/// that was told that it is absent would try for ever to change what it reads.
#[test]
fn change_of_a_key_that_a_prefix_hides_is_an_error() {
    let pool = Pool::<Dram>::anonymous(16 << 20).unwrap();
    let art = Art::<Dram, U64>::create(&pool, "map", 0).unwrap();
    let guard = pool.pin();
    (0..3).for_each(|key| assert!(art.insert(&guard, &key, key + 10).is_ok()));
    let link = art.tree.follow_locked(art.tree.root_link());
    let (node, _) = art.tree.node_below(art.tree.root_link(), link, 0).unwrap();
    node.prefix_word().store(pool.medium(), Prefix::of(&[9; 7]).0, Relaxed);
    assert_eq!(art.get(&guard, &1), Some(11));
    let swapped = art.compare_and_swap(&guard, &1, Some(11), None);
    assert!(matches!(swapped, Err(ChangeError::Damaged(_))), "{swapped:?}");
    assert!(art.damage().is_some() && art.get(&guard, &1) == Some(11));
}
