//! Tests of `block.rs`.

use super::*;
use crate::codec::{hash, shared};
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::sync::Arc;

type Model = BTreeMap<(Vec<u8>, std::cmp::Reverse<u64>), Option<(Vec<u8>, Option<u64>)>>;

fn item<'m>(
    (key, seq): &'m (Vec<u8>, std::cmp::Reverse<u64>),
    content: &'m Option<(Vec<u8>, Option<u64>)>,
) -> Item<'m> {
    let content = match content {
        None => Content::Tombstone,
        Some((value, expires_at)) => Content::Put { value, expires_at: *expires_at },
    };
    Item { key, seq: seq.0, content }
}

fn built(model: &Model) -> Vec<u8> {
    let mut builder = BlockBuilder::default();
    for (at, content) in model {
        let shared = shared(builder.last_key(), &at.0);
        builder.add(&item(at, content), hash(&at.0), shared);
    }
    builder.finish().to_vec()
}

fn cursor(model: &Model) -> BlockCursor<Arc<Block>> {
    BlockCursor::new(Arc::new(Block::new(built(model).into()).expect("a block")))
}

fn models() -> impl Strategy<Value = Model> {
    let key = prop::collection::vec(prop_oneof![Just(0u8), Just(b'a'), Just(b'b'), Just(255)], 0..6);
    let content =
        prop::option::of((prop::collection::vec(any::<u8>(), 0..20), prop::option::of(any::<u64>())));
    prop::collection::btree_map((key, (0..40u64).prop_map(std::cmp::Reverse)), content, 0..200)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]

    #[test]
    fn cursor_goes_both_ways_and_seeks_as_a_map(model in models(), probe in (prop::collection::vec(any::<u8>(), 0..4), 0..40u64)) {
        let mut cursor = cursor(&model);
        let items: Vec<Item<'_>> = model.iter().map(|(at, content)| item(at, content)).collect();
        cursor.seek_first();
        for item in &items {
            prop_assert_eq!(cursor.item(), Some(*item));
            cursor.next();
        }
        prop_assert_eq!(cursor.item(), None);
        cursor.seek_last();
        for item in items.iter().rev() {
            prop_assert_eq!(cursor.item(), Some(*item));
            cursor.previous();
        }
        prop_assert_eq!(cursor.item(), None);
        let probes = model.keys().map(|(key, seq)| (key.clone(), seq.0)).chain([probe]);
        for (key, seq) in probes.flat_map(|(key, seq)| [(key.clone(), seq), (key.clone(), u64::MAX), (key, 0)]) {
            let expected = items.iter().find(|item| order((item.key, item.seq), (&key, seq)) != Ordering::Less);
            cursor.seek(&key, seq);
            prop_assert_eq!(cursor.item(), expected.copied());
            cursor.seek_key(&key, hash(&key), seq);
            let found = cursor.item().filter(|item| item.key == key);
            prop_assert_eq!(found, expected.copied().filter(|item| item.key == key));
        }
        prop_assert!(!cursor.is_damaged());
    }

    #[test]
    fn damaged_block_is_refused_or_read_within_bounds(model in models(), bytes in prop::collection::vec((any::<u16>(), any::<u8>()), 1..8)) {
        let mut block = built(&model);
        for (at, byte) in bytes {
            let at = usize::from(at) % block.len();
            block[at] = byte;
        }
        let Some(block) = Block::new(block.into()) else { return Ok(()) };
        let mut cursor = BlockCursor::new(Arc::new(block));
        cursor.seek_last();
        cursor.seek(b"a", 7);
        cursor.seek_key(b"ab", hash(b"ab"), 7);
        cursor.previous();
        cursor.seek_first();
        let mut steps = 0;
        while cursor.item().is_some() && steps < 10_000 {
            cursor.next();
            steps += 1;
        }
        prop_assert!(steps < 10_000, "items end");
    }
}
