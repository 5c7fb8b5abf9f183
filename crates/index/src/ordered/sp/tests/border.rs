//! Tests: borders between keys.

use super::between;

#[test]
fn border_is_the_shortest_between_two_keys() {
    let cases: [(&[u8], &[u8], &[u8]); 5] = [
        (b"abc", b"abd", b"abd"),
        (b"abc", b"b", b"b"),
        (b"ab", b"abcdef", b"abc"),
        (b"", b"\0\0", b"\0"),
        (b"user:1999", b"user:2000", b"user:2"),
    ];
    for (left, right, border) in cases {
        assert_eq!(between(left, right), border);
        assert!(left < border && border <= right);
    }
}
