//! Tests: ranges of ordered stores, and what a store without an order answers.

use std::ops::ControlFlow;
use terrace::{Direction, Index, RangeCursor, ReadError, Store, WriteError};

fn store(index: Index) -> Store {
    let store = Store::options().anonymous().index(index).create().unwrap();
    ["b", "a", "ab", "c", "", "b\0"].iter().for_each(|key| store.put(key, format!("of {key}")).unwrap());
    store
}

/// A store with each ordered index.
fn ordered_stores() -> impl Iterator<Item = Store> {
    Index::ALL.into_iter().filter(|index| index.is_ordered()).map(store)
}

/// The keys of a range, as text.
fn keys(range: impl Iterator<Item = Result<(Vec<u8>, terrace::OwnedValue), ReadError>>) -> Vec<String> {
    range.map(|entry| String::from_utf8(entry.unwrap().0).unwrap()).collect()
}

#[test]
fn ranges_take_every_kind_of_bounds() {
    for store in ordered_stores() {
        assert!(store.is_ordered());
        assert_eq!(keys(store.range(..)), ["", "a", "ab", "b", "b\0", "c"]);
        assert_eq!(keys(store.range("a".."b")), ["a", "ab"]);
        assert_eq!(keys(store.range(b"a"..=b"b")), ["a", "ab", "b"]);
        assert_eq!(keys(store.range(String::from("b")..)), ["b", "b\0", "c"]);
        assert_eq!(keys(store.range(..vec![b'b'])), ["", "a", "ab"]);
        assert_eq!(keys(store.range(..=[b'b'])), ["", "a", "ab", "b"]);
        assert_eq!(keys(store.range("c".."a")), [""; 0]);
        assert_eq!(keys(store.range("b".."b")), [""; 0]);
        assert_eq!(keys(store.prefix("b").rev()), ["b\0", "b"]);
        assert_eq!(keys(store.prefix("")).len(), 6);
        let long = vec![b'b'; terrace::KEY_MAX + 1];
        assert_eq!(keys(store.range(long.clone()..)), ["c"]);
        assert_eq!(keys(store.range(..long.clone()).rev().take(1)), ["b\0"]);
        assert_eq!(keys(store.prefix(long)), [""; 0]);
        let value = |entry: Option<(Vec<u8>, terrace::OwnedValue)>| entry.unwrap().1.to_vec();
        assert_eq!(value(store.first().unwrap()), b"of ");
        assert_eq!(value(store.last().unwrap()), b"of c");
    }
}

#[test]
fn store_without_an_order_names_the_ordered_index() {
    for index in Index::ALL.into_iter().filter(|index| !index.is_ordered()) {
        let store = store(index);
        let refused = ReadError::Unordered { index: index.name() };
        assert!(!store.is_ordered());
        let mut range = store.range("a"..);
        assert_eq!((range.next(), range.next(), range.next_back()), (Some(Err(refused.clone())), None, None));
        assert_eq!(store.prefix("a").next_back(), Some(Err(refused.clone())));
        assert_eq!((store.first(), store.last()), (Err(refused.clone()), Err(refused.clone())));
        assert_eq!(store.range_cursor(.., Direction::Forward).err(), Some(refused.clone()));
        let unchanged = WriteError::Unordered { index: index.name() };
        assert_eq!(store.delete_range(..), Err(unchanged.clone()));
        assert_eq!(store.delete_prefix("a"), Err(unchanged.clone()));
        assert_eq!(store.delete_range_up_to(.., 1), Err(unchanged.clone()));
        let in_transaction = store.transaction(|transaction| {
            assert_eq!(transaction.range(..).next(), Some(Err(refused.clone())));
            transaction.delete_range("a"..).map(drop)
        });
        assert_eq!(in_transaction, Err(unchanged));
        assert_eq!(store.len(), 6);
        let text = refused.to_string();
        assert!(text.contains(index.name()) && text.contains("`masstree`, `art`"), "{text}");
        let mut all: Vec<Vec<u8>> = store.keys_with_prefix("a").map(Result::unwrap).collect();
        all.sort();
        assert_eq!(all, [&b"a"[..], b"ab"]);
    }
}

/// The keys that a cursor shows in one visit.
fn visit(cursor: &mut dyn RangeCursor, at_most: usize) -> (Vec<Vec<u8>>, bool) {
    let mut keys = Vec::new();
    let more = cursor.visit(at_most, &mut |key, _| {
        keys.push(key.to_vec());
        ControlFlow::Continue(())
    });
    (keys, more.unwrap())
}

#[test]
fn cursor_of_a_transaction_goes_on_between_writes_and_store() {
    for store in ordered_stores() {
        let done = store.transaction(|transaction| {
            transaction.put("aa", "mine")?;
            transaction.put("b", "mine")?;
            transaction.remove("c")?;
            transaction.put("d", "mine")?;
            let expected = ["", "a", "aa", "ab", "b", "b\0", "d"];
            for at_most in 1..9 {
                let mut cursor = transaction.range_cursor(.., Direction::Forward)?;
                let mut seen = Vec::new();
                loop {
                    let (keys, more) = visit(&mut *cursor, at_most);
                    seen.extend(keys);
                    assert_eq!(cursor.position(), seen.last().map(Vec::as_slice));
                    if !more {
                        break;
                    }
                }
                assert!(seen.iter().eq(expected.iter().map(|key| key.as_bytes())), "{at_most}: {seen:?}");
            }
            let backward: Vec<String> = keys(transaction.range("a".."d").rev());
            assert_eq!(backward, ["b\0", "b", "ab", "aa", "a"]);
            let value = transaction.range("b"..="b").next().unwrap()?.1;
            assert_eq!(&*value, b"mine");
            assert_eq!(transaction.delete_range_up_to("a".., 2)?, (2, Some(Box::from(&b"ab"[..]))));
            assert_eq!(transaction.delete_prefix("b")?, 2);
            assert_eq!(transaction.len(), 3);
            Ok::<_, WriteError>(())
        });
        assert_eq!(done, Ok(()));
        assert_eq!(keys(store.range(..)), ["", "ab", "d"]);
    }
}

#[test]
fn changed_expiry_in_a_transaction_shows_in_its_ranges() {
    for store in ordered_stores() {
        let done = store.transaction(|transaction| {
            for (key, at) in [("a", Some(u64::MAX)), ("b", Some(1)), ("c", None)] {
                transaction.modify(key, |_| (terrace::Change::Expire(at), ()))?;
            }
            assert_eq!(keys(transaction.range("a"..)), ["a", "ab", "b\0", "c"]);
            let first = transaction.range("a"..).next().unwrap()?.1;
            assert_eq!((&*first, first.expires_at()), (&b"of a"[..], Some(u64::MAX)));
            Ok::<_, WriteError>(())
        });
        assert_eq!(done, Ok(()));
    }
}
