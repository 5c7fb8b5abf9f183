//! Runs lookups to their ends, one read at a time.

use super::{Address, Lookup, Read, Step, Tables};

/// Times that a search reads the root before it gives up.
const ROOTS_MAX: u32 = 4;

/// Reads a range of the pool: returns its bytes, each word as it was at some moment of the call.
pub type Fetch<'f, E> = dyn FnMut(Read) -> Result<Vec<u8>, E> + 'f;

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
    address: Address,
    tables: Option<Tables>,
    rounds: u64,
}

impl Remote {
    /// A reader of the table at `address`.
    pub fn new(address: Address) -> Self {
        Self { address, tables: None, rounds: 0 }
    }

    /// The address of its table.
    pub fn address(&self) -> &Address {
        &self.address
    }

    /// Reads done so far, each of which costs a round trip.
    pub fn rounds(&self) -> u64 {
        self.rounds
    }

    /// Forgets the root. To be called whenever another pin protects the reader, before the old one
    /// ends, and after the pool was opened anew.
    pub fn renew(&mut self) {
        self.tables = None;
    }

    /// Looks for the key with this hash. `check` reads the record at an offset and returns the
    /// answer, or `None` if it is another key's.
    pub fn find<T, E>(
        &mut self,
        hash: u64,
        fetch: &mut Fetch<'_, E>,
        mut check: impl FnMut(&mut Fetch<'_, E>, u64) -> Result<Option<Answer<T>>, E>,
    ) -> Result<Answer<T>, E> {
        let Self { address, tables, rounds } = self;
        let mut fetch = |read| {
            *rounds += 1;
            fetch(read)
        };
        for _ in 0..ROOTS_MAX {
            if tables.is_none() {
                let reads = [fetch(address.root_line())?, fetch(address.root_line())?];
                *tables = Tables::confirm(address, [&reads[0], &reads[1]]);
            }
            let Some(known) = *tables else { continue };
            match search(address, known, hash, &mut fetch, &mut check)? {
                Some(answer) => return Ok(answer),
                None => *tables = None,
            }
        }
        Ok(Answer::Ask)
    }
}

/// Looks for a key in these tables; `None` if they are not the current ones any more.
fn search<T, E>(
    address: &Address,
    tables: Tables,
    hash: u64,
    fetch: &mut Fetch<'_, E>,
    check: &mut impl FnMut(&mut Fetch<'_, E>, u64) -> Result<Option<Answer<T>>, E>,
) -> Result<Option<Answer<T>>, E> {
    let (mut lookup, first) = Lookup::new(address, tables, hash);
    let mut step = Step::Need(first);
    loop {
        step = match step {
            Step::Need(read) => lookup.read(&fetch(read)?),
            Step::Candidate(offset) => match check(fetch, offset)? {
                None => lookup.other_key(),
                answer => return Ok(answer),
            },
            Step::Absent => return Ok(Some(Answer::Absent)),
            Step::RootStale => return Ok(None),
            Step::Ask => return Ok(Some(Answer::Ask)),
        };
    }
}
