//! Tests: a shard's log, from its writer to the memory node's cursor.

use std::collections::BTreeMap;
use terrace_cluster::entry::{Change, ENTRY_MAX, Entry};
use terrace_cluster::log::{Cursor, Grant, NoSegment, RESERVE, ShardLog, Taken};

const BYTES: u64 = 5 << 20;

/// The memory node's segments.
#[derive(Default)]
struct Memory(BTreeMap<u64, Vec<u8>>);

impl Memory {
    fn grant(&mut self, log: &mut ShardLog, number: u64) {
        self.0.insert(number, vec![0; BYTES as usize]);
        log.grant(Grant { number, bytes: BYTES });
    }

    /// Lets a write arrive.
    fn write(&mut self, log: &mut ShardLog) -> bool {
        let Some(pieces) = log.take_write() else { return false };
        for piece in pieces {
            let segment = self.0.get_mut(&piece.segment).expect("granted");
            segment[piece.offset as usize..][..piece.bytes.len()].copy_from_slice(&piece.bytes);
        }
        log.arrived();
        true
    }

    /// Reads what a cursor finds: keys of entries, and segments that end.
    fn read(&self, cursor: &mut Cursor) -> (Vec<Vec<u8>>, Vec<u64>) {
        let (mut keys, mut ended) = (Vec::new(), Vec::new());
        while let Some((segment, offset)) = cursor.place() {
            match cursor.take(&self.0[&segment][offset..]) {
                Some(Taken::Entry(Entry::Changes(changes), _)) => {
                    keys.extend(changes.iter().map(|change| change.key().to_vec()));
                }
                Some(Taken::End(segment)) => ended.push(segment),
                Some(other) => panic!("{other:?}"),
                None => break,
            }
        }
        (keys, ended)
    }
}

fn put<'a>(key: &'a [u8], value: &'a [u8]) -> Entry<'a> {
    Entry::Changes(vec![Change::Put { key, value, expires_at: None }])
}

#[test]
fn entries_arrive_in_order_over_segments() {
    let (mut memory, mut log) = (Memory::default(), ShardLog::new(10));
    assert_eq!(log.append(&put(b"a", b""), false), Err(NoSegment));
    (1..=3).for_each(|number| memory.grant(&mut log, number));
    let mut cursor = Cursor::new(11, 1..=3);
    let (value, mut keys) = (vec![7; 60_000], Vec::new());
    while let Ok(lsn) = log.append(&put(&(keys.len() as u32).to_le_bytes(), &value), false) {
        assert_eq!(lsn, log.last());
        keys.push((keys.len() as u32).to_le_bytes().to_vec());
        if keys.len() % 7 == 0 {
            assert!(memory.write(&mut log));
            assert_eq!(log.durable(), log.last());
        }
    }
    memory.write(&mut log);
    let (found, ended) = memory.read(&mut cursor);
    assert_eq!((found, ended), (keys, vec![1, 2]));
    assert_eq!((cursor.last(), cursor.segments()), (log.durable(), 1));
}

/// One write at a time: what is appended meanwhile goes with the next.
#[test]
fn writes_go_one_after_the_other() {
    let (mut memory, mut log) = (Memory::default(), ShardLog::new(0));
    memory.grant(&mut log, 1);
    let append = |log: &mut ShardLog, key: &[u8]| log.append(&put(key, b"v"), false).unwrap();
    assert_eq!(log.take_write(), None);
    append(&mut log, b"a");
    let first = log.take_write().unwrap();
    append(&mut log, b"b");
    append(&mut log, b"c");
    assert_eq!((log.take_write(), log.durable()), (None, 0));
    log.arrived();
    assert_eq!(log.durable(), 1);
    let second = log.take_write().unwrap();
    assert_eq!((first.len(), second.len()), (1, 1));
    assert_eq!(second[0].offset, first[0].bytes.len() as u64);
    log.arrived();
    assert_eq!((log.durable(), log.take_write()), (3, None));
}

#[test]
fn removals_have_room_where_puts_wait() {
    let (mut memory, mut log) = (Memory::default(), ShardLog::new(0));
    memory.grant(&mut log, 1);
    let value = vec![1; 10_000];
    while log.append(&put(b"key", &value), false).is_ok() {}
    let removal = Entry::Changes(vec![Change::Remove { key: b"key" }]);
    let removals = (0..).take_while(|_| log.append(&removal, true).is_ok()).count() as u64;
    assert!(removals * removal.size() as u64 >= RESERVE - 2 * removal.size() as u64, "{removals}");
    // A further segment: puts go on there.
    memory.grant(&mut log, 2);
    let lsn = log.append(&put(b"key", &value), false).unwrap();
    memory.write(&mut log);
    let mut cursor = Cursor::new(1, 1..=2);
    assert_eq!(memory.read(&mut cursor).1, [1]);
    assert_eq!(cursor.last(), lsn);
}

#[test]
fn longest_entry_fits_into_a_fresh_segment() {
    let (mut memory, mut log) = (Memory::default(), ShardLog::new(0));
    memory.grant(&mut log, 1);
    let value = vec![9; ENTRY_MAX - 24 - 16 - 8];
    assert_eq!(put(b"k", &value).size(), ENTRY_MAX);
    assert!(log.append(&put(b"k", &value), false).is_ok());
}

/// A write that arrives in part ends the log before the first entry that is not whole.
#[test]
fn torn_write_ends_the_log_at_a_whole_entry() {
    for missing in 1..200 {
        let (mut memory, mut log) = (Memory::default(), ShardLog::new(0));
        memory.grant(&mut log, 1);
        for key in [b"one", b"two", b"ten"] {
            log.append(&put(key, b"value"), false).unwrap();
        }
        let [piece] = log.take_write().unwrap().try_into().unwrap();
        let size = piece.bytes.len() / 3;
        let kept = piece.bytes.len().saturating_sub(missing);
        memory.0.get_mut(&1).unwrap()[..kept].copy_from_slice(&piece.bytes[..kept]);
        let mut cursor = Cursor::new(1, [1]);
        // Zeros at the end of an entry may be those that were there.
        let padding = 8;
        let whole = [kept / size, (kept + padding) / size];
        let found = memory.read(&mut cursor).0.len();
        assert!(whole.contains(&found), "{missing}: {found} of {whole:?}");
    }
}
