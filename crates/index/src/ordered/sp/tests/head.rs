//! Tests: states, and the check of a bitmap and its tags.

use super::{Checks, State, spread};

#[test]
fn state_keeps_its_parts_apart() {
    let state = State::new();
    assert!(state.is_sound() && state.is_settled() && state.partner() == 0);
    let changing = state.changing(64 * 77);
    assert!(changing.is_sound() && changing.is_changing() && !changing.is_frozen());
    assert_eq!(changing.partner(), 64 * 77);
    assert_ne!(changing.counter(), state.counter());
    let frozen = changing.counting().frozen(64);
    assert!(frozen.is_sound() && frozen.is_frozen() && frozen.partner() == 64);
    let settled = frozen.settled();
    assert!(settled.is_sound() && settled.is_settled());
    assert_eq!(settled.counter(), frozen.counter());
}

#[test]
fn counter_wraps_within_its_bits() {
    let mut state = State::new().frozen(64 * ((1 << 38) - 1));
    for _ in 0..0x1_0000 {
        state = state.counting();
        assert!(state.is_sound() && state.is_frozen() && !state.is_changing());
    }
    assert_eq!(state, State::new().frozen(64 * ((1 << 38) - 1)));
}

#[test]
fn changed_byte_of_a_state_is_unsound() {
    let state = State::new().changing(4096).0;
    for at in 0..8 {
        assert!((1..=255u64).all(|change| !State(state ^ change << (8 * at)).is_sound()));
    }
    assert!(!State(0).is_sound());
}

#[test]
fn spread_makes_a_byte_of_each_bit() {
    for bits in 0..=255u64 {
        let bytes = spread(bits).to_le_bytes();
        assert!((0..8).all(|bit| bytes[bit] == if bits >> bit & 1 == 1 { 0xff } else { 0 }));
    }
}

#[test]
fn checks_cover_the_bitmap_and_the_tags_of_its_slots() {
    let (bitmap, mut tags) = (0xf0f1, [0x1122_3344_5566_7788; 8]);
    let checks = Checks::of(bitmap, &tags);
    assert!(checks.admit_all(bitmap, &tags) && !Checks(0).admit(0));
    for byte in 0..8 {
        assert!((1..=255u64).all(|change| !checks.admit(bitmap ^ change << (8 * byte))));
    }
    for slot in 0..64 {
        tags[slot / 8] ^= 0x40 << (8 * (slot % 8));
        assert_eq!(checks.admit_all(bitmap, &tags), bitmap >> slot & 1 == 0, "slot {slot}");
        tags[slot / 8] ^= 0x40 << (8 * (slot % 8));
    }
}

#[test]
fn checks_of_a_change_admit_both_contents() {
    let tags = [0x0123_4567_89ab_cdef; 8];
    let (old, new) = (Checks::of(0xff, &tags), Checks::of(0x1fe, &tags));
    let both = new.after(old);
    assert!(both.admit_all(0xff, &tags) && both.admit_all(0x1fe, &tags) && !both.admit(0x1ff));
    assert!(!new.admit(0xff) && new.is_single() && !both.is_single());
}
