//! The log of buffered changes, in the pool (4.4.4). A change is durable by one line of it, long
//! before its node is.
//!
//! ```text
//!   line 0    | check | number of places | base | 0 ... |
//!   a place   | 63:48 check, 47:0 number | node, operation | a | b |      two places a line
//! ```
//! Changes are numbered. Number `n` lies at place `n` modulo the number of places, so the log has
//! no ends to keep: a place is written again when the node of its change has the change. A node
//! knows the last number that it has (see `Node::numbers`), and an entry counts if its number is
//! higher than that of its node, and than the base. Entries of nodes that are gone count for
//! nothing: a node that comes to the same place begins with a higher number.

use super::node::WIDTH;
use super::word::Entry;
use crate::Damage;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use terrace_medium::{LINE, Line, MappedMedium, Offset, Region};
use terrace_pool::{Guard, Pool};

/// Bytes of an entry.
pub(super) const ENTRY_BYTES: u64 = 32;
/// Words of an entry.
const WORDS: usize = 4;
/// Places of a line.
const A_LINE: u64 = 2;
/// Bits of a number.
const NUMBER_BITS: u32 = 48;
pub(super) const NUMBER_MAX: u64 = (1 << NUMBER_BITS) - 1;
/// The part of the pool that its log takes, and its bounds in bytes.
const POOL_PART: u64 = 64;
const BYTES_MIN: u64 = 512;
const BYTES_MAX: u64 = 64 << 20;
/// The words of the first line.
const CHECK: usize = 0;
const PLACES: usize = 1;
const BASE: usize = 2;
/// Changes that threads log at a time, at most; and no more than this part of the places.
const AT_ONCE: u64 = 256;
const AT_ONCE_PART: u64 = 4;
/// Lines that are zeroed at a time.
const ZEROED: usize = 1024;

/// A change of a key in a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Change {
    /// An integer gets a word.
    Put { key: u64, word: u64 },
    /// An integer is removed.
    Remove { key: u64 },
    /// A slot of a byte string is replaced by another one; 0: there was none, or is none from now
    /// on.
    Slot { old: u64, new: u64 },
}

impl Change {
    fn words(self) -> [u64; 3] {
        match self {
            Self::Put { key, word } => [1, key, word],
            Self::Remove { key } => [2, key, 0],
            Self::Slot { old, new } => [3, old, new],
        }
    }

    fn of([operation, a, b]: [u64; 3]) -> Option<Self> {
        match operation {
            1 => Some(Self::Put { key: a, word: b }),
            2 => Some(Self::Remove { key: a }),
            3 => Some(Self::Slot { old: a, new: b }),
            _ => None,
        }
    }
}

/// An entry of the log.
#[derive(Clone, Copy, Debug)]
pub(super) struct Logged {
    pub(super) number: u64,
    /// The offset of the node.
    pub(super) node: u64,
    pub(super) change: Change,
}

fn check_of(words: [u64; WORDS]) -> u64 {
    let bytes = words.map(u64::to_le_bytes);
    xxhash_rust::xxh3::xxh3_64(bytes.as_flattened()) >> NUMBER_BITS << NUMBER_BITS
}

/// A number with its check.
fn numbered(number: u64) -> u64 {
    check_of([number, 0, 0, 0]) | number
}

/// The log of a tree, and the number of its next change.
pub(super) struct Log {
    at: u64,
    places: u64,
    next: AtomicU64,
}

impl Log {
    /// Bytes of the block of a log in this pool, for nodes with so many slots.
    fn bytes_in<M: MappedMedium>(pool: &Pool<M>, width: usize) -> u64 {
        let bytes = pool.size() / POOL_PART * width as u64 / WIDTH as u64;
        bytes.clamp(BYTES_MIN, BYTES_MAX) / LINE as u64 * LINE as u64
    }

    /// Makes an empty log, for nodes with so many slots. Returns the link to its block, which is
    /// durable; `None` without memory.
    pub(super) fn create<M: MappedMedium>(guard: &Guard<'_, M>, width: usize) -> Option<Entry> {
        let bytes = Self::bytes_in(guard.pool(), width);
        let lines = bytes as usize / LINE;
        let fresh = guard.alloc(bytes as usize).ok()?;
        for from in (0..lines).step_by(ZEROED) {
            fresh.stream_lines(from, &vec![[0; LINE / 8]; ZEROED.min(lines - from)]);
        }
        let places = (lines as u64 - 1) * A_LINE;
        fresh.stream_lines(0, &[[check_of([places, 0, 0, 0]), places, numbered(0), 0, 0, 0, 0, 0]]);
        // PERSIST: the log before the link to it. A crash in between leaves a block that the
        // collector reclaims.
        Some(Entry::link(fresh.persist().into_offset()))
    }

    /// The log behind a link.
    pub(super) fn open<M: MappedMedium>(pool: &Pool<M>, link: Entry) -> Result<Self, Damage> {
        let damaged = Damage { offset: link.offset(), what: "the log of buffered changes" };
        let head: &Line = match link.is_sound() && link.offset() >= pool.layout().zones {
            true => pool.region().get(Offset::new(link.offset())).ok_or(damaged)?,
            false => return Err(damaged),
        };
        let [check, places, base] =
            [CHECK, PLACES, BASE].map(|word| head.0[word].load(pool.medium(), Acquire));
        let next = AtomicU64::new((base & NUMBER_MAX) + 1);
        let log = Self { at: link.offset(), places, next };
        let is_sound = check == check_of([places, 0, 0, 0])
            && numbered(base & NUMBER_MAX) == base
            && places > 0
            && pool.region().get(Offset::<Line>::new(link.offset() + log.bytes() - LINE as u64)).is_some();
        if is_sound { Ok(log) } else { Err(damaged) }
    }

