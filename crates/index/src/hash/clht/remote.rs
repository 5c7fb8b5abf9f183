//! Lookups by a reader elsewhere, which reads bytes of the pool and runs no code beside it.
//!
//! Such a reader is given bytes of the pool by other means, one range after the other: by one-sided
//! reads over a network, for example. [`Lookup`] says which range it needs next. It does no I/O.
//!
//! ```text
//!   no resize known       bucket -------------------------> records of slots with the key's tag
//!                           `- has moved: the root is stale
//!   resize known          leader..bucket, in one read ----> the same
//!                           `- leader has moved: bucket of `next` -> the same
//!                                                  `- has moved: the root is stale
//! ```
//!
//! # Why 8 bytes that are read atomically suffice
//! A read may return each word as it was at a moment of its own, if that moment lies within the
//! read. Nothing here depends on more:
//! * A slot is one word with a check, and the record proves the key. A key stays in its slot while
//!   it is present, so no mix of moments hides it. A key that was removed and added again was
//!   absent in between.
//! * The link is one word. A bucket that is linked later holds only keys that were absent before.
//! * A group's old buckets never change after it has moved. So slots that are read after the group
//!   has moved are as they were at that moment, which lies within the lookup if a `moved` bit was
//!   still clear after the lookup began.
//! * The root names two tables in two words. [`Tables::confirm`] says why two reads, one after the
//!   other, prove that both belong together.
//!
//! # What a remote reader may believe
//! * **The leader's `moved` bit, if the root names two tables.** After a crash another bucket of
//!   the group may be marked though the group has not moved, and the buckets of `next` are garbage.
//!   Or it is not marked though the group has moved, and its slots are old. Only the leader's mark
//!   is made durable.
//! * **The bucket's own `moved` bit, if the root names one table.** Every resize of that table then
//!   began after the root was read, in the same life of the pool. Such a resize marks the leader
//!   last.
//! * **The root, for as long as a pin lasts that is older than both reads of it.** The pin, which
//!   the pool's process takes for the reader, keeps tables, chains and records that were reachable
//!   then. The reader must read the root anew with each new pin, and after the pool was opened
//!   anew.
//! * **Nothing about durability.** A reader in the pool persists what it read before it answers. A
//!   remote reader cannot. So what it reads must be durable elsewhere before it reaches the index:
//!   in a log that is applied again after a crash.

mod driver;
#[cfg(test)]
mod test_images;

pub use driver::{Answer, Fetch, Remote};

use super::bucket::{LINK, Link};
use super::ops::Clht;
use super::shape::BucketShape;
use super::table::*;
use super::tags;
use terrace_medium::MappedMedium;

/// Bytes of a line.
const LINE: usize = 64;
/// Most overflow buckets that a lookup reads. Each costs a round trip, and a chain is longer only
/// while the pool is too full to grow the table.
const CHAIN_MAX: u32 = 16;

/// Where a table of byte-string keys lies in its pool: what a reader elsewhere has to be told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Address {
    /// Offset of the root block.
    pub root: u64,
    /// Seed of the keys' hashes.
    pub seed: u64,
    /// Where the pool's blocks begin.
    pub start: u64,
    /// Where the pool ends. A pool that has grown since has a new address.
    pub end: u64,
}

/// A range of bytes of the pool to read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Read {
    /// Where it begins.
    pub offset: u64,
    /// How long it is.
    pub len: usize,
}

impl Address {
    /// The line of the root that names the tables.
    pub fn root_line(&self) -> Read {
        Read { offset: self.root, len: LINE }
    }

    /// The first `len` bytes of a block at `offset`, or fewer at the end of the pool; `None` if the
    /// pool has no block there.
    pub fn block(&self, offset: u64, len: usize) -> Option<Read> {
        let room = self.end.checked_sub(offset).filter(|&room| room != 0 && offset >= self.start)?;
        Some(Read { offset, len: len.min(usize::try_from(room).unwrap_or(usize::MAX)) })
    }

    fn line(&self, offset: u64) -> Option<Read> {
        self.block(offset, LINE).filter(|read| read.len == LINE && offset.is_multiple_of(LINE as u64))
    }
}

impl<M: MappedMedium, K: BucketShape> Clht<M, K> {
    /// What a reader elsewhere has to be told to look up keys.
    pub fn address(&self) -> Address {
        let (root, seed, start) = (self.root.offset().raw(), self.seed, self.pool.layout().zones);
        Address { root, seed, start, end: self.pool.size() }
    }
}

/// The tables that the root named at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tables(View);

