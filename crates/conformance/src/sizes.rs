//! Growth, shrinking and a full pool.

use super::subject::{Make, Setup, Subject};
use std::collections::BTreeMap;

/// Grows from nothing to many keys, and shrinks when most are removed.
pub(super) fn grows_and_shrinks(make: Make<'_>) {
    const KEYS: u64 = 60_000;
    let subject = Subject::new(make(Setup::with_capacity(0)), 0..KEYS);
    for number in 0..KEYS {
        assert_eq!(subject.pin().insert(number, 1).expect("room"), None);
    }
    let large = subject.pin().raw.stats();
    assert!(large.load_factor() > 0.25, "{large:?}");
    let mut model: BTreeMap<u64, u64> = (0..KEYS).map(|number| (number, 1)).collect();
    subject.assert_holds(&model);
    for number in (0..KEYS).filter(|number| number % 100 != 0) {
        assert_eq!(subject.pin().remove(number), model.remove(&number));
    }
    while subject.pin().raw.maintain() {}
    subject.assert_holds(&model);
    let small = subject.pin().raw.stats();
    assert!(small.bytes <= large.bytes / 8, "it did not shrink: {large:?}, then {small:?}");
}

/// A full pool refuses only new keys, and accepts keys again when there is room.
pub(super) fn full_pool(make: Make<'_>) {
    const KEYS: u64 = 400_000;
    let subject = Subject::new(make(Setup::of_bytes(4 << 20)), 0..KEYS);
    let full = (0..KEYS).find(|&number| subject.pin().insert(number, 1).is_err());
    let full = full.expect("4 MiB do not hold all of these keys");
    assert!(full > 10_000, "{full} keys fill a pool of 4 MiB");
    for number in 0..full {
        let pin = subject.pin();
        assert_eq!(pin.get(number), Some(1), "key {number} after the pool was full");
        let word = pin.find(number).expect("just found");
        assert_eq!(pin.raw.update(subject.key(number), word), Some(word), "an update takes no memory");
    }
    assert_eq!(subject.pin().get(full), None, "a refused key is absent");
    for number in 0..full {
        assert_eq!(subject.pin().remove(number), Some(1), "a removal takes no memory");
    }
    assert_eq!(subject.index.len(), 0);
    // Removed memory is free once no reader can see it, a few pins later.
    let taken = (0..1000).any(|_| subject.pin().insert(full, 2).is_ok());
    assert!(taken, "there is room again");
    let half = (full / 2) as usize;
    for number in (0..full).take(half) {
        let stored = (0..1000).any(|_| subject.pin().insert(number, 2).is_ok());
        assert!(stored, "room for key {number} of {half}, where {full} were before");
    }
    assert_eq!(subject.pin().raw.verify(), []);
}
