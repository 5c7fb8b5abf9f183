//! Tests of `codec.rs`.

use super::*;
use proptest::prelude::*;

#[test]
fn varint_keeps_every_size_of_number() {
    for value in (0..64).flat_map(|bit| [1 << bit, (1 << bit) - 1, !0 >> bit]) {
        let mut bytes = Vec::new();
        put_varint(&mut bytes, value);
        assert_eq!(bytes.len(), (64 - value.leading_zeros()).div_ceil(7).max(1) as usize);
        let mut reader = Reader(&bytes);
        assert_eq!((reader.varint(), reader.is_empty()), (Some(value), true));
        assert!((0..bytes.len()).all(|cut| Reader(&bytes[..cut]).varint().is_none()));
    }
}

#[test]
fn varint_refuses_more_than_64_bits() {
    assert_eq!(Reader(&[0xff; 11]).varint(), None);
    assert_eq!(Reader(&[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 2]).varint(), None);
}

proptest! {
    #[test]
    fn shared_counts_equal_bytes(
        common in prop::collection::vec(any::<u8>(), 0..30),
        one in prop::collection::vec(0..3u8, 0..20),
        other in prop::collection::vec(0..3u8, 0..20),
    ) {
        let (one, other) = ([&common[..], &one].concat(), [&common[..], &other].concat());
        let expected = one.iter().zip(&other).take_while(|(one, other)| one == other).count();
        prop_assert_eq!(shared(&one, &other), expected);
    }

    #[test]
    fn reader_never_goes_past_the_end(bytes in prop::collection::vec(any::<u8>(), 0..40)) {
        let mut reader = Reader(&bytes);
        while let Some(taken) = reader.bytes() {
            prop_assert!(taken.len() < bytes.len());
        }
    }
}