    /// The place and the size of its block.
    pub(super) fn block(&self) -> (u64, usize) {
        (self.at, self.bytes() as usize)
    }

    fn bytes(&self) -> u64 {
        LINE as u64 + self.places.saturating_mul(ENTRY_BYTES)
    }

    pub(super) fn places(&self) -> u64 {
        self.places
    }

    /// The line of a number, and the first word of its entry there.
    fn place<'g, M: MappedMedium>(&self, region: &'g Region<M>, number: u64) -> (&'g Line, usize) {
        let place = number % self.places;
        let line = self.at + LINE as u64 + place / A_LINE * LINE as u64;
        (region.at(Offset::new(line)), (place % A_LINE) as usize * WORDS)
    }

    /// The number of the next change.
    pub(super) fn next(&self) -> u64 {
        // ORDER: Relaxed: a number orders nothing. The lock of a node orders its changes.
        self.next.load(Relaxed)
    }

    /// Takes the next number, if it is below `end`.
    pub(super) fn take_number(&self, end: u64) -> Option<u64> {
        let end = end.min(NUMBER_MAX);
        self.next.fetch_update(Relaxed, Relaxed, |next| (next < end).then_some(next + 1)).ok()
    }

    /// Logs a change, durably.
    pub(super) fn append<M: MappedMedium>(&self, region: &Region<M>, logged: Logged) {
        let Logged { number, node, change } = logged;
        let [operation, a, b] = change.words();
        let rest = [node | operation, a, b];
        let (line, first) = self.place(region, number);
        let medium = region.medium();
        for (word, value) in (1..).zip(rest) {
            line.0[first + word].store(medium.point("sptree.log"), value, Relaxed);
        }
        let check = check_of([number, rest[0], rest[1], rest[2]]);
        // ORDER: Release, and last: a crash that keeps it keeps the rest, which lies in its line.
        line.0[first].store(medium.point("sptree.logged"), check | number, Release);
        // PERSIST: the change, before it is told of and before a reader sees it. A crash without it
        // leaves the key as it was.
        region.persist(line);
    }

    /// All entries above the base that fit their checks, in no order, and the damage of those that
    /// do not. Later changes get higher numbers.
    pub(super) fn read<M: MappedMedium>(&self, region: &Region<M>) -> (Vec<Logged>, Option<Damage>) {
        let base = self.next() - 1;
        let (mut entries, mut unsound) = (Vec::new(), Vec::new());
        for place in 0..self.places {
            match self.read_place(region, place) {
                Some(logged) if logged.number > base => entries.push(logged),
                Some(_) => {}
                None => unsound.push(place),
            }
        }
        let last = entries.iter().map(|logged| logged.number).max().unwrap_or(base);
        let damage = self.damaged(region, &unsound, (base, last));
        // A thread may have taken a number that a node knows by now, without having logged it; each
        // of them had its own place.
        self.next.store((last + self.places + 1).min(NUMBER_MAX), Relaxed);
        (entries, damage)
    }

    /// The damage of one of these places whose entry does not fit its check, unless a crash has cut
    /// it off: then it still has the number of the entry before it.
    fn damaged<M: MappedMedium>(
        &self,
        region: &Region<M>,
        unsound: &[u64],
        (base, last): (u64, u64),
    ) -> Option<Damage> {
        let at_once = AT_ONCE.min(self.places / AT_ONCE_PART);
        let is_damaged = |&&place: &&u64| {
            let (line, first) = self.place(region, place);
            let word = line.0[first].load(region.medium(), Relaxed);
            let number = word & NUMBER_MAX;
            if number == 0 || number % self.places != place {
                return word != 0;
            }
            // A later change may have been cut off in this place; one of the last, or one that
            // was followed by others.
            number > base && number + self.places > last + at_once
        };
        let place = unsound.iter().find(is_damaged)?;
        let offset = region.offset_of(self.place(region, *place).0).raw();
        Some(Damage { offset, what: "an entry of the log of changes does not fit its check" })
    }

    /// No entry that was logged so far counts any more: the nodes have all of them, durably.
    pub(super) fn set_base<M: MappedMedium>(&self, region: &Region<M>) {
        let head: &Line = region.at(Offset::new(self.at));
        head.0[BASE].store(region.medium().point("sptree.base"), numbered(self.next() - 1), Release);
        // PERSIST: the base. A crash without it leaves entries that their nodes have.
        region.persist(head);
    }

    fn read_place<M: MappedMedium>(&self, region: &Region<M>, place: u64) -> Option<Logged> {
        let (line, first) = self.place(region, place);
        let words: [u64; WORDS] =
            std::array::from_fn(|word| line.0[first + word].load(region.medium(), Acquire));
        let number = words[0] & NUMBER_MAX;
        let is_sound = words[0] != 0 && check_of([number, words[1], words[2], words[3]]) | number == words[0];
        let change = Change::of([words[1] % LINE as u64, words[2], words[3]]);
        change.filter(|_| is_sound && number % self.places == place).map(|change| Logged {
            number,
            node: words[1] / LINE as u64 * LINE as u64,
            change,
        })
    }
}

#[cfg(test)]
#[path = "tests/log.rs"]
mod tests;
