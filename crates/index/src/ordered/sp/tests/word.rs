//! Tests: links and slots, and the damage that their checks find.

use super::{Entry, hash_bits, tag_of};

#[test]
fn entry_keeps_offset_and_hash() {
    let hash = 0xfedc_ba98_7654_3210;
    let record = Entry::record(hash, 0x1234_5678 * 8);
    assert_eq!((record.offset(), record.hash_bits()), (0x1234_5678 * 8, hash_bits(hash)));
    assert_eq!(record.hash_bits() as u8, tag_of(hash));
    let last = ((1u64 << 41) - 1) * 8;
    assert_eq!((Entry::link(last).offset(), Entry::link(last).hash_bits()), (last, 0));
}

#[test]
fn changed_byte_of_an_entry_is_unsound() {
    for entry in [Entry::link(64), Entry::record(u64::MAX, 8), Entry::record(1 << 49, 1 << 40)] {
        assert!(entry.is_sound());
        for at in 0..8 {
            for change in 1..=255u64 {
                assert!(!Entry(entry.0 ^ change << (8 * at)).is_sound());
            }
        }
    }
    assert!(!Entry::NONE.is_sound() && Entry::NONE.is_none());
}
