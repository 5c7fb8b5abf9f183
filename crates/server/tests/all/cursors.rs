//! SCAN in a store that keeps keys in order, whose cursors are keys.

use std::sync::Arc;

use terrace_server::{config::Config, shared::Shared};

use crate::common::{Client, START_MS};

/// A client of a server whose store keeps keys in order, and holds `keys` keys.
fn ordered_client(keys: u32) -> Client {
    let options = crate::common::fresh().index(terrace::Index::ORDERED);
    let store = options.create().expect("memory for a store");
    (0..keys).for_each(|n| store.put(format!("key:{n:05}"), "value").unwrap());
    let clock = Arc::new(terrace::ManualClock::at(START_MS));
    Client::of(Arc::new(Shared::new(store, Config::default())), clock)
}

/// The next cursor and the keys in a reply of SCAN.
fn scanned(reply: &str) -> (u64, Vec<String>) {
    let words: Vec<&str> = reply.split(' ').collect();
    assert_eq!(words[0], "*2", "{reply}");
    let keys = words[4..].iter().skip(1).step_by(2).map(|key| key.to_string()).collect();
    (words[2].parse().unwrap(), keys)
}

#[test]
fn scan_of_an_ordered_store_has_small_cursors() {
    let mut client = ordered_client(1000);
    let (mut cursor, mut keys, mut cursors) = (0, Vec::new(), Vec::new());
    loop {
        let (next, found) = scanned(&client.ask(&format!("SCAN {cursor} COUNT 7")));
        keys.extend(found);
        if next == 0 {
            break;
        }
        assert!(next < terrace::CURSOR_LIMIT && !cursors.contains(&next));
        cursors.push(next);
        cursor = next;
    }
    assert!(keys.len() == 1000 && keys.is_sorted());
    // A client may come back, on any connection.
    let again = scanned(&client.another().ask(&format!("SCAN {} COUNT 7", cursors[70])));
    assert_eq!(again.1, keys[7 * 71..7 * 72]);
    client.expect(&[("MULTI", "+OK"), ("SET key:00000a v", "+QUEUED")]);
    client.expect(&[(&format!("SCAN {cursor} COUNT 9"), "+QUEUED")]);
    assert!(client.ask("EXEC").starts_with("*2 +OK *2 $1 0 *6 $9 key:00994"));
}

#[test]
fn scan_refuses_cursors_that_it_does_not_know() {
    let mut client = ordered_client(100);
    let (first, _) = scanned(&client.ask("SCAN 0 COUNT 7"));
    // One of another process; one that no scan returns; and one that others have displaced.
    let foreign = scanned(&ordered_client(100).ask("SCAN 0 COUNT 7")).0;
    for number in [foreign, 1, terrace::CURSOR_LIMIT] {
        let reply = client.ask(&format!("SCAN {number}"));
        assert!(reply.starts_with("-ERR unknown cursor") && reply.ends_with("again from 0"), "{reply}");
    }
    assert_eq!(scanned(&client.ask(&format!("SCAN {first} COUNT 7"))).1[0], "key:00007");
    (0..5000).for_each(|_| _ = client.ask("SCAN 0 COUNT 7"));
    assert!(client.ask(&format!("SCAN {first}")).starts_with("-ERR unknown cursor"));
}
