//! Messages of the control channel: whatever bytes come, they are a message or none.

use proptest::prelude::*;
use serde::{Serialize, de::DeserializeOwned};
use terrace_cluster::message::{Access, Item, Page, ToMemory, ToServing, WIRE};
use terrace_cluster::slot::{SLOTS, SlotRange};

/// Reads bytes. A message that they are is no longer than they are: its lengths are true.
fn read<T: Serialize + DeserializeOwned>(bytes: &[u8]) -> Option<T> {
    let message: T = postcard::from_bytes(bytes).ok()?;
    let again = postcard::to_stdvec(&message).expect("a message");
    assert!(again.len() <= bytes.len(), "{} bytes of {}", again.len(), bytes.len());
    Some(message)
}

fn read_all(bytes: &[u8]) {
    let _ = (read::<ToMemory>(bytes), read::<ToServing>(bytes), read::<Access>(bytes));
    assert_eq!(read::<Access>(bytes), Access::decode(bytes));
}

fn messages() -> Vec<Vec<u8>> {
    let range = SlotRange::new(3, SLOTS - 1).unwrap();
    let (ranges, durable) = (vec![range; 3], vec![1, 300, u64::MAX]);
    let item = Item { key: vec![1; 20], value: vec![2; 300], expires_at: Some(u64::MAX) };
    let access = Access {
        provider: "tcp".into(),
        lanes: vec![vec![7; 30]; 3],
        pool: vec![[9; 16]; 3],
        index: [1, u64::MAX, 3, 4],
    };
    let to_memory = [
        ToMemory::Hello { wire: WIRE, node: "node".into(), shards: 2, lanes: 3, last: 9 },
        ToMemory::Renew { sent: u64::MAX, pin: 7, durable: durable.clone() },
        ToMemory::Release { ranges: ranges.clone(), durable: durable.clone() },
        ToMemory::Get { id: 1, key: vec![5; 200] },
        ToMemory::Scan { id: 1, cursor: 2, at_least: 3, values: true, durable: durable.clone() },
    ];
    let to_serving = [
        ToServing::Welcome { incarnation: 1, lease: 2, access: access.encode() },
        ToServing::Renewed { sent: 1, pin: 2, merged: durable },
        ToServing::Granted { epoch: 1, ranges },
        ToServing::Segment { shard: 1, number: 2, bytes: 3, key: [8; 16] },
        ToServing::Got { id: 1, found: Ok(Some(item.clone())) },
        ToServing::Scanned { id: 1, page: Ok(Page { items: vec![item; 4], next: 9, skipped: 1 }) },
        ToServing::Fenced { why: "why".into() },
    ];
    let mut all: Vec<Vec<u8>> = to_memory.iter().map(|it| postcard::to_stdvec(it).unwrap()).collect();
    all.extend(to_serving.iter().map(|it| postcard::to_stdvec(it).unwrap()));
    all.push(access.encode());
    all
}

proptest! {
    #[test]
    fn any_bytes_are_a_message_or_none(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
        read_all(&bytes);
    }

    /// Nearly a message.
    #[test]
    fn changed_message_is_a_message_or_none(
        which: prop::sample::Index,
        changes in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
        cut: prop::sample::Index,
    ) {
        let mut bytes = messages().swap_remove(which.index(messages().len()));
        for (place, byte) in changes {
            let place = place.index(bytes.len());
            bytes[place] = byte;
        }
        read_all(&bytes);
        read_all(&bytes[..cut.index(bytes.len())]);
    }
}

/// A length of nearly everything, with nothing behind it, takes no memory.
#[test]
fn length_without_bytes_is_no_message() {
    let most = [0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1];
    for kind in 0..16 {
        for before in 0..6 {
            let bytes = [&[kind][..], &vec![1; before], &most, &[0; 4]].concat();
            read_all(&bytes);
        }
    }
    assert_eq!(Access::decode(&most), None);
}
