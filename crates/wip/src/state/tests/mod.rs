//! Tests of `mod.rs`.

use super::*;

#[test]
fn keys_belong_to_the_last_bucket_not_above_them() {
    let lows: [&[u8]; 8] = [b"", b"\0", b"a", b"a\0", b"abcdefgh", b"abcdefgh\0", b"abcdefghi", b"b"];
    let buckets =
        lows.iter().zip(0..).map(|(low, id)| Arc::new(Bucket::new(id, low, (MemTable::new(1), 1), 0)));
    let state = State::new(buckets.collect());
    let keys: [(&[u8], usize); 12] = [
        (b"", 0),
        (b"\0", 1),
        (b"\0\0", 1),
        (b"`", 1),
        (b"a", 2),
        (b"a\0", 3),
        (b"abcdefg", 3),
        (b"abcdefgh", 4),
        (b"abcdefgh\0a", 5),
        (b"abcdefghi", 6),
        (b"b", 7),
        (b"\xff", 7),
    ];
    keys.iter().for_each(|(key, nth)| assert_eq!(state.bucket_of(key), *nth, "{key:?}"));
}
