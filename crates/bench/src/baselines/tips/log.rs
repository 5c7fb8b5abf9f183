//! The operation log, a ring; the undo log and the memory log of a replay.

use super::super::{Space, SpaceFull};
use std::sync::Arc;
use std::sync::atomic::Ordering::Release;
use terrace_medium::{LINE, Medium};

const ENTRY: u64 = 32;
const UNDO: u64 = 16;
const FREE: u64 = 8;
/// Words of the line that commits a replay: entries in the undo log, and where the log begins.
const UNDONE: u64 = 0;
const HEAD: u64 = 8;
/// The line of the log's tail.
const TAIL: u64 = LINE as u64;

pub(super) struct Logs<N> {
    space: Arc<Space<N>>,
    /// The lines of the head and of the tail.
    control: u64,
    entries: u64,
    undo: u64,
    memory: u64,
    capacity: u64,
    /// Entries that were ever begun, and ever replayed.
    tail: u64,
    head: u64,
}

impl<N: Medium> Logs<N> {
    pub(super) fn create(space: Arc<Space<N>>, capacity: u64) -> Result<Self, SpaceFull> {
        let control = space.alloc(2 * LINE as u64)?;
        let entries = space.alloc(ENTRY * capacity)?;
        let undo = space.alloc(UNDO * capacity)?;
        // Each entry replaces one value at most.
        let memory = space.alloc(FREE * capacity)?;
        Ok(Self { space, control, entries, undo, memory, capacity, tail: 0, head: 0 })
    }

    pub(super) fn len(&self) -> u64 {
        self.tail - self.head
    }

    pub(super) fn is_full(&self) -> bool {
        self.len() == self.capacity
    }

    fn store(&self, at: u64, words: &[u64]) {
        for (nth, word) in words.iter().enumerate() {
            self.space.word(at + 8 * nth as u64).store(self.space.medium(), *word, Release);
        }
    }

    /// Appends an entry; also persists what was written back before.
    pub(super) fn append(&mut self, key: u64, place: u64) {
        let (region, at) = (self.space.region(), self.entries + ENTRY * (self.tail % self.capacity));
        self.store(at, &[key, place, self.tail]);
        // PERSIST: value and entry before the tail that counts them; a crash in between leaves an
        // entry behind the tail.
        region.write_back_bytes(at, ENTRY as usize);
        region.fence();
        self.tail += 1;
        self.store(self.control + TAIL, &[self.tail]);
        // PERSIST: the entry counts before the caller returns.
        region.persist(self.space.word(self.control + TAIL));
    }

    /// The entries, in order.
    pub(super) fn entries(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        (self.head..self.tail).map(|nth| {
            let at = self.entries + ENTRY * (nth % self.capacity);
            (self.space.load(at), self.space.load(at + 8))
        })
    }

    /// Notes what the index has before a replay.
    pub(super) fn note_undo(&self, before: &[(u64, u64)]) {
        let region = self.space.region();
        for (nth, (key, place)) in before.iter().enumerate() {
            self.store(self.undo + UNDO * nth as u64, &[*key, *place]);
        }
        // PERSIST: the entries before their number; a crash in between leaves an empty undo log.
        region.write_back_bytes(self.undo, UNDO as usize * before.len());
        region.fence();
        self.store(self.control + UNDONE, &[before.len() as u64]);
        // PERSIST: the undo log before the first change of the index.
        region.persist(self.space.word(self.control + UNDONE));
    }

    /// Notes places that are free once the replay is committed.
    pub(super) fn note_free(&self, places: &[u64]) {
        let region = self.space.region();
        self.store(self.memory, places);
        // PERSIST: before the commit; a crash in between leaves places that the undo log takes
        // back.
        region.write_back_bytes(self.memory, FREE as usize * places.len());
        region.fence();
    }

    /// Ends a replay of all entries.
    pub(super) fn commit(&mut self) {
        self.head = self.tail;
        // PERSIST: both words lie in one line. A crash in between leaves no undo log, and entries
        // that are replayed again, which changes nothing.
        self.store(self.control + UNDONE, &[0, self.head]);
        self.space.region().persist(self.space.word(self.control + HEAD));
    }
}
