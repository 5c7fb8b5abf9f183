//! Tests of `entry.rs`.

use super::*;

#[test]
fn pieces_are_ordered_as_keys() {
    let keys: [&[u8]; 12] = [
        b"",
        b"\0",
        b"\0\0",
        b"\0\0\0\0\0\0\0\0",
        b"\0\0\0\0\0\0\0\0\0",
        b"\0\x01",
        b"a",
        b"a\0",
        b"abcdefgh",
        b"abcdefghi",
        b"b",
        b"\xff\xff\xff\xff\xff\xff\xff\xff",
    ];
    let pieces: Vec<Piece> = keys.iter().map(|key| Piece::of(key, 0).unwrap()).collect();
    assert!(pieces.is_sorted() && pieces.windows(2).all(|two| two[0] != two[1]), "{pieces:?}");
}

#[test]
fn piece_below_the_end_of_a_key_is_none() {
    assert_eq!(Piece::of(b"12345678", 1), Some(Piece { slice: 0, tag: 0 }));
    assert_eq!(Piece::of(b"1234567", 1), None);
    assert_eq!(Piece::of(b"123456789", 1), Some(Piece { slice: u64::from(b'9') << 56, tag: 1 }));
}

#[test]
fn changed_bit_of_a_slot_does_not_fit_its_check() {
    for slice in [0, 1, 0x0123_4567_89ab_cdef, u64::MAX] {
        for entry in [Entry::record(Piece { slice, tag: 3 }, 64), Entry::layer(slice, 1 << 30)] {
            assert!(entry.is_sound(slice));
            for bit in 0..64 {
                assert!(!Entry(entry.0 ^ 1 << bit).is_sound(slice), "bit {bit} of the word");
                assert!(!entry.is_sound(slice ^ 1 << bit), "bit {bit} of the slice");
            }
        }
    }
}

#[test]
fn entry_knows_its_kind() {
    let record = Entry::record(Piece { slice: 5, tag: LONGER }, 8);
    assert!(record.is_record() && !record.is_layer() && record.key_tag() == LONGER);
    let layer = Entry::layer(5, 320);
    assert!(layer.is_layer() && !layer.is_record() && layer.key_tag() == LONGER && layer.offset() == 320);
    assert!(Entry::node(0, 0, 320).is_node(0) && Entry::node(0, 2, 320).is_node(1));
    assert!(!Entry::node(0, 0, 320).is_node(1) && Entry::NONE.is_none());
}
