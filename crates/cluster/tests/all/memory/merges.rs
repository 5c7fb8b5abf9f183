//! Merges: what they tell, and what they have noted when the memory node is killed.

use super::client::{Client, directory, options, start};
use super::restart::node;
use terrace_cluster::entry::{Change, Entry};

/// Entries of a log that takes a while to be merged.
const ENTRIES: u32 = 60_000;

/// Keys of a batch that takes a while.
const BATCH: u32 = 40_000;

/// Writes keys with this number in one write, and tells that they have arrived.
fn write(client: &mut Client, number: u32) {
    for key in 0..ENTRIES {
        client.put(&key.to_le_bytes(), &number.to_le_bytes());
    }
    assert!(client.try_write());
    client.renew();
}

#[test]
fn entry_that_is_told_as_merged_is_in_the_index() {
    let directory = directory();
    let node = start(options(directory.path()));
    let mut client = Client::with_all(node.address(), "one");
    client.wait_for_segments(2);
    for number in 1..=2_u32 {
        let before = client.log.last();
        write(&mut client, number);
        loop {
            let merged = client.renew();
            if merged > before {
                let key = u32::try_from(merged - before - 1).unwrap();
                let key = key.min(ENTRIES - 1).to_le_bytes();
                assert_eq!(client.value(&key).unwrap(), number.to_le_bytes(), "entry {merged}");
            }
            if merged == client.log.durable() {
                break;
            }
        }
    }
}

/// What is noted as merged is not merged again, so it has to be in the pool.
#[test]
fn kill_amid_a_merge_loses_nothing() {
    let directory = directory();
    for round in 1..=6_u32 {
        let (victim, address) = node("node", directory.path());
        let mut client = Client::with_all(address, "one");
        client.wait_for_segments(2);
        if round > 1 {
            // A key in so many: each round trip takes its time.
            for key in (0..BATCH).rev().step_by(997) {
                let found = client.value(&key.to_le_bytes());
                assert_eq!(found.unwrap(), (round - 1).to_le_bytes(), "round {round}, key {key}");
            }
        }
        let (keys, value) = ((0..BATCH).map(u32::to_le_bytes).collect::<Vec<_>>(), round.to_le_bytes());
        let put = |key| Change::Put { key, value: &value, expires_at: None };
        assert!(client.append(&Entry::Changes(keys.iter().map(|key| put(&key[..])).collect())));
        assert!(client.try_write());
        client.renew();
        std::thread::sleep(std::time::Duration::from_millis(u64::from(round) * 9));
        victim.kill();
    }
}
