//! Tests of `bucket.rs`.

use super::super::shape::sealed::Shape;
use super::*;
use crate::key::NoRecords;
use crate::{Bytes, U64};

fn check_live_and_deleted<K: BucketShape>() {
    let mut meta = Meta(0);
    for slot in 0..K::SLOTS {
        assert!(!meta.is_full::<K>());
        assert_eq!(meta.empty::<K>().count_ones() as usize, K::SLOTS - slot);
        meta = meta.with_live::<K>(slot);
        assert_eq!(meta.live::<K>(), (2 << slot) - 1);
    }
    assert!(meta.is_full::<K>());
    for slot in 0..K::SLOTS {
        let deleted = meta.with_deleted::<K>(slot);
        assert!(deleted.is_full::<K>(), "a deleted slot ends no path");
        assert_eq!(
            (deleted.live::<K>(), deleted.deleted::<K>()),
            (meta.live::<K>() & !(1 << slot), 1 << slot)
        );
        assert_eq!(deleted.with_live::<K>(slot).live::<K>(), meta.live::<K>());
    }
}

#[test]
fn slots_are_live_or_deleted_independently() {
    check_live_and_deleted::<U64>();
    check_live_and_deleted::<Bytes<NoRecords>>();
}

#[test]
fn every_change_of_pairs_raises_the_sequence() {
    let meta = Meta(0).with_live::<U64>(3).with_deleted::<U64>(3).with_live::<U64>(3);
    assert_eq!(meta.0, 3 << 28 | 1 << 3);
    let last = Meta(!0 << 28);
    assert_eq!(last.with_live::<U64>(0).0, 1, "it goes around and touches nothing else");
}

fn check_fill_order<K: Shape>(in_first: usize, in_others: usize) {
    for tag in 0..=255u8 {
        let mut free = all_slots::<K>();
        let mut lines = Vec::new();
        while free != 0 {
            let slot = choose::<K>(free, tag);
            assert!(free >> slot & 1 == 1);
            free &= !(1 << slot);
            lines.push(line_of::<K>(slot));
        }
        assert!(lines[..in_first].iter().all(|&line| line == 0), "{lines:?}");
        assert!(lines[in_first..in_first + in_others].iter().all(|&line| line == line_for(tag)));
    }
}

#[test]
fn first_line_then_the_tags_line_is_filled() {
    check_fill_order::<U64>(2, 4);
    check_fill_order::<Bytes<NoRecords>>(3, 8);
    let lines: Vec<usize> = [0, 85, 86, 170, 171, 255].map(line_for).to_vec();
    assert_eq!(lines, [1, 1, 2, 2, 3, 3]);
}

fn check_overflow_bits<K: BucketShape>() {
    let bits: Vec<u64> = (0..=255).map(overflow_bit::<K>).collect();
    let all = bits.iter().fold(0, |all, bit| all | bit);
    assert_eq!((all.count_ones(), all.trailing_zeros()), (K::OVERFLOW_BITS, K::OVERFLOW_AT));
    let alike = |bit: &u64| bits.iter().filter(|other| *other == bit).count();
    assert!(bits.iter().all(|bit| alike(bit) <= 256usize.div_ceil(K::OVERFLOW_BITS as usize)));
}

#[test]
fn tags_spread_over_the_overflow_bits() {
    check_overflow_bits::<U64>();
    check_overflow_bits::<Bytes<NoRecords>>();
}

#[test]
fn tag_changes_its_own_byte_only() {
    assert_eq!(with_tag(!0, 9, 0x5a), 0xffff_ffff_ffff_5aff);
    assert_eq!(with_tag(0, 7, 0x5a), 0x5a << 56);
}
