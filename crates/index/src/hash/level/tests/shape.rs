//! Tests of `shape.rs`.

use super::*;

#[test]
fn each_position_and_the_tag_determine_the_other() {
    let mut hash = 0x1357_9bdf_2468_ace0_u64;
    for _ in 0..1000 {
        hash = hash.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let [one, other] = positions(hash);
        assert_eq!((one, one ^ between(tag_of(hash))), (hash, other));
        assert_eq!(other ^ between(tag_of(hash)), one);
    }
}

/// Pools of any age hold keys at these places.
#[test]
fn tags_and_positions_never_change() {
    assert_eq!(
        [0, 1, 0x7fff].map(between),
        [0x9e37_79b9_7f4a_7c15, 0xdaa6_6d2c_7ddf_743f, 0xdb82_0590_fcca_83eb]
    );
    let hash = 0x1234_5678_9abc_def0;
    assert_eq!((tag_of(hash), positions(hash)), (0x48c5, [hash, 0x4625_7ea9_d705_9a97]));
}

#[test]
fn tags_spread_the_other_positions_evenly() {
    let mut counts = [0; 64];
    (0..1u64 << TAG_BITS).for_each(|tag| counts[(between(tag) >> 58) as usize] += 1);
    assert!(counts.iter().all(|&count| (500..=524).contains(&count)), "{counts:?}");
}
