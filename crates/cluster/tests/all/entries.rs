//! Tests: entries prove themselves.

use proptest::prelude::*;
use terrace_cluster::entry::{Change, Entry, HEADER};
use terrace_cluster::slot::SlotRange;

/// What a change is made of: key, value, expiry; without a value it is a removal.
type Parts = (Vec<u8>, Option<(Vec<u8>, Option<u64>)>);

fn parts() -> impl Strategy<Value = Vec<Parts>> {
    let value = (proptest::collection::vec(any::<u8>(), 0..100), proptest::option::of(1..u64::MAX));
    let change = (proptest::collection::vec(any::<u8>(), 0..40), proptest::option::of(value));
    proptest::collection::vec(change, 0..5)
}

fn change_of((key, value): &Parts) -> Change<'_> {
    match value {
        Some((value, expires_at)) => Change::Put { key, value, expires_at: *expires_at },
        None => Change::Remove { key },
    }
}

fn entry_of(parts: &[Parts]) -> Entry<'_> {
    Entry::Changes(parts.iter().map(change_of).collect())
}

proptest! {
    #[test]
    fn entry_is_read_as_it_was_put(parts in parts(), lsn: u64, segment: u64) {
        let (entry, mut bytes) = (entry_of(&parts), Vec::new());
        entry.put(lsn, segment, &mut bytes);
        prop_assert_eq!(bytes.len(), entry.size());
        bytes.extend([0xa5; 16]);
        prop_assert_eq!(Entry::read(&bytes, lsn, segment), Some((entry.clone(), entry.size())));
        prop_assert_eq!(Entry::read(&bytes, lsn.wrapping_add(1), segment), None);
        prop_assert_eq!(Entry::read(&bytes, lsn, segment.wrapping_add(1)), None);
    }

    #[test]
    fn damaged_entry_is_none(parts in parts(), place: prop::sample::Index, bit in 0..8u8) {
        let mut bytes = Vec::new();
        entry_of(&parts).put(7, 3, &mut bytes);
        let place = place.index(bytes.len());
        bytes[place] ^= 1 << bit;
        prop_assert_eq!(Entry::read(&bytes, 7, 3), None);
    }

    /// Whatever a segment has, an entry is read from it or not.
    #[test]
    fn any_bytes_are_read_without_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        let _ = Entry::read(&bytes, 0, 0);
    }
}

#[test]
fn short_bytes_are_no_entry() {
    let mut bytes = Vec::new();
    Entry::Clear(vec![SlotRange { first: 3, last: 9 }]).put(1, 1, &mut bytes);
    assert_eq!(bytes.len(), HEADER + 8);
    assert!((0..bytes.len()).all(|len| Entry::read(&bytes[..len], 1, 1).is_none()));
}

/// Bodies that no writer makes, below a checksum that fits.
#[test]
fn impossible_bodies_are_no_entries() {
    let sealed = |kind: u64, body: &[u64]| {
        let mut bytes = Vec::new();
        bytes.extend(((HEADER + 8 * body.len()) as u64 | kind << 32).to_le_bytes());
        bytes.extend(1u64.to_le_bytes());
        bytes.extend([0; 8]);
        body.iter().for_each(|word| bytes.extend(word.to_le_bytes()));
        let head = xxhash_rust::xxh3::xxh3_64_with_seed(&bytes[..16], 1);
        let sum = xxhash_rust::xxh3::xxh3_64_with_seed(&bytes[HEADER..], head);
        bytes[16..24].copy_from_slice(&sum.to_le_bytes());
        bytes
    };
    assert_eq!(Entry::read(&sealed(3, &[]), 1, 1), Some((Entry::End, HEADER)));
    let (reversed, beyond) = (9 | 3 << 16, 3 | 16_384 << 16);
    let key_too_long = 100;
    let removal_with_value = 1 | 1 << 32;
    for (kind, body) in [
        (0, &[][..]),
        (4, &[]),
        (3, &[0]),
        (2, &[reversed]),
        (2, &[beyond]),
        (1, &[key_too_long]),
        (1, &[removal_with_value, 0]),
        (1, &[1 << 63 | 1]),
        (1, &[u64::MAX, 0, 0]),
    ] {
        assert_eq!(Entry::read(&sealed(kind, body), 1, 1), None, "{kind} {body:x?}");
    }
}
