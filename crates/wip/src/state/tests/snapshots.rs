//! Tests of `snapshots.rs`.

use super::*;
use std::sync::atomic::Ordering::Relaxed;

#[test]
fn numbers_are_in_use_until_the_last_reader_ends() {
    let (snapshots, visible) = (Snapshots::default(), AtomicU64::new(5));
    let (one, two) = (snapshots.take(&visible), snapshots.take(&visible));
    visible.store(9, Relaxed);
    let three = snapshots.take(&visible);
    visible.store(10, Relaxed);
    assert_eq!(snapshots.in_use(&visible), [5, 9, 10]);
    drop(one);
    assert_eq!(snapshots.in_use(&visible), [5, 9, 10]);
    drop(two);
    assert_eq!((three.seq, snapshots.figures()), (9, (1, Some(9))));
    drop(three);
    assert_eq!(snapshots.in_use(&visible), [10]);
}
