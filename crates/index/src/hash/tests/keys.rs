//! Test data: byte strings that only their records distinguish, and records that consist of a
//! number.

use crate::{Bytes, KeyKind, PointIndex, RecordKeys};
use std::collections::HashMap;
use std::sync::LazyLock;
use terrace_medium::MappedMedium;
use terrace_pool::Guard;

/// Numbers of possible keys.
const NUMBERS: u64 = 1 << 15;

static KEYS: LazyLock<Vec<[u8; 8]>> = LazyLock::new(|| (0..NUMBERS).map(u64::to_le_bytes).collect());

/// Records whose keys are numbers: the one at `8 * n` has the key `n`, as eight bytes. Beyond the
/// last, none is sound.
pub(super) struct Numbered;

/// The offset of an unreadable record.
pub(super) const UNREADABLE: u64 = 8 * NUMBERS;

impl RecordKeys for Numbered {
    fn key<'g, M: MappedMedium>(_: &'g Guard<'_, M>, offset: u64) -> Option<&'g [u8]> {
        KEYS.get((offset >> 3) as usize).filter(|_| offset & 7 == 0).map(<[u8; 8]>::as_slice)
    }
}

pub(super) fn key(number: u64) -> &'static [u8] {
    &KEYS[number as usize]
}

/// Two keys whose hashes have the first `top` bits and the last eight in common.
pub(super) fn look_alike_pair(seed: u64, top: u32) -> [u64; 2] {
    let mut seen = HashMap::new();
    let bits = |number| {
        let hash = Bytes::<Numbered>::hash(key(number), seed);
        (hash >> (64 - top), hash as u8)
    };
    let first = (1..NUMBERS).find_map(|number| Some([seen.insert(bits(number), number)?, number]));
    first.expect("so many numbers have two that bits alike")
}

/// Checks that an empty index finds forty keys after they are added, and no others, with
/// `get_many`.
pub(super) fn check_get_many(index: &impl PointIndex<Kind = Bytes<Numbered>>) {
    let guard = index.pool().pin();
    (1..41).for_each(|number| _ = index.insert(&guard, key(number), 8 * number).unwrap());
    for keys in [0, 1, 15, 16, 17, 50] {
        let mut found = Vec::new();
        index.get_many(&guard, (1..1 + keys).map(key), |nth, word| found.push((nth as u64, word)));
        let expected = (0..keys).map(|nth| (nth, (nth < 40).then_some(8 * (nth + 1))));
        assert_eq!(found, expected.collect::<Vec<_>>());
    }
}
