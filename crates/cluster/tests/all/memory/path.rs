//! From a client's log into the pool, and from one client to another.

use super::client::{Client, FAR, all, directory, link, options, start};
use std::sync::mpsc;
use terrace_cluster::entry::{Change, Entry};
use terrace_cluster::memory::MemoryNode;
use terrace_cluster::message::{ToMemory, ToServing, WIRE};
use terrace_cluster::slot::{SLOTS, SlotRange};

#[test]
fn entry_that_was_written_is_in_the_pool() {
    let directory = directory();
    let node = start(options(directory.path()));
    let mut client = Client::with_all(node.address(), "one");
    client.put(b"key", b"value");
    client.settle();
    assert_eq!(client.value(b"key").unwrap(), b"value");
    assert_eq!(client.count(), 1);
    drop(client);
    node.stop().unwrap();
    let store = terrace::Store::options().path(directory.path().join("pool")).open().unwrap();
    assert_eq!(store.get(b"key").unwrap().unwrap(), b"value");
    assert!(store.check(&mut |_, _| ()).is_sound());
}

/// The time of an entry is its owner's matter: the memory node removes nothing.
#[test]
fn entry_that_has_expired_stays() {
    let directory = directory();
    let node = start(options(directory.path()));
    let mut client = Client::with_all(node.address(), "one");
    client.wait_for_segments(1);
    let change = Change::Put { key: b"key", value: b"value", expires_at: Some(1) };
    assert!(client.append(&Entry::Changes(vec![change])));
    client.settle();
    let item = client.get(b"key").unwrap().unwrap();
    assert_eq!((item.value, item.expires_at), (b"value".to_vec(), Some(1)));
}

/// Batches give two keys the same number. A reader that looks at one and then at the other finds
/// the same number or a later one.
#[test]
fn batch_happens_at_one_instant() {
    const BATCHES: u64 = 3000;
    let directory = directory();
    let node = start(options(directory.path()));
    let mut client = Client::with_all(node.address(), "one");
    client.wait_for_segments(2);
    for number in 1..=BATCHES {
        let value = number.to_le_bytes();
        let put = |key: &'static [u8]| Change::Put { key, value: &value, expires_at: None };
        let old = (number - 1).to_le_bytes();
        let remove = Change::Remove { key: &old };
        assert!(client.append(&Entry::Changes(vec![put(b"a"), put(b"b"), remove])));
    }
    assert!(client.try_write());
    client.renew();
    let number = |client: &mut Client, key: &[u8]| {
        client.value(key).map_or(0, |value| u64::from_le_bytes(value.try_into().unwrap()))
    };
    let mut seen = 0;
    while seen < BATCHES {
        for [first, second] in [[b"a", b"b"], [b"b", b"a"]] {
            let (one, other) = (number(&mut client, first), number(&mut client, second));
            assert!(seen <= one && one <= other, "{seen} {one} {other}");
            seen = other;
        }
    }
}

/// So many changes that they take a while.
#[test]
fn large_batch_happens_at_one_instant() {
    const BATCHES: u64 = 8;
    let directory = directory();
    let node = start(options(directory.path()));
    let mut client = Client::with_all(node.address(), "one");
    client.wait_for_segments(2);
    let between: Vec<[u8; 4]> = (0..15_000_u32).map(u32::to_le_bytes).collect();
    for number in 1..=BATCHES {
        let value = number.to_le_bytes();
        let keys =
            [&b"first"[..]].into_iter().chain(between.iter().map(|key| &key[..])).chain([&b"last"[..]]);
        let changes = keys.map(|key| Change::Put { key, value: &value, expires_at: None }).collect();
        assert!(client.append(&Entry::Changes(changes)));
    }
    assert!(client.try_write());
    client.renew();
    let mut number =
        |key: &[u8]| client.value(key).map_or(0, |value| u64::from_le_bytes(value.try_into().unwrap()));
    let mut seen = 0;
    while seen < BATCHES {
        let (first, last) = (number(b"first"), number(b"last"));
        assert!(seen <= first && first <= last, "{seen} {first} {last}");
        seen = last;
    }
}

#[test]
fn writer_goes_over_segments_without_waiting() {
    let directory = directory();
    let node = start(options(directory.path()));
    let mut client = Client::with_all(node.address(), "one");
    client.wait_for_segments(2);
    let value = vec![7; 400_000];
    for number in 0..50_u32 {
        assert!(client.try_put(&(number % 20).to_le_bytes(), &value), "{number}");
        client.settle();
    }
    // 20 MB in segments of 5 MB.
    assert!(client.keys.len() >= 5, "{}", client.keys.len());
    assert_eq!(client.count(), 20);
    let stats = node.stats();
    assert_eq!((stats.merged_entries, stats.refused_changes), (50, 0));
    assert!(stats.segments_granted <= 3 && stats.merged_bytes >= 50 * 400_000, "{stats:?}");
}

#[test]
fn slots_go_from_one_node_to_another() {
    let directory = directory();
    let node = start(options(directory.path()));
    let mut one = Client::with_all(node.address(), "one");
    let mut other = Client::hello(node.address(), "other");
    one.put(b"key", b"one");
    assert!(one.try_write());
    // Not merged yet when it is released, since the memory node does not know of it.
    one.release(&all());
    one.wait(|message| matches!(message, ToServing::Released { .. }));
    other.acquire(&all());
    assert_eq!(other.value(b"key").unwrap(), b"one");
    assert!(one.get(b"key").is_err());
    other.put(b"key", b"other");
    other.settle();
    assert_eq!(other.value(b"key").unwrap(), b"other");
}