impl Tables {
    /// The tables that two reads of [`Address::root_line`] name; the second read began after the
    /// first had ended. `None` if they differ: a resize has begun or ended meanwhile, so the reader
    /// reads both again. Also `None` if the root names no table of this seed in the pool.
    ///
    /// A single read may return the words of two moments: the old table although the resize has
    /// ended, or a `next` that is not filled from `current`. Two equal ones cannot. `current` did
    /// not change between the moments at which it was read, because a table that it has named since
    /// the pin began is not reused. If `next` was null at any moment of the first read, every
    /// resize of `current` began after that. If it named a table, that table was filled from
    /// `current`: otherwise it would have become the current one in between, and not `next` again.
    pub fn confirm(address: &Address, reads: [&[u8]; 2]) -> Option<Self> {
        let [first, second] = [words(reads[0].try_into().ok()?), words(reads[1].try_into().ok()?)];
        let named = [first[ROOT_CURRENT], first[ROOT_NEXT]];
        let is_whole = second[ROOT_KIND] == tags::TAG
            && second[ROOT_SEED] == address.seed
            && second[ROOT_CHECK] == root_check(address.seed, second[ROOT_STRIPES]);
        if !is_whole || named != [second[ROOT_CURRENT], second[ROOT_NEXT]] {
            return None;
        }
        let table = |word| {
            let table = Table::from_word(word);
            let is_inside = table.start() >= address.start && table.is_sound(address.end as usize);
            is_inside.then_some(table)
        };
        let current = table(named[0])?;
        let next = if named[1] == 0 { None } else { Some(table(named[1])?) };
        // The end of a resize stores `current` first, then clears `next`.
        Some(Self(View { current, next: next.filter(|&next| next != current) }))
    }
}

/// What a lookup needs, or its result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// These bytes: pass them to [`Lookup::read`].
    Need(Read),
    /// The record at this offset may be the key's. If it is another key's, call
    /// [`Lookup::other_key`].
    Candidate(u64),
    /// The key was absent at some moment of the lookup.
    Absent,
    /// The tables that it began with are not the current ones any more: begin again with new ones.
    RootStale,
    /// A damaged bucket, or a very long chain: a process that has the pool must decide.
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
pub struct Lookup {
    address: Address,
    hash: u64,
    next: Option<Table>,
    table: Table,
    at: At,
    /// What it needs.
    wanted: Read,
    /// The bucket that was read last, and the slot to look at next.
    bucket: [u64; 8],
    slot: usize,
    chained: u32,
    /// Whether a slot was damaged, which may be the key's.
    is_suspect: bool,
}

impl Lookup {
    /// A lookup of the key with this hash, and what it needs first.
    pub fn new(address: &Address, tables: Tables, hash: u64) -> (Self, Read) {
        let View { current: table, next } = tables.0;
        let bucket = table.bucket(table.index(hash)).raw();
        // Leader and bucket are neighbours of one group.
        let offset = if next.is_some() { table.leader(table.index(hash)).raw() } else { bucket };
        let wanted = Read { offset, len: (bucket - offset) as usize + LINE };
        let (at, bucket) = (At::Current, [0; 8]);
        let lookup = Self {
            address: *address,
            hash,
            next,
            table,
            at,
            wanted,
            bucket,
            slot: 0,
            chained: 0,
            is_suspect: false,
        };
        (lookup, wanted)
    }

    /// Goes on with the bytes that it needed.
    pub fn read(&mut self, bytes: &[u8]) -> Step {
        let (Some(first), Some(last)) = (bytes.first_chunk(), bytes.last_chunk()) else { return Step::Ask };
        if bytes.len() != self.wanted.len {
            return Step::Ask;
        }
        // With two tables the first line is the leader; else both are the bucket.
        let has_moved = Link(words(first)[LINK]).has_moved();
        match (self.at, self.next) {
            (At::Current, Some(next)) if has_moved => {
                (self.at, self.table) = (At::Next, next);
                self.need(next.bucket(next.index(self.hash)).raw())
            }
            (At::Current | At::Next, _) if has_moved => Step::RootStale,
            _ => {
                (self.bucket, self.slot) = (words(last), 0);
                self.other_key()
            }
        }
    }

    /// Goes on after a candidate that is another key's record.
    pub fn other_key(&mut self) -> Step {
        let tag = tags::tag(self.hash, self.table);
        while self.slot < tags::SLOTS {
            let slot = tags::in_image(&self.bucket, self.slot, tag);
            self.slot += 1;
            match slot {
                tags::Seen::Other => {}
                tags::Seen::Tagged(offset) if self.address.block(offset, 8).is_some() => {
                    return Step::Candidate(offset);
                }
                tags::Seen::Tagged(_) | tags::Seen::Damaged => self.is_suspect = true,
            }
        }
        match Link(self.bucket[LINK]).next() {
            next if next.is_null() && self.is_suspect => Step::Ask,
            next if next.is_null() => Step::Absent,
            _ if self.chained == CHAIN_MAX => Step::Ask,
            next => {
                (self.at, self.chained) = (At::Chain, self.chained + 1);
                self.need(next.raw())
            }
        }
    }

    fn need(&mut self, bucket: u64) -> Step {
        match self.address.line(bucket) {
            None => Step::Ask,
            Some(read) => {
                self.wanted = read;
                Step::Need(read)
            }
        }
    }
}

/// The words of a line.
fn words(line: &[u8; LINE]) -> [u64; 8] {
    let (words, _) = line.as_chunks();
    std::array::from_fn(|index| u64::from_le_bytes(words[index]))
}
