//! Tests of `locate.rs`.

use super::first_difference;

#[test]
fn first_difference_regards_ends() {
    let cases: [(&[u8], &[u8], _); 6] = [
        (b"", b"", None),
        (b"same", b"same", None),
        (b"sane", b"same", Some((2, Some(b'm')))),
        (b"sa", b"same", Some((2, Some(b'm')))),
        (b"same", b"sa", Some((2, None))),
        (b"", b"a", Some((0, Some(b'a')))),
    ];
    cases.iter().for_each(|&(key, there, expected)| assert_eq!(first_difference(key, there), expected));
}
