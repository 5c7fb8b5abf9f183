//! Tests of `format`.

use super::*;
use proptest::prelude::*;

/// The bytes of a record's block.
fn encode_block(shape: Shape, stamp: u32, body: &[u8]) -> Vec<u8> {
    let word = shape.encode();
    let mut block = word.to_le_bytes().to_vec();
    block.extend(seal(checksum(word, stamp, body), stamp).to_le_bytes());
    block.resize(shape.body_at(), 0xee);
    block.extend(body);
    block
}

/// Reads a block as `view` does.
fn read(block: &[u8]) -> Option<(Shape, u32, Body<'_>)> {
    let word = |at: usize| block.get(at..at + 8).map(|b| u64::from_le_bytes(b.try_into().unwrap()));
    let (first, second) = (word(0)?, word(8)?);
    let shape = Shape::decode(first)?;
    let body = block.get(shape.body_at()..shape.size())?;
    let stamp = second as u32;
    (checksum(first, stamp, body) == (second >> 32) as u32)
        .then(|| Body::parse(shape, body).map(|body| (shape, stamp, body)))?
}

/// The same shape, as a store that evicts by use writes it.
fn used(shape: Shape) -> Shape {
    Shape { use_in: Shape::place_of_use(shape.role, shape.key_len, shape.value_len), ..shape }
}

fn shapes() -> impl Strategy<Value = Shape> {
    let roles = prop_oneof![Just(Role::Single), Just(Role::Put), Just(Role::Tombstone), Just(Role::Keep)];
    (0..=KEY_MAX, 0..=VALUE_MAX, any::<bool>(), roles).prop_map(|(key_len, value_len, expires, role)| {
        let holds_value = matches!(role, Role::Single | Role::Put);
        Shape {
            key_len,
            value_len: if holds_value { value_len } else { 0 },
            expires: expires && holds_value,
            role,
            use_in: UseIn::Nothing,
        }
    })
}

#[test]
fn record_of_16_and_64_bytes_takes_96() {
    let shape =
        Shape { key_len: 16, value_len: 64, expires: false, role: Role::Single, use_in: UseIn::Nothing };
    assert_eq!(shape.size(), 96);
}

#[test]
fn shape_fits_longest_key_and_value_only() {
    let shape = Shape {
        key_len: KEY_MAX,
        value_len: VALUE_MAX,
        expires: true,
        role: Role::Put,
        use_in: UseIn::Nothing,
    };
    assert_eq!(Shape::decode(shape.encode()), Some(shape));
    for bad in [
        Shape { key_len: KEY_MAX + 1, ..shape },
        Shape { value_len: VALUE_MAX + 1, ..shape },
        Shape { role: Role::Tombstone, ..shape },
    ] {
        assert_eq!(Shape::decode(bad.encode()), None, "{bad:?}");
    }
    assert_eq!(Shape::decode(0), None);
    assert_eq!(Shape::decode(u64::MAX), None);
}

#[test]
fn shape_rejects_inconsistent_flags() {
    let roles: Vec<Option<Role>> = (0..1 << FLAG_BITS)
        .map(|flags: u64| {
            let bits = 5 | flags << FLAGS_AT;
            let shape = Shape::decode(bits | check(bits) << CHECK_AT)?;
            assert_eq!((shape.key_len, shape.value_len, shape.expires), (5, 0, flags & 1 == 1));
            Some(shape.role)
        })
        .collect();
    let mut expected = [None; 1 << FLAG_BITS];
    // A tombstone or a kept key has nothing that could expire.
    expected[..2].fill(Some(Role::Single));
    [4, 5, 8, 9].iter().for_each(|flags| expected[*flags] = Some(Role::Single));
    expected[14..].fill(Some(Role::Put));
    expected[2..4].fill(Some(Role::Put));
    (expected[2 | 4], expected[2 | 8]) = (Some(Role::Tombstone), Some(Role::Keep));
    assert_eq!(roles, expected);
}

