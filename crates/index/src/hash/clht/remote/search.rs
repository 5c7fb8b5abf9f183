//! A search for one key: lookups, until one tells. The caller does the reads.

use super::lookup::{Lookup, Next};
use super::{Address, LINE, Read, Reads, Remote, Tables};

/// Times that a search begins before it asks.
const TURNS_MAX: u32 = 4;

/// What a search needs, or its result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// These bytes: pass them to [`Search::next`].
    Need(Reads),
    /// The record at `offset` may be the key's. Read at least 8 bytes of it and, in the same round,
    /// `slot`. Pass the bytes of `slot` to [`Search::confirm`].
    Record {
        /// Where the record begins.
        offset: u64,
        /// The word that leads to it.
        slot: Read,
    },
    /// The key was absent at some moment of the search.
    Absent,
    /// A damaged bucket, a very long chain, or one that changes all the time: a process that has
    /// the pool must decide.
    Ask,
}

/// A search for one key. See the module's head.
///
/// ```text
///   new --> Need ----next----> Record --confirm--> the record counts: found, or other_key --> ...
///             ^-- Need ...       |         `-----> Need (the slot has changed: it begins again)
///                                `- Absent, Ask
/// ```
pub struct Search {
    address: Address,
    hash: u64,
    pub(super) tables: Option<Tables>,
    /// See [`Remote::renew`].
    pub(super) life: u64,
    state: State,
    turns: u32,
}

enum State {
    /// It reads the root, of which it may have the first read.
    Root(Option<[u8; LINE]>),
    Lookup(Lookup),
}

impl Search {
    /// A search for the key with this hash, and what it needs first.
    pub fn new(remote: &Remote, hash: u64) -> (Self, Reads) {
        let (address, tables, life) = (remote.address, remote.tables, remote.life);
        let (state, reads) = begin(&address, tables, hash);
        (Self { address, hash, tables, life, state, turns: 1 }, reads)
    }

    /// Goes on with the bytes that it needed, one range after the other.
    pub fn next(&mut self, bytes: &[u8]) -> Step {
        match &mut self.state {
            State::Lookup(lookup) => {
                let next = lookup.read(bytes);
                self.go_on(next)
            }
            State::Root(first) => {
                let Ok(line) = bytes.try_into() else { return Step::Ask };
                match first.replace(line) {
                    None => Step::Need(self.address.root_line().into()),
                    Some(first) => {
                        self.tables = Tables::confirm(&self.address, [&first, bytes]);
                        match self.tables {
                            None => self.again(),
                            Some(_) => self.begin(),
                        }
                    }
                }
            }
        }
    }

    /// Whether the slot that leads to the record reads as it did before. If so, returns `None`: the
    /// record counts. If not, it does not, and the search needs what is returned.
    pub fn confirm(&mut self, slot: &[u8]) -> Option<Step> {
        match &self.state {
            State::Lookup(lookup) if lookup.is_whole(slot) => None,
            _ => Some(self.again()),
        }
    }

    /// Goes on after a record that counts, but is another key's.
    pub fn other_key(&mut self) -> Step {
        match &mut self.state {
            State::Lookup(lookup) => {
                let next = lookup.other_key();
                self.go_on(next)
            }
            State::Root(_) => Step::Ask,
        }
    }

    fn go_on(&mut self, next: Next) -> Step {
        match next {
            Next::Need(reads) => Step::Need(reads),
            Next::Candidate { offset, slot } => Step::Record { offset, slot },
            Next::Absent => Step::Absent,
            Next::Ask => Step::Ask,
            Next::Again => self.again(),
            Next::RootStale => {
                self.tables = None;
                self.again()
            }
        }
    }

    fn again(&mut self) -> Step {
        if self.turns == TURNS_MAX {
            return Step::Ask;
        }
        self.turns += 1;
        self.begin()
    }

    fn begin(&mut self) -> Step {
        let (state, reads) = begin(&self.address, self.tables, self.hash);
        self.state = state;
        Step::Need(reads)
    }
}

/// How a search begins, and what it needs first.
fn begin(address: &Address, tables: Option<Tables>, hash: u64) -> (State, Reads) {
    match tables {
        None => (State::Root(None), address.root_line().into()),
        Some(tables) => {
            let (lookup, reads) = Lookup::new(address, tables, hash);
            (State::Lookup(lookup), reads)
        }
    }
}
