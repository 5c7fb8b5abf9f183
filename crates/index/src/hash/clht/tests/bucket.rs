//! Tests of `bucket.rs`.

use super::*;

#[test]
fn link_bits_are_as_documented() {
    let all = Link(0).with_next(Offset::new(0x3f_ffff_ffff << 6));
    assert_eq!(all.0, 0x3f_ffff_ffff);
    for (pair, bits) in [(0, 1 << 38), (1, 1 << 39), (2, 1 << 40)] {
        let link = all.with_pair(pair);
        assert_eq!(link.0, 0x3f_ffff_ffff | bits | 1 << 42);
        assert_eq!(link.with_pair(pair).0, 0x3f_ffff_ffff | bits | 2 << 42);
        assert_eq!(link.without_pair(pair).0, 0x3f_ffff_ffff | 1 << 42);
        assert_eq!(link.valid_pairs(), 1 << pair);
        assert!((0..3).all(|other| link.is_valid(other) == (other == pair)));
        assert!(!link.has_moved());
    }
    let moved = all.with_pair(1).moved();
    assert_eq!(moved.0, 0x3f_ffff_ffff | 1 << 39 | 1 << 41 | 1 << 42);
    assert!(moved.has_moved() && moved.moved() == moved);
}

#[test]
fn with_next_replaces_the_next_bucket_only() {
    let link = Link(!0).with_next(Offset::new(0x40));
    assert_eq!(link.0, !0 << 38 | 1);
    assert_eq!(link.next().raw(), 0x40);
    assert_eq!(link.with_next(Offset::new(0x1000_0000_0000 - 64)).next().raw(), 0x1000_0000_0000 - 64);
    assert!(link.with_next(Offset::new(0)).next().is_null());
}

#[test]
fn version_wraps_within_its_bits() {
    let last = Link(!0 << 42 | 5);
    assert_eq!(last.with_pair(2).0, 1 << 40 | 5);
}