#[test]
fn value_over_4096_bytes_lies_in_an_extent() {
    let size = |value_len| {
        Shape { key_len: 4, value_len, expires: true, role: Role::Put, use_in: UseIn::Nothing }.size()
    };
    assert_eq!([0, 4096, 4097, VALUE_MAX].map(size), [36, 4132, 52, 52]);
}

/// Pools outlive the program: these numbers are part of the format.
#[test]
fn header_words_match_the_format() {
    let shape =
        Shape { key_len: 16, value_len: 64, expires: false, role: Role::Single, use_in: UseIn::Nothing };
    let all = Shape {
        key_len: 0x1_0000,
        value_len: 0x1234_5678,
        expires: true,
        role: Role::Put,
        use_in: UseIn::Nothing,
    };
    let words = [shape, all].map(Shape::encode);
    let sums = [checksum(words[0], 7, b"key and value"), checksum(words[1], u32::MAX, &[0xee; 300])];
    assert_eq!(
        (words, sums, value_checksum(&[7; 5000])),
        ([0x7250_0000_0080_0010, 0xa589_a468_acf1_0000], [0xdf4e_0ca3, 0x3d00_ed41], 0x06dd_4a19_ef82_fbe3)
    );
    assert_eq!(seal(0x1234_5678, 0x9abc_def0), 0x1234_5678_9abc_def0);
}

proptest! {
    #[test]
    fn shape_round_trips(shape in shapes()) {
        prop_assert_eq!(Shape::decode(shape.encode()), Some(shape));
    }

    #[test]
    fn use_does_not_change_a_shape(shape in shapes(), key_len in 0..2000usize, value_len in 0..9000usize, recorded in any::<u32>()) {
        let value_len = value_len.min(shape.value_len);
        let shape = used(Shape { key_len, value_len, ..shape });
        let word = shape.encode_with(recorded);
        prop_assert_eq!(Shape::decode(word), Some(shape));
        match shape.use_in {
            UseIn::Shape => prop_assert_eq!(Shape::used(word), recorded & USE_MASK),
            _ => prop_assert_eq!(word, shape.encode()),
        }
    }

    #[test]
    fn changed_byte_of_a_shape_is_detected(shape in shapes(), byte in 0..8u32, flip in 1..=255u64) {
        prop_assert_eq!(Shape::decode(shape.encode() ^ flip << (8 * byte)), None);
        prop_assert_eq!(Shape::decode(used(shape).encode_with(flip as u32 * 7919) ^ flip << (8 * byte)), None);
    }

    #[test]
    fn changed_byte_of_a_record_is_detected(
        key in prop::collection::vec(any::<u8>(), 0..40),
        value in prop::collection::vec(any::<u8>(), 0..300),
        expires_at in any::<Option<u64>>(),
        stamp in any::<u32>(),
        at in any::<prop::sample::Index>(),
        flip in 1..=255u8,
    ) {
        let shape =
            Shape { key_len: key.len(), value_len: value.len(), expires: expires_at.is_some(), role: Role::Single, use_in: UseIn::Nothing };
        let mut body = expires_at.map_or(Vec::new(), |at| at.to_le_bytes().to_vec());
        body.extend([&key[..], &value[..]].concat());
        let mut block = encode_block(shape, stamp, &body);
        prop_assert_eq!(block.len(), shape.size());
        let read_back = Body { expires_at, external: None, key: &key, inline: &value };
        prop_assert_eq!(read(&block), Some((shape, stamp, read_back)));
        let at = at.index(block.len());
        block[at] ^= flip;
        prop_assert_eq!(read(&block), None);
    }

    #[test]
    fn random_bytes_are_read_without_a_panic(block in prop::collection::vec(any::<u8>(), 0..200), shape in shapes()) {
        prop_assert_eq!(read(&block), None);
        let mut block = block;
        if let Some(first) = block.first_chunk_mut() {
            *first = shape.encode().to_le_bytes();
            let _ = read(&block);
        }
    }
}
