//! Tests of `bucket.rs`.

use super::super::shape::sealed::Shape;
use super::*;
use crate::key::NoRecords;
use crate::{Bytes, U64};

fn check_valid_and_free<K: BucketShape>() {
    let mut meta = Meta(0);
    for slot in 0..K::SLOTS {
        assert_eq!(meta.free::<K>().count_ones() as usize, K::SLOTS - slot);
        let (before, marked) = (meta, meta.becoming::<K>(meta.valid::<K>(), SlotLock::Slot(slot)));
        assert_eq!((marked.slot_lock::<K>(), marked.valid::<K>()), (SlotLock::Slot(slot), meta.valid::<K>()));
        meta = marked.with::<K>(slot);
        assert_eq!((meta.valid::<K>(), meta.slot_lock::<K>()), ((2 << slot) - 1, SlotLock::Slot(slot)));
        assert_eq!(meta.without::<K>(1 << slot).valid::<K>(), before.valid::<K>());
        meta = meta.becoming::<K>(meta.valid::<K>(), SlotLock::None);
        assert!(K::is_sealed(meta.0) && meta.keys::<K>() as usize == slot + 1);
    }
    let moving = meta.becoming::<K>(meta.valid::<K>(), SlotLock::Moving);
    assert_eq!((moving.slot_lock::<K>(), moving.valid::<K>()), (SlotLock::Moving, all_slots::<K>()));
}

#[test]
fn slots_are_valid_and_locked_independently() {
    check_valid_and_free::<U64>();
    check_valid_and_free::<Bytes<NoRecords>>();
}

fn check_sequence<K: BucketShape>() {
    let mut meta = Meta(0);
    let mut seen = std::collections::BTreeSet::new();
    for _ in 0..1000 {
        meta = meta.with::<K>(3).without::<K>(1 << 3);
        assert!(seen.insert(meta.0), "a word came back");
    }
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
fn every_change_raises_the_sequence() {
    check_sequence::<U64>();
    check_sequence::<Bytes<NoRecords>>();
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
    // By the last four bits, which do not determine the distance of the second bucket.
    assert_eq!([0, 1, 2, 3, 14, 15, 16, 0xf2].map(line_for), [1, 2, 3, 1, 3, 1, 1, 3]);
}
