//! Tests of `table.rs`.

use super::*;

#[test]
fn table_with_a_changed_byte_is_unsound() {
    let len = 1 << 44;
    for (start, log2) in [(0x8000, 8), (64, LOG2_MIN), (0x7ff_1234_5640, 20), (0x1_0000_0000, 24)] {
        let table = Table::new(start, log2);
        assert_eq!((table.start(), table.log2(), table.is_sound(len)), (start, log2, true));
        assert_eq!(Table::from_word(table.word()), table);
        for (byte, flip) in (0..8).flat_map(|byte| (1..256).map(move |flip| (byte, flip))) {
            assert!(!Table::from_word(table.word() ^ flip << (8 * byte)).is_sound(len));
        }
    }
}

#[test]
fn root_check_depends_on_seed_and_stripes() {
    let whole = root_check(0x1234_5678_9abc_def0, 0xc040);
    for (byte, flip) in (0..8).flat_map(|byte| (1..256).map(move |flip| (byte, flip))) {
        assert_ne!(root_check(0x1234_5678_9abc_def0 ^ flip << (8 * byte), 0xc040), whole);
        assert_ne!(root_check(0x1234_5678_9abc_def0, 0xc040 ^ flip << (8 * byte)), whole);
    }
}

/// Pools of any age hold such words.
#[test]
fn root_words_never_change() {
    assert_eq!(Table::new(0x7ff_1234_5640, 20).word(), 0x392e_07ff_1234_5654);
    assert_eq!(root_check(0x1234_5678_9abc_def0, 0xc040), 0x1597_598b_1e2e_a0b8);
}

#[test]
fn is_sound_limits_place_and_size() {
    let of_bits = |bits: u64| Table::from_word(bits | check(bits) << CHECK_AT);
    let table = Table::new(1 << 20, LOG2_MIN);
    assert!(of_bits(1 << 20 | u64::from(LOG2_MIN)) == table && table.bytes() == 9 * 64);
    assert!(table.is_sound((1 << 20) + 9 * 64) && !table.is_sound((1 << 20) + 8 * 64));
    assert!(!of_bits(u64::from(LOG2_MIN)).is_sound(1 << 44));
    assert!(!of_bits(1 << 20 | u64::from(LOG2_MIN - 1)).is_sound(1 << 44));
    assert!(!of_bits(1 << 20 | u64::from(LOG2_MAX + 1)).is_sound(1 << 50));
}
