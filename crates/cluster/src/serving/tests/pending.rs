//! Tests of unmerged writes.

use crate::serving::key::{Copied, Key};
use crate::serving::logs::Appended;
use crate::serving::pending::Pending;

const KEY: &[u8] = b"key";

#[test]
fn keys_are_counted_while_a_clear_is_not_merged() {
    let pending = Pending::new(2);
    let (keys, slots) = (["a", "b", "c"].map(|key| Key::new(key.as_bytes())), [3300, 7365, 15495]);
    assert_eq!(keys.map(|key| key.slot), [15495, 3300, 7365]);
    let at = |lsn| move || Ok::<_, ()>(Appended { lsn, ticket: lsn });
    let put = |key: Key<'_>| Some(Copied::new(key.bytes, b"value", None));
    let apply = |key: Key<'_>, lsn, entry| {
        pending.apply(key.slot % 2, &[(key, entry)], at(lsn), || ()).unwrap();
    };
    let clear = |slots: &[u16], lsn| _ = pending.clear(slots, at(lsn), || ()).unwrap();
    keys.into_iter().for_each(|key| apply(key, 1, put(key)));
    assert_eq!(pending.count_since_clear(&slots), None);
    clear(&[3300], 2);
    assert_eq!(pending.count_since_clear(&slots), None);
    clear(&[7365, 15495], 2);
    assert_eq!(pending.count_since_clear(&slots), Some(0));
    apply(keys[0], 3, put(keys[0]));
    apply(keys[1], 3, put(keys[1]));
    apply(keys[1], 4, None);
    assert_eq!(pending.count_since_clear(&slots), Some(1));
    let keys_since = |most| pending.keys_since_clear(&slots, most);
    assert_eq!(keys_since(1), Some(vec![Copied::new(b"a", b"value", None)]));
    assert_eq!(keys_since(0), None);
    assert_eq!(pending.count_since_clear(&[]), None);
    pending.merged(&[1, 2]);
    assert_eq!(pending.count_since_clear(&slots), None, "a clear is merged");
}

/// Looks at a key while it is merged, which was put after its slot had been cleared.
#[test]
fn key_put_after_a_clear_is_never_absent() {
    let pending = Pending::new(1);
    let key = Key::new(KEY);
    let put = Some(Copied::new(KEY, b"value", None));
    for round in 0..300 {
        let (cleared, lsn) = (2 * round + 1, 2 * round + 2);
        let at = |lsn| move || Ok::<_, ()>(Appended { lsn, ticket: lsn });
        pending.clear(&[key.slot], at(cleared), || ()).unwrap();
        pending.apply(0, &[(key, put.clone())], at(lsn), || ()).unwrap();
        std::thread::scope(|scope| {
            scope.spawn(|| pending.merged(&[lsn]));
            while let Some(found) = pending.get(key.hash, key.slot, KEY) {
                assert!(found.is_some(), "round {round}");
            }
        });
    }
}
