//! Tests of `root.rs`.

use super::*;

#[test]
fn tier_with_a_changed_byte_is_unsound() {
    let len = 1 << 44;
    for (start, log2) in [(0x8000, 8), (64, 0), (0x7ff_1234_5640, 20), (0x1_0000_0000, 24)] {
        let tier = Tier::new(start, log2);
        assert_eq!((tier.start(), tier.log2(), tier.is_sound(log2, len)), (start, log2, true));
        for (byte, flip) in (0..8).flat_map(|byte| (1..256).map(move |flip| (byte, flip))) {
            assert!(!Tier(tier.0 ^ flip << (8 * byte)).is_sound(log2, len), "{flip:#x} in byte {byte}");
        }
    }
    assert!(!Tier::NONE.is_sound(0, len));
    let last = Tier::new(len as u64 - 256, 1);
    assert!(last.is_sound(1, len) && !last.is_sound(2, len) && !last.is_sound(1, len - 64));
}

#[test]
fn state_with_a_changed_byte_is_unsound() {
    for state in PHASES.map(|phase| State::new(7, phase, 0xdead_beef)) {
        assert!(state.is_sound() && (state.top(), state.version()) == (7, 0xdead_beef));
        assert_eq!(state.next(8, Phase::Two).version(), 0xdead_bef0);
        for (byte, flip) in (0..8).flat_map(|byte| (1..256).map(move |flip| (byte, flip))) {
            assert!(!State(state.0 ^ flip << (8 * byte)).is_sound(), "{flip:#x} in byte {byte}");
        }
    }
    assert_eq!(State::new(3, Phase::Two, 0).next(4, Phase::Expand).phase(), Phase::Expand);
    assert!(State::new(LOG2_MIN, Phase::Two, 0).is_sound());
    assert!(!State::new(LOG2_MIN, Phase::Shrink, 0).is_sound(), "no tier below the smallest");
    assert!(!State::new(LOG2_MAX + 1, Phase::Two, 0).is_sound());
    let strange = (PHASES.len() as u64) << 8 | 7;
    assert!(!State(strange | check(strange)).is_sound(), "no such phase");
    let tiers = |phase| State::new(3, phase, 0).tiers().collect::<Vec<_>>();
    assert_eq!((tiers(Phase::Two), tiers(Phase::Clearing)), (vec![3, 2], vec![3, 2, 1]));
}

/// Pools of any age hold such words.
#[test]
fn root_words_never_change() {
    assert_eq!(root_check(&[1, 2, 3]), 0xa21e_a9ba_51c1_236d);
    assert_eq!(State::new(7, Phase::Expand, 0xdead_beef).0, 0x1ef7_dead_beef_0407);
    assert_eq!(Tier::new(0x7ff_1234_5640, 20).0, 0x392d_07ff_1234_5654);
    assert!(!Tier::new(0, 1).is_sound(1, 1 << 44), "nothing lies where the pool begins");
}

#[test]
fn root_check_depends_on_every_word() {
    let words = [0x1234_5678_9abc_def0, !0, 0xc040];
    let whole = root_check(&words);
    for (nth, byte, flip) in
        (0..3).flat_map(|nth| (0..8).flat_map(move |byte| (1..256).map(move |flip| (nth, byte, flip))))
    {
        let mut other = words;
        other[nth] ^= flip << (8 * byte);
        assert_ne!(root_check(&other), whole, "{flip:#x} in byte {byte} of word {nth}");
    }
}

#[test]
fn positions_cover_the_space_in_any_tier() {
    for log2 in 0..=LOG2_MAX {
        let tier = Tier::new(64, log2);
        assert_eq!((tier.index(0), tier.index(u64::MAX)), (0, tier.buckets() - 1));
        for index in [0, tier.buckets() / 2, tier.buckets() - 1] {
            assert_eq!(tier.index(tier.first_position(index)), index);
        }
        assert_eq!(tier.first_position(tier.buckets()), 0);
    }
}
