//! Tests of `filter.rs`.

use super::*;
use crate::codec::{checksum, hash};
use proptest::prelude::*;

fn hashes(from: u64, count: u64) -> Vec<u64> {
    (from..from + count).map(|n| hash(&n.to_le_bytes())).collect()
}

#[test]
fn filter_has_its_keys_and_few_others() {
    for (count, kind, most) in [1, 2, 3, 10, 1000, 50_000]
        .into_iter()
        .flat_map(|count| [(count, FilterKind::Bits8, 1000), (count, FilterKind::Bits16, 20)])
    {
        let mut keys = hashes(0, count);
        let filter = Filter::new(&mut keys, kind).expect("a filter");
        let mut bytes = Vec::new();
        filter.write(&mut bytes);
        let filter = Filter::read(&bytes).expect("a filter");
        assert!(keys.iter().all(|&key| filter.may_have(key)));
        let passed = hashes(1 << 40, 200_000).into_iter().filter(|&key| filter.may_have(key)).count();
        assert!(passed < most, "{passed} of 200,000 pass among {count}");
        assert!((0..bytes.len()).step_by(7).all(|cut| {
            // Whatever is read, a search stays inside.
            Filter::read(&bytes[..cut]).is_none_or(|filter| filter.may_have(7) | true)
        }));
    }
}

/// Tables of any age hold such filters.
#[test]
fn filters_never_change() {
    let golden = [FilterKind::Bits8, FilterKind::Bits16].map(|kind| {
        let mut bytes = Vec::new();
        Filter::new(&mut hashes(0, 100), kind).unwrap().write(&mut bytes);
        // The bits of a fingerprint first.
        (bytes.len(), bytes[0], checksum(&bytes[1..], 0))
    });
    assert_eq!(golden[1], (405, 16, 7_273_923_060_815_784_091));
    assert_eq!(golden[0], (213, 8, 1_648_382_227_883_841_958));
}

proptest! {
    #[test]
    fn filter_of_any_bytes_searches_inside(
        bits in prop_oneof![Just(8u8), Just(16), any::<u8>()],
        lengths in prop::array::uniform3(0..40u32),
        is_fitting in any::<bool>(),
        prints in prop::collection::vec(any::<u8>(), 0..200),
        hashes in prop::collection::vec(any::<u64>(), 20),
    ) {
        let [length, mask, all] = lengths;
        let (length, mask) = if is_fitting { (1 << (length % 6), (1 << (length % 6)) - 1) } else { (length, mask) };
        let mut bytes = vec![bits];
        bytes.extend_from_slice(&7u64.to_le_bytes());
        [length, mask, all].iter().for_each(|number| bytes.extend_from_slice(&number.to_le_bytes()));
        bytes.extend_from_slice(&prints);
        if let Some(filter) = Filter::read(&bytes) {
            hashes.iter().for_each(|&hash| {
                filter.may_have(hash);
            });
        }
    }
}
