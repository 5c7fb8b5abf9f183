//! Tests of `obsolete.rs`.

use super::super::super::base::ROOT_CYCLE;
use super::super::super::obsolete::cycle_of;
use super::super::node::{COUNT, MARK_AT, Node};
use super::super::ops::Art;
use super::*;
use crate::{PointIndex, Stored, U64};
use std::sync::atomic::Ordering::Relaxed;
use terrace_medium::Dram;
use terrace_pool::Pool;

/// A count that a crash has kept from a generation with the mark of this one, when the node had
/// more keys.
#[test]
fn first_open_of_a_cycle_clears_old_marks() {
    let pool = Pool::<Dram>::anonymous(16 << 20).unwrap();
    let art = Art::<Dram, U64>::create(&pool, "map", 0).unwrap();
    let guard = pool.pin();
    (0..40).for_each(|key| assert!(art.insert(&guard, &key, key + 100).is_ok()));
    let link = art.tree.follow_locked(art.tree.root_link());
    let (node, level) = art.tree.node_to_write(art.tree.root_link(), link, 0).unwrap();
    assert!(matches!(node, Node::Hashed(_)));
    let counted = || node.len_hint(pool.medium(), art.tree.mark);
    node.words()[COUNT].store(pool.medium(), u64::from(art.tree.mark) << MARK_AT | 50, Relaxed);
    let holder = Holder::node(node, level);
    holder.set_shape(pool.medium(), holder.shape(pool.medium()).with_obsolete(art.tree.mark));
    assert_eq!(counted(), 50);
    art.tree.begin_cycle();
    assert_eq!(counted(), 50, "it is the same cycle");
    art.tree.root[1].0[ROOT_CYCLE].store(pool.medium(), 7, Relaxed);
    art.tree.begin_cycle();
    assert_eq!((counted(), art.tree.is_obsolete(holder)), (40, false));
    assert_eq!(art.tree.root[1].0[ROOT_CYCLE].load(pool.medium(), Relaxed), cycle_of(pool.generation()));
    assert_eq!(art.verify(&guard).len(), 0);
}
