//! Tests of `pairs.rs`.

use super::*;

#[test]
fn sort_key_is_the_key() {
    let sort_key = |tag, key, word| U64::sort_key(Entry { tag, key, word });
    assert_eq!([sort_key(1, 7, 3), sort_key(1, 7, 4), sort_key(1, 8, 3)], [7, 7, 8]);
}