/// A node that waits for slots of another one gets them, and the other one hears of it.
#[test]
fn node_that_waits_for_slots_gets_them() {
    let directory = directory();
    let node = start(options(directory.path()));
    let mut one = Client::with_all(node.address(), "one");
    let mut other = Client::hello(node.address(), "other");
    other.sender.send(&ToMemory::Acquire { epoch: 2, ranges: all() }).unwrap();
    one.wait(|message| matches!(message, ToServing::Wanted { epoch: 2, .. }));
    one.release(&all());
    let granted = |message: &ToServing| *message == ToServing::Granted { epoch: 2, ranges: all() };
    other.wait(granted);
}

/// A range from the wire may name what is no slot: nothing behind the table of owners changes.
#[test]
fn range_beyond_the_slots_is_not_granted() {
    let directory = directory();
    let node = start(options(directory.path()));
    let mut client = Client::hello(node.address(), "one");
    let wild = vec![SlotRange { first: 0, last: u16::MAX }, SlotRange { first: 9, last: 3 }];
    client.sender.send(&ToMemory::Acquire { epoch: 1, ranges: wild.clone() }).unwrap();
    client.wait(|message| *message == ToServing::Granted { epoch: 1, ranges: all() });
    client.put(b"key", b"value");
    client.settle();
    client.release(&wild);
    client.wait(|message| *message == ToServing::Released { ranges: all() });
    drop(client);
    node.stop().unwrap();
    let node = start(options(directory.path()));
    let mut client = Client::with_all(node.address(), "one");
    assert_eq!(client.value(b"key").unwrap(), b"value");
}

/// A change of a slot that another node owns is not made, and neither stops the log.
#[test]
fn change_of_a_foreign_slot_is_not_made() {
    let directory = directory();
    let node = start(options(directory.path()));
    let slot = terrace_protocol::slot(b"theirs");
    let mine: Vec<SlotRange> = SlotRange::of((0..SLOTS).filter(|other| *other != slot));
    let mut one = Client::hello(node.address(), "one");
    one.acquire(&mine);
    let mut other = Client::hello(node.address(), "other");
    other.acquire(&[SlotRange::new(slot, slot).unwrap()]);
    one.put(b"theirs", b"value");
    one.put(b"mine", b"value");
    one.settle();
    assert_eq!(other.value(b"theirs"), None);
    assert_eq!(one.value(b"mine").unwrap(), b"value");
    assert_eq!(node.stats().refused_changes, 1);
}

#[test]
fn clear_removes_the_slots_that_it_names() {
    let directory = directory();
    let node = start(options(directory.path()));
    let mut client = Client::with_all(node.address(), "one");
    client.wait_for_segments(1);
    let keys: Vec<Vec<u8>> = (0..2000).map(|number| format!("key {number}").into_bytes()).collect();
    keys.iter().for_each(|key| client.put(key, b"value"));
    let (low, middle) = (SlotRange::new(0, 5000).unwrap(), SlotRange::new(7000, 9000).unwrap());
    assert!(client.append(&Entry::Clear(vec![low, middle])));
    client.settle();
    let is_cleared = |key: &[u8]| {
        [low, middle].iter().any(|range| range.slots().any(|slot| slot == terrace_protocol::slot(key)))
    };
    for key in &keys {
        assert_eq!(client.value(key).is_none(), is_cleared(key));
    }
    let left = keys.iter().filter(|key| !is_cleared(key)).count() as u64;
    assert_eq!(client.count(), left);
    assert!(left > 500 && left < 1500);
}

#[test]
fn other_version_is_refused_by_name() {
    let directory = directory();
    let node = start(options(directory.path()));
    let (sender, messages) = link(node.address());
    sender
        .send(&ToMemory::Hello { wire: WIRE + 1, node: "one".into(), shards: 1, lanes: 2, last: 0 })
        .unwrap();
    let told = messages.recv_timeout(FAR).unwrap();
    let Some(ToServing::Fenced { why }) = told else { panic!("{told:?}") };
    assert!(why.contains(&format!("version {}", WIRE + 1)) && why.contains("one"), "{why}");
    assert_eq!(messages.recv_timeout(FAR).unwrap(), None);
}

#[test]
fn hello_that_makes_no_sense_is_refused() {
    let directory = directory();
    let node = start(options(directory.path()));
    for (name, shards, lanes) in
        [("", 1, 2), (&"x".repeat(73), 1, 2), ("one", 0, 2), ("one", 1, 0), ("one", 65, 65)]
    {
        let (sender, messages) = link(node.address());
        sender.send(&ToMemory::Hello { wire: WIRE, node: name.into(), shards, lanes, last: 0 }).unwrap();
        assert!(matches!(messages.recv_timeout(FAR).unwrap(), Some(ToServing::Fenced { .. })), "{name}");
        assert_eq!(messages.recv_timeout(FAR).unwrap(), None);
    }
    assert_eq!(node.stats().sessions, 0);
    Client::with_all(node.address(), &"x".repeat(72));
}

#[test]
fn sessions_that_serve_are_told() {
    let directory = directory();
    let (tell, told) = mpsc::channel();
    let on_sessions = Box::new(move |sessions: &[(u64, String)]| tell.send(sessions.to_vec()).unwrap());
    let node = MemoryNode::start(super::client::fabric(), options(directory.path()), on_sessions).unwrap();
    let one = Client::hello(node.address(), "one");
    assert_eq!(told.recv_timeout(FAR).unwrap(), [(one.session, "one".to_string())]);
    let other = Client::hello(node.address(), "other");
    let both = [(one.session, "one".to_string()), (other.session, "other".to_string())];
    assert_eq!(told.recv_timeout(FAR).unwrap(), both);
    one.sender.send(&ToMemory::Leave).unwrap();
    assert_eq!(told.recv_timeout(FAR).unwrap(), [(other.session, "other".to_string())]);
}
