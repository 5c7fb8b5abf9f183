//! Tests of `packed.rs`.

use super::*;

/// Pools of any age hold such slots.
#[test]
fn checks_never_change() {
    let slots = [0, 0x1234_5678_9abc_def0, u64::MAX, 1 << 63 | 1];
    let expected = [0x0, 0x2b, 0xff, 0xc0].map(|check| check << 41);
    assert_eq!(slots.map(check), expected);
}

#[test]
fn is_word_accepts_record_offsets_only() {
    let last = (1 << 44) - 8;
    assert!([8, 64, 1 << 43, last].into_iter().all(is_word));
    assert!(![0, 1, 4, 12, 65, last + 4, last + 8, 1 << 63, !7].into_iter().any(is_word));
    assert_eq!(offset_in(!0), last);
}
