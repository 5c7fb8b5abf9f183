//! Tests of `remote`.

use super::*;
use crate::record::format::{UseIn, checksum, seal};
use crate::tests::fixtures::store;
use proptest::prelude::*;
use std::sync::atomic::Ordering::Relaxed;
use terrace_engine::{Durably, Engine, Write, WriteKind};
use terrace_index::hash::remote::{Read, Reads};

const KEY: &[u8] = b"key";

/// The bytes of a record of [`KEY`] with this role, batch word and value, and an expiry.
fn block(role: Role, batch: u64, value: &[u8]) -> Vec<u8> {
    let expires = matches!(role, Role::Single | Role::Put);
    let shape = Shape { key_len: KEY.len(), value_len: value.len(), expires, role, use_in: UseIn::Nothing };
    let at: &[u8] = if expires { &[9, 0, 0, 0, 0, 0, 0, 0] } else { &[] };
    let body = [at, KEY, value].concat();
    let word = shape.encode();
    let mut block = [word, seal(checksum(word, 5, &body), 5)].map(u64::to_le_bytes).concat();
    if role != Role::Single {
        block.extend(batch.to_le_bytes());
    }
    block.extend(body);
    block
}

/// The value and the expiry of an entry.
fn entry<'b>(key: &[u8], block: &'b [u8]) -> Result<(&'b [u8], Option<u64>), Reading<'b>> {
    match read(key, block) {
        Reading::Entry(entry) => Ok((entry.value, entry.expires_at)),
        other => Err(other),
    }
}

#[test]
fn record_of_an_unfinished_batch_is_asked_about() {
    let role = |role, batch, value| block(role, batch, value);
    for (role, batch) in [(Role::Single, 7), (Role::Put, 0)] {
        assert_eq!(entry(KEY, &block(role, batch, b"value")), Ok((&b"value"[..], Some(9))));
    }
    for block in [role(Role::Put, 7, b"value"), role(Role::Tombstone, 0, b""), role(Role::Keep, 7, b"")] {
        assert_eq!(read(KEY, &block), Reading::Ask);
        assert_eq!(read(b"another", &block), Reading::OtherKey);
    }
}

#[test]
fn record_is_read_once_it_is_there_as_a_whole() {
    let block = block(Role::Put, 0, &[7; 100]);
    for len in 0..block.len() {
        let wanted = if len < HEADER { HEADER } else { block.len() };
        assert_eq!(read(KEY, &block[..len]), Reading::More { len: wanted }, "{len}");
    }
    let longer = [&block[..], b"another record"].concat();
    assert_eq!((entry(KEY, &block), read(KEY, &block)), (Ok((&[7; 100][..], Some(9))), read(KEY, &longer)));
    assert_eq!(read(b"kez", &block), Reading::OtherKey);
}

#[test]
fn record_with_a_changed_byte_is_asked_about() {
    let block = block(Role::Put, 0, b"value");
    for byte in 0..block.len() {
        let mut damaged = block.clone();
        damaged[byte] ^= 0x10;
        assert_eq!(read(KEY, &damaged), Reading::Ask, "byte {byte}");
        assert!(matches!(read(b"another", &damaged), Reading::Ask | Reading::OtherKey), "byte {byte}");
    }
}

/// A remote get while the record has a batch word, as before its batch is finalized.
#[test]
fn key_of_an_unfinished_batch_is_asked_about() {
    let (store, _) = store();
    let write = Write { key: KEY, what: WriteKind::Put { value: b"value", expires_at: None } };
    let other = Write { key: b"other", ..write };
    store.commit(&[write, other], &[], Durably::Store).unwrap();
    let mut remote = Remote::new(address_in(store.pool()).unwrap().unwrap());
    let mut find = || {
        let mut fetch = |reads: Reads| {
            let read = |read: Read| {
                terrace_testkit::torn_read(store.pool(), (read.offset, read.len), 0, || ()).ok_or(read)
            };
            Ok::<_, Read>(reads.iter().map(read).collect::<Result<Vec<_>, _>>()?.concat())
        };
        get(&mut remote, KEY, 64, &mut fetch).unwrap()
    };
    assert!(matches!(find(), Answer::Found(value) if value == b"value"));
    let word = store.raw(store.record_offset(KEY) + HEADER as u64);
    word.store(store.pool().medium(), 7, Relaxed);
    assert_eq!(find(), Answer::Ask);
    word.store(store.pool().medium(), 0, Relaxed);
    store.damage(store.record_offset(KEY) + HEADER as u64 + 8);
    assert_eq!(find(), Answer::Ask);
}

proptest! {
    #[test]
    fn random_bytes_are_read_without_a_panic(bytes in prop::collection::vec(any::<u8>(), 0..200), shape in any::<u64>()) {
        let _ = read(KEY, &bytes);
        let sealed = (0..64).find_map(|bit| Shape::decode(shape.rotate_left(bit)).map(Shape::encode));
        let sound = Shape { key_len: shape as usize % 300, value_len: (shape >> 9) as usize % 6000, expires: shape >> 60 & 1 == 1, role: Role::Put, use_in: UseIn::Nothing };
        let head = sealed.unwrap_or(sound.encode()).to_le_bytes();
        prop_assert!(!matches!(read(KEY, &[&head[..], &bytes].concat()), Reading::Entry(_)));
    }
}
