//! Tests of `partition.rs`.

use super::*;

fn children() -> Children {
    let mut children = Children::default();
    let keys: [(&[u8], u64); 6] = [(b"", 7), (b"a", 9), (b"a", 3), (b"ab", 0), (b"b", 0), (b"ba\xff", 0)];
    for (nth, (key, seq)) in keys.into_iter().enumerate() {
        children.add(key, seq, Place { offset: 100 * nth as u64, bytes: nth as u32 });
    }
    children
}

#[test]
fn find_returns_the_first_child_not_before() {
    let children = children();
    let found =
        [(&b""[..], 9), (b"", 7), (b"", 6), (b"a", 4), (b"a", 2), (b"ac", 5), (b"ba\xff", 0), (b"c", 0)]
            .map(|(key, seq)| children.find(key, seq));
    assert_eq!(found, [0, 0, 1, 2, 3, 4, 5, 6]);
}

#[test]
fn children_are_read_as_written() {
    let mut bytes = Vec::new();
    children().write(&mut bytes);
    let mut reader = Reader(&bytes);
    let read = Children::read(&mut reader).expect("children");
    assert!(reader.is_empty());
    assert_eq!((read.keys, read.ends), (children().keys, children().ends));
    assert!((0..bytes.len()).all(|cut| Children::read(&mut Reader(&bytes[..cut])).is_none()));
}
