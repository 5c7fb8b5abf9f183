//! Lookups by a reader elsewhere, which reads bytes of the pool and runs no code beside it.
//!
//! Such a reader is given bytes of the pool by other means: by one-sided reads over a network, for
//! example. [`Search`] says which ranges it needs next. It does no I/O, so a caller may run many
//! searches in lockstep, and read what all of them need in one round. [`Remote`] keeps what one
//! search has learned for the next.
//!
//! ```text
//!   no resize known       bucket -------------------------> records of slots with the key's tag
//!                           `- has moved: the root is stale
//!   resize known          leader..bucket, in one read ----> the same
//!                           `- leader has moved: bucket of `next` -> the same
//!                                                  `- has moved: the root is stale
//! ```
//!
//! # What is assumed of a read
//! Each byte is as it was at a moment of its own, if that moment lies within the read. So even a
//! word may be *torn*: bytes of it from before a store, others from after it. Over TCP that
//! happens, though rarely (docs/fabric.md, experiment 5). One thing is taken for granted: **if two
//! reads of a word agree, neither has torn it.**
//!
//! # Why no torn word misleads a lookup
//! A word that leads somewhere is read again in the round that reads the place to which it leads,
//! so that costs no time. If the second read differs, the search begins again. Once it has begun
//! too often, it asks. The words:
//! * **A slot that leads to a record** is read twice. Its check does not suffice: a torn slot may
//!   pass it by chance, and lead to another key's record, or to an old one of the same key.
//! * **A link that is followed** is read twice. It has no check.
//! * **A link that is null** need not be. A link changes once, from null to the next bucket. (Its
//!   `moved` bit lies in a byte of its own.) If all of it reads as null, it was null at some moment
//!   of the read. A bucket that is linked later holds only keys that were absent before.
//! * **A slot of another key** need not be read twice, either. A key stays in its slot while it is
//!   present. All that the slot contains meanwhile has the key's tag, and so has every mixture.
//!   Only if that tag is 0, a mixture may look like an empty slot. Then a process that has the pool
//!   is asked.
//! * **A `moved` bit** is a single bit, which cannot be torn.
//! * **The words of the root that name tables** are read twice, one read after the other; see
//!   [`Tables::confirm`].
//!
//! # Why words of different moments suffice
//! * A slot is one word, and the record proves the key. A key stays in its slot while it is
//!   present, so no mix of moments hides it. A key that was removed and added again was absent in
//!   between.
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
mod lookup;
mod search;
#[cfg(test)]
#[path = "tests/images.rs"]
mod test_images;
#[cfg(test)]
#[path = "tests/torn.rs"]
mod test_torn;

pub use driver::{Answer, Fetch, Remote};
pub use search::{Search, Step};

use super::ops::Clht;
use super::shape::BucketShape;
use super::table::*;
use super::tags;
use terrace_medium::MappedMedium;

/// Bytes of a line.
const LINE: usize = 64;

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

/// Ranges to read in one round: together, and in any order. It has one or two of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reads {
    first: Read,
    second: Option<Read>,
}

impl Reads {
    /// One range, or two.
    pub fn new(first: Read, second: Option<Read>) -> Self {
        Self { first, second }
    }

    /// The ranges, in the order in which their bytes are passed on.
    pub fn iter(&self) -> impl Iterator<Item = Read> {
        [Some(self.first), self.second].into_iter().flatten()
    }

    /// Bytes of all of them.
    pub fn bytes(&self) -> usize {
        self.iter().map(|read| read.len).sum()
    }
}

impl From<Read> for Reads {
    fn from(read: Read) -> Self {
        Self::new(read, None)
    }
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
    /// Two equal reads have torn neither word (see the module's head). A single one may also return
    /// the words of two moments: the old table although the resize has ended, or a `next` that is
    /// not filled from `current`. Two equal ones cannot. `current` did
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

/// The words of a line.
fn words(line: &[u8; LINE]) -> [u64; 8] {
    let (words, _) = line.as_chunks();
    std::array::from_fn(|index| u64::from_le_bytes(words[index]))
}

/// The one word that these bytes are.
fn word(bytes: &[u8]) -> Option<u64> {
    bytes.try_into().ok().map(u64::from_le_bytes)
}
