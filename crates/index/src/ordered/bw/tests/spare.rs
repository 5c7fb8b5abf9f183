//! Tests of `spare.rs`.

use super::*;

#[test]
fn spare_keeps_its_block() {
    for (offset, bytes) in [(64, 64), ((1 << 44) - 64, 255 * 64), (0x123_4567_8940, 4032)] {
        let spare = Spare::free(Block { offset, bytes });
        assert_eq!((spare.block(), spare.is_used()), (Some(Block { offset, bytes }), false));
        let used = spare.used(77);
        assert_eq!((used.block(), used.is_used()), (Some(Block { offset, bytes }), true));
    }
    assert_eq!(Spare(0).block(), None);
}

#[test]
fn changed_byte_names_no_other_block() {
    for spare in [Spare::free(Block { offset: 0x123_4567_8940, bytes: 4032 }), Spare(0)] {
        for change in (0..8).flat_map(|byte| (1..256u64).map(move |change| change << (8 * byte))) {
            let other = Spare(spare.0 ^ change).block();
            assert!(other.is_none() || other == spare.block(), "{change:#x}");
        }
    }
}

#[test]
fn used_spare_is_left_after_its_epochs() {
    let spare = Spare::free(Block { offset: 4096, bytes: 640 });
    assert!(!spare.is_left(100), "it is free");
    assert!((7..12).all(|epoch| !spare.used(7).is_left(epoch)));
    assert!((12..60).all(|epoch| spare.used(7).is_left(epoch)));
}
