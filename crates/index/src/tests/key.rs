//! Tests of `key.rs`.

use super::*;

/// Pools of any age hold keys at the places that these hashes select.
#[test]
fn hashes_never_change() {
    let integers = [(0, 0), (1, 0), (0, 1), (u64::MAX, 11), (0x0123_4567_89ab_cdef, 0x7e44_ace0)];
    let expected =
        [0, 0x9e37_79b9_7f4a_7c15, 0x9e37_79b9_7f4a_7c15, 0x0b51_32f7_77c8_5309, 0x3e12_b73a_5bc4_18ee];
    assert_eq!(integers.map(|(key, seed)| U64::hash(&key, seed)), expected);
    let hash = |key: &[u8], seed| Bytes::<WordRecords>::hash(key, seed);
    let strings = [hash(b"", 0), hash(b"terrace", 0), hash(b"terrace", 11), hash(&[0xa5; 300], 1)];
    assert_eq!(
        strings,
        [0x2d06_8005_38d3_94c2, 0xcddc_9e8e_f76e_d303, 0x7146_0077_8412_d6a3, 0xc2e2_70c7_1aa7_fdc2]
    );
}
