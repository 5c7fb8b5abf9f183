//! Tests of `properties.rs`.

use super::*;
use crate::codec::hash;

#[test]
fn samples_split_data_evenly() {
    for items in [0u64, 1, 10, 1000, 300_000] {
        let mut properties = Properties::default();
        let keys: Vec<[u8; 8]> = (0..items).map(u64::to_be_bytes).collect();
        keys.iter().for_each(|key| properties.add(&Item::put(key, 7, &[1; 24]), hash(key), 8));
        properties.last_key = keys.last().map_or(Vec::new(), |key| key.to_vec());
        let mut bytes = Vec::new();
        properties.write(&mut bytes);
        assert_eq!(Properties::read(&bytes).as_ref(), Some(&properties));
        let samples = properties.samples.len() as u64;
        assert!(samples < SAMPLES_MAX as u64 && samples >= (items / 32).min(SAMPLES_MAX as u64 / 2 - 1));
        assert!(properties.samples.is_sorted());
        let places: Vec<u64> =
            properties.samples.iter().map(|key| u64::from_be_bytes(key[..].try_into().unwrap())).collect();
        let gaps = places.windows(2).map(|pair| pair[1] - pair[0]);
        assert!(gaps.clone().max().unwrap_or(0) <= 2 * gaps.min().unwrap_or(1), "{places:?}");
    }
}

#[test]
fn samples_of_long_keys_take_little_memory() {
    // Whatever two neighbours share, up to all but the last bytes.
    for shared in [0, 30_000, 65_500] {
        let mut properties = Properties::default();
        let key = |number: u32| {
            let mut key = vec![b'k'; 65_536];
            key[shared..shared + 4].copy_from_slice(&number.to_be_bytes());
            key
        };
        let mut last: &[u8] = &[];
        let keys: Vec<Vec<u8>> = (0..300).map(key).collect();
        for key in &keys {
            properties.add(&Item::tombstone(key, 7), hash(key), crate::codec::shared(last, key));
            last = key;
        }
        let bytes: usize = properties.samples.iter().map(Vec::len).sum();
        assert!(!properties.samples.is_empty() && bytes <= SAMPLES_BYTES_MAX.max(shared + 4), "{bytes}");
        assert!(properties.samples.is_sorted_by(|one, next| one < next));
        let is_between =
            |sample: &Vec<u8>| keys.windows(2).any(|pair| pair[0] < *sample && *sample <= pair[1]);
        assert!(properties.samples.iter().all(is_between), "each tells two neighbours apart");
    }
}

#[test]
fn table_with_whole_keys_as_samples_is_thinned_out() {
    let samples = (0..100u8).map(|n| vec![n; 60_000]).collect();
    let old = Properties { samples, sample_bytes: 1 << 10, ..Properties::default() };
    let mut bytes = Vec::new();
    old.write(&mut bytes);
    let read = Properties::read(&bytes).unwrap();
    assert_eq!(read.samples.len(), 1);
    assert!(old.samples.contains(&read.samples[0]));
}

#[test]
fn expired_items_are_estimated() {
    let mut expiring = Expiring::default();
    assert_eq!(expiring.expired(5000), 0.0);
    (0..100).for_each(|nth| expiring.add(1000 + nth));
    let at = [999, 1000, 1049, 1099, 9999].map(|now| expiring.expired(now).round());
    assert_eq!(at, [0.0, 1.0, 50.0, 100.0, 100.0]);
}

#[test]
fn properties_refuse_what_is_cut_short() {
    let mut properties = Properties::default();
    (0..100u8).for_each(|n| properties.add(&Item::tombstone(&[n], u64::from(n)), hash(&[n]), 0));
    let mut bytes = Vec::new();
    properties.write(&mut bytes);
    assert!((0..bytes.len()).all(|cut| Properties::read(&bytes[..cut]).is_none()));
    assert_eq!((properties.tombstones, properties.seqs), (100, (0, 99)));
}
