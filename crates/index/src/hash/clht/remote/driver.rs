//! What a reader keeps from one search to the next, and a search that does its reads itself.

use super::{Address, Reads, Search, Step, Tables};

/// Reads ranges of the pool in one round: returns their bytes, one range after the other. Each byte
/// is as it was at some moment of the call.
pub type Fetch<'f, E> = dyn FnMut(Reads) -> Result<Vec<u8>, E> + 'f;

/// The answer to a search.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer<T> {
    /// The key has this.
    Found(T),
    /// The key is absent.
    Absent,
    /// A remote reader cannot decide: ask a process that has the pool.
    Ask,
}

/// A remote reader of one table: remembers the tables that the root names, and counts round trips.
pub struct Remote {
    pub(super) address: Address,
    pub(super) tables: Option<Tables>,
    pub(super) life: u64,
    rounds: u64,
}

impl Remote {
    /// A reader of the table at `address`.
    pub fn new(address: Address) -> Self {
        Self { address, tables: None, life: 0, rounds: 0 }
    }

    /// The address of its table.
    pub fn address(&self) -> &Address {
        &self.address
    }

    /// Round trips so far.
    pub fn rounds(&self) -> u64 {
        self.rounds
    }

    /// Counts round trips.
    pub fn count(&mut self, rounds: u64) {
        self.rounds += rounds;
    }

    /// Forgets the root. To be called whenever another pin protects the reader, before the old one
    /// ends, and after the pool was opened anew. Searches that have begun go on with the old pin.
    pub fn renew(&mut self) {
        self.tables = None;
        self.life += 1;
    }

    /// Keeps what a search has learned of the root, unless the reader was renewed since.
    pub fn learn(&mut self, search: &Search) {
        if search.life == self.life {
            self.tables = search.tables;
        }
    }

    /// Looks for the key with this hash. `check` is given the offset of a record and its first
    /// `len` bytes, at least 8. It returns the answer, or `None` if the record is another key's.
    pub fn find<T, E>(
        &mut self,
        hash: u64,
        len: usize,
        fetch: &mut Fetch<'_, E>,
        mut check: impl FnMut(u64, &[u8]) -> Option<Answer<T>>,
    ) -> Result<Answer<T>, E> {
        let (mut search, first) = Search::new(self, hash);
        let mut step = Step::Need(first);
        let answer = loop {
            step = match step {
                Step::Need(reads) => search.next(&self.fetch(fetch, reads)?),
                Step::Record { offset, slot } => {
                    let Some(record) = self.address.block(offset, len) else { break Answer::Ask };
                    let bytes = self.fetch(fetch, Reads::new(record, Some(slot)))?;
                    let Some((record, slot)) = bytes.split_at_checked(record.len) else { break Answer::Ask };
                    match search.confirm(slot) {
                        Some(step) => step,
                        None => match check(offset, record) {
                            Some(answer) => break answer,
                            None => search.other_key(),
                        },
                    }
                }
                Step::Absent => break Answer::Absent,
                Step::Ask => break Answer::Ask,
            };
        };
        self.learn(&search);
        Ok(answer)
    }

    fn fetch<E>(&mut self, fetch: &mut Fetch<'_, E>, reads: Reads) -> Result<Vec<u8>, E> {
        self.rounds += 1;
        fetch(reads)
    }
}
