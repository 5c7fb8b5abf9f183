//! A get of one key: the search in the index, and then the record. The caller does the reads.

use super::{Reading, read};
use crate::Kind;
use crate::record::format::{HEADER, INLINE_MAX};
use terrace_engine::Bytes;
use terrace_engine::KEY_MAX;
use terrace_engine::{Entry, Value};
use terrace_index::KeyKind;
use terrace_index::hash::remote::{Address, Answer, Read, Reads, Remote, Search, Step};

/// A get of the entry of a key, expired or not.
///
/// Read what [`Get::reads`] says, in one round, and pass it to [`Get::next`], until that returns
/// the answer. Then call [`Get::end`]. Many gets may share their rounds.
pub struct Get<'k> {
    search: Search,
    address: Address,
    key: &'k [u8],
    guess: usize,
    reads: Reads,
    record: Option<Record>,
    rounds: u64,
}

/// A record that is read.
struct Record {
    offset: u64,
    /// What was read of it.
    bytes: Vec<u8>,
    /// Bytes of the read that goes on now. The slot that leads to the record follows the first one.
    part: usize,
}

impl<'k> Get<'k> {
    /// A get of `key`. It first reads `guess` bytes of a record: as many as most records have, so
    /// that one read is enough.
    pub fn new(remote: &Remote, key: &'k [u8], guess: usize) -> Self {
        let address = *remote.address();
        // Whole words, and no more than the longest record has.
        let guess = guess.clamp(HEADER, HEADER + KEY_MAX + INLINE_MAX).next_multiple_of(8);
        let (search, reads) = Search::new(remote, Kind::hash(key, address.seed));
        Self { search, address, key, guess, reads, record: None, rounds: 0 }
    }

    /// What it needs now.
    pub fn reads(&self) -> Reads {
        self.reads
    }

    /// Round trips so far.
    pub fn rounds(&self) -> u64 {
        self.rounds
    }

    /// Goes on with the bytes that it needed, one range after the other. Returns the answer, or
    /// `None` if it needs more.
    pub fn next(&mut self, bytes: &[u8]) -> Option<Answer<Value<'static>>> {
        self.rounds += 1;
        let Some(record) = &mut self.record else {
            let step = self.search.next(bytes);
            return self.go_on(step);
        };
        let Some((part, slot)) = bytes.split_at_checked(record.part) else { return Some(Answer::Ask) };
        if record.bytes.is_empty()
            && let Some(step) = self.search.confirm(slot)
        {
            return self.go_on(step);
        }
        record.bytes.extend(part);
        match read(self.key, &record.bytes) {
            Reading::More { len } => self.read_on(len, None),
            Reading::OtherKey => {
                let step = self.search.other_key();
                self.go_on(step)
            }
            Reading::Ask => Some(Answer::Ask),
            Reading::Entry(Entry { value, expires_at, token }) => {
                let bytes = Bytes::Owned(value.to_vec());
                Some(Answer::Found(Value { bytes, expires_at, token }))
            }
        }
    }

    /// Tells the reader what the get has learned, and counts its round trips there. A caller whose
    /// gets share their rounds calls [`Remote::learn`] with [`Get::search`], and counts itself.
    pub fn end(&self, remote: &mut Remote) {
        remote.learn(&self.search);
        remote.count(self.rounds);
    }

    /// The search in the index.
    pub fn search(&self) -> &Search {
        &self.search
    }

    /// Where the record that it has found lies, and how many bytes of it were read.
    pub fn place(&self) -> Option<(u64, usize)> {
        self.record.as_ref().map(|record| (record.offset, record.bytes.len()))
    }

    fn go_on(&mut self, step: Step) -> Option<Answer<Value<'static>>> {
        self.record = None;
        match step {
            Step::Need(reads) => {
                self.reads = reads;
                None
            }
            Step::Record { offset, slot } => {
                self.record = Some(Record { offset, bytes: Vec::new(), part: 0 });
                self.read_on(self.guess, Some(slot))
            }
            Step::Absent => Some(Answer::Absent),
            Step::Ask => Some(Answer::Ask),
        }
    }

    /// Reads what is missing of the first `len` bytes of the record.
    fn read_on(&mut self, len: usize, slot: Option<Read>) -> Option<Answer<Value<'static>>> {
        let Some(Record { offset, bytes, part }) = &mut self.record else { return Some(Answer::Ask) };
        let missing = len.checked_sub(bytes.len()).filter(|&missing| missing != 0);
        let read = missing.and_then(|missing| self.address.block(*offset + bytes.len() as u64, missing));
        let Some(read) = read else { return Some(Answer::Ask) };
        (*part, self.reads) = (read.len, Reads::new(read, slot));
        None
    }
}
