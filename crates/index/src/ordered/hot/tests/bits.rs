//! Tests of `bits.rs`.

use super::*;

const KEYS: [&[u8]; 12] = [
    b"",
    b"\0",
    b"\0\0",
    b"\0\x01",
    b"a",
    b"a\0",
    b"ab",
    b"abcdefgh",
    b"abcdefghi",
    b"abcdefgi",
    b"b",
    b"\xff\xff",
];

#[test]
fn first_difference_decides_the_order() {
    for (nth, low) in KEYS.iter().enumerate() {
        assert_eq!(first_difference(low, low), None);
        for high in &KEYS[nth + 1..] {
            let at = first_difference(low, high).unwrap();
            assert_eq!(first_difference(high, low), Some(at));
            assert!(!bit(low, at) && bit(high, at), "{low:?} {high:?} at {at}");
            assert!((0..at).all(|at| bit(low, at) == bit(high, at)), "{low:?} {high:?} at {at}");
        }
    }
}

#[test]
fn window_ends_in_zeros() {
    assert_eq!(window(b"abcdefghi", 1), u64::from_be_bytes(*b"bcdefghi"));
    assert_eq!(window(b"abcdefghi", 7), u64::from_be_bytes(*b"hi\0\0\0\0\0\0"));
    assert_eq!((window(b"ab", 2), window(b"ab", 99)), (0, 0));
}
