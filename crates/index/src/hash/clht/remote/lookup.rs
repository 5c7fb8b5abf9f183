//! One walk over the chain that may hold a key, in tables that are known.

use super::super::bucket::{LINK, Link};
use super::super::table::{Table, View};
use super::super::tags;
use super::{Address, LINE, Read, Reads, Tables, word, words};

/// Most overflow buckets that a lookup reads. Each costs a round trip, and a chain is longer only
/// while the pool is too full to grow the table.
const CHAIN_MAX: u32 = 16;

/// What a lookup needs, or its result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Next {
    /// These bytes: pass them to [`Lookup::read`].
    Need(Reads),
    /// The record at `offset` may be the key's. Read `slot` again in the same round as the record,
    /// and pass it to [`Lookup::is_whole`]. If the record is another key's, call
    /// [`Lookup::other_key`].
    Candidate { offset: u64, slot: Read },
    /// The key was absent at some moment of the lookup.
    Absent,
    /// The tables that it began with are not the current ones any more.
    RootStale,
    /// A word was torn, has changed meanwhile, or is damaged. Another lookup may tell.
    Again,
    /// No other lookup would tell more.
    Ask,
}

/// The table that a lookup has come to, or a chain in it.
#[derive(Clone, Copy, PartialEq, Eq)]
enum At {
    Current,
    Next,
    Chain,
}

/// A lookup of one key. See the module's head.
pub(super) struct Lookup {
    address: Address,
    hash: u64,
    next: Option<Table>,
    table: Table,
    at: At,
    /// What it needs.
    wanted: Reads,
    /// Where the bucket lies that was read last, its words, and the slot to look at next.
    place: u64,
    bucket: [u64; 8],
    slot: usize,
    chained: u32,
    /// Whether a slot may be the key's, but tells nothing.
    is_suspect: bool,
}

impl Lookup {
    /// A lookup of the key with this hash, and what it needs first.
    pub(super) fn new(address: &Address, tables: Tables, hash: u64) -> (Self, Reads) {
        let View { current: table, next } = tables.0;
        let bucket = table.bucket(table.index(hash)).raw();
        // Leader and bucket are neighbours of one group.
        let offset = if next.is_some() { table.leader(table.index(hash)).raw() } else { bucket };
        let wanted = Read { offset, len: (bucket - offset) as usize + LINE }.into();
        let lookup = Self {
            address: *address,
            hash,
            next,
            table,
            at: At::Current,
            wanted,
            place: bucket,
            bucket: [0; 8],
            slot: 0,
            chained: 0,
            is_suspect: false,
        };
        (lookup, wanted)
    }

    /// Goes on with the bytes that it needed.
    pub(super) fn read(&mut self, bytes: &[u8]) -> Next {
        if bytes.len() != self.wanted.bytes() {
            return Next::Ask;
        }
        match self.at {
            At::Chain => self.read_chained(bytes),
            At::Current | At::Next => self.read_head(bytes),
        }
    }

    /// Goes on with the first bucket of a chain. With two tables, their current one's first line is
    /// the leader; else the first line is the bucket, too.
    fn read_head(&mut self, bytes: &[u8]) -> Next {
        let (Some(first), Some(last)) = (bytes.first_chunk::<LINE>(), bytes.last_chunk::<LINE>()) else {
            return Next::Ask;
        };
        let has_moved = Link(words(first)[LINK]).has_moved();
        match (self.at, self.next) {
            (At::Current, Some(next)) if has_moved => {
                (self.at, self.table) = (At::Next, next);
                self.need(next.bucket(next.index(self.hash)).raw(), None)
            }
            _ if has_moved => Next::RootStale,
            _ => self.search(words(last)),
        }
    }

    /// Goes on with a bucket and the link that leads to it.
    fn read_chained(&mut self, bytes: &[u8]) -> Next {
        let Some((bucket, link)) = bytes.split_first_chunk() else { return Next::Ask };
        match word(link) {
            Some(link) if Link(link).next().raw() == self.place => self.search(words(bucket)),
            _ => Next::Again,
        }
    }

    fn search(&mut self, bucket: [u64; 8]) -> Next {
        (self.bucket, self.slot) = (bucket, 0);
        self.other_key()
    }

    /// Goes on after a candidate that is another key's record.
    pub(super) fn other_key(&mut self) -> Next {
        let tag = tags::tag(self.hash, self.table);
        while self.slot < tags::SLOTS {
            let slot = self.slot;
            self.slot += 1;
            match tags::in_image(&self.bucket, slot, tag) {
                tags::Seen::Other => {}
                tags::Seen::Tagged(offset) if self.address.block(offset, 8).is_some() => {
                    return Next::Candidate { offset, slot: self.word_at(1 + slot) };
                }
                tags::Seen::Tagged(_) | tags::Seen::Damaged => self.is_suspect = true,
            }
        }
        match Link(self.bucket[LINK]).next() {
            next if next.is_null() && self.is_suspect => Next::Again,
            // The tag of an empty slot, too: see the module's head.
            next if next.is_null() && tag == 0 => Next::Ask,
            next if next.is_null() => Next::Absent,
            _ if self.chained == CHAIN_MAX => Next::Ask,
            next => {
                (self.at, self.chained) = (At::Chain, self.chained + 1);
                self.need(next.raw(), Some(self.word_at(LINK)))
            }
        }
    }

    /// Whether the slot that has led to the candidate reads as it did before.
    pub(super) fn is_whole(&self, bytes: &[u8]) -> bool {
        word(bytes) == Some(self.bucket[self.slot])
    }

    /// Where a word of the bucket lies.
    fn word_at(&self, index: usize) -> Read {
        Read { offset: self.place + 8 * index as u64, len: 8 }
    }

    /// Reads a bucket, and the word that leads to it.
    fn need(&mut self, bucket: u64, leading: Option<Read>) -> Next {
        match self.address.line(bucket) {
            None => Next::Again,
            Some(read) => {
                (self.place, self.wanted) = (bucket, Reads::new(read, leading));
                Next::Need(self.wanted)
            }
        }
    }
}
