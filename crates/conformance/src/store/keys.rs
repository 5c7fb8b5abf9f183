//! Keys that are hard for a store.

use super::{Site, assert_sound, contents};
use std::collections::BTreeMap;
use terrace::Store;

/// Puts, overwrites and removes `keys`, compared with a map.
fn check(store: &Store, keys: &[Vec<u8>]) {
    let mut model = BTreeMap::new();
    for (round, step) in [(1u8, 1), (2, 2), (3, 3)] {
        for key in keys.iter().step_by(step) {
            store.put(key, [round; 9]).expect("room");
            model.insert(key.clone(), (vec![round; 9], None));
        }
        for key in keys.iter().skip(1).step_by(step + 1) {
            assert_eq!(store.remove(key), Ok(model.remove(key).is_some()), "{}", key.escape_ascii());
        }
        assert_eq!(contents(store), model);
        for key in keys {
            let value = store.get(key).expect("a sound store").map(|value| (value.to_vec(), None));
            assert_eq!(value.as_ref(), model.get(key), "{}", key.escape_ascii());
        }
    }
    assert_sound(store);
}

/// 8-byte integers in several byte orders; keys that differ in one bit, in the last byte, in
/// length, by a zero.
pub(super) fn integers_and_look_alikes(make: &impl Fn() -> Site) {
    let integers = (0..2000u64).flat_map(|n| [n.to_be_bytes(), n.to_le_bytes(), (n << 40).to_be_bytes()]);
    let integers: std::collections::BTreeSet<Vec<u8>> = integers.map(|bytes| bytes.to_vec()).collect();
    check(&make().open(), &integers.into_iter().collect::<Vec<_>>());
    let bits = (0..512usize).map(|bit| {
        let mut key = vec![0xa5; 64];
        key[bit / 8] ^= 1 << (bit % 8);
        key
    });
    let last =
        (0..=255u8).map(|byte| [b"a common beginning that is quite long: ".as_slice(), &[byte]].concat());
    let zeros = (1..100).map(|len| vec![0; len]);
    check(&make().open(), &bits.chain(last).chain(zeros).collect::<Vec<_>>());
}

/// Keys of every length up to a few hundred, and of the maximum length.
pub(super) fn keys_of_every_length(make: &impl Fn() -> Site) {
    let lengths = (1..300).chain([4095, 4096, 4097, 65_535, 65_536]);
    let keys: Vec<Vec<u8>> = lengths.map(|len| (0..len).map(|at| (at * 7 + len) as u8).collect()).collect();
    check(&make().open(), &keys);
    let store = make().open();
    assert!(store.put(vec![1; 65_537], b"").is_err(), "longer than the longest");
    assert!(contents(&store).is_empty());
}
