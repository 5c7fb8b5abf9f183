//! Merging: the entries of a shard's log become the pool's, in order.
//!
//! That an entry is merged is durable before anybody is told. A crash in between merges it once
//! more: nothing else has written to its slots, since they are still its session's.

use super::area::Area;
use super::data::{Data, Progress};
use super::logs::{Logs, Reading};
use super::segments::{self, Segment};
use crate::entry::{ENTRY_MAX, HEADER};
use crate::log::Taken;
use std::sync::atomic::{
    AtomicU64,
    Ordering::{Acquire, Relaxed, Release},
};
use terrace_engine::WriteError;
use terrace_fabric::{Memory, load_bytes};

/// Bytes of entries that a step merges at least, if there are as many.
const STEP: usize = 1 << 20;

/// What was merged since the start.
#[derive(Default)]
pub(crate) struct Merged {
    pub(crate) entries: AtomicU64,
    pub(crate) bytes: AtomicU64,
}

/// How a step ends.
#[derive(Debug)]
pub(crate) enum Outcome {
    /// All that has arrived is merged.
    Idle,
    /// There is more.
    More,
    /// The entry that is next could not be applied now.
    Stalled(WriteError),
}

/// Merges a part of a shard's log. Also returns segments that were read to their ends.
pub(crate) fn step(
    data: &Data,
    area: &Area,
    logs: &Logs,
    nth: usize,
    merged: &Merged,
) -> (Outcome, Vec<Segment>) {
    let shard = &logs.shards[nth];
    // ORDER: Acquire, and before the segments are taken over: entries up to there have arrived, in
    // segments that were granted before.
    let (to_the_end, durable) = (logs.to_the_end.load(Acquire), shard.durable.load(Acquire));
    let mut reading = shard.read();
    let began = reading.cursor.last();
    let (bytes, buffer, freed) = Default::default();
    let log = (logs.session, nth);
    let mut work = Work { data, area, log, merged, reading: &mut reading, bytes, buffer, freed };
    let outcome = loop {
        match () {
            () if work.bytes >= STEP => break Outcome::More,
            () if !to_the_end && work.reading.cursor.last() >= durable => break Outcome::Idle,
            () => {}
        }
        match work.next() {
            Next::Merged => {}
            Next::Again => break Outcome::More,
            Next::Nothing => {
                end(logs, nth, to_the_end);
                break Outcome::Idle;
            }
            Next::Stalled(error) => break Outcome::Stalled(error),
        }
    };
    work.note(began);
    let freed = work.freed;
    let unread = shard.unread.fetch_sub(freed.len(), Relaxed);
    assert!(unread >= freed.len(), "a segment is read to its end once");
    // ORDER: Release: a node that is told finds the entries in the pool.
    shard.merged.store(reading.known(), Release);
    (outcome, freed)
}

/// What became of the next entry.
enum Next {
    Merged,
    /// A part of it is: it goes on after the other logs had their turn.
    Again,
    /// There is none.
    Nothing,
    Stalled(WriteError),
}

/// A step of a merge.
struct Work<'n> {
    data: &'n Data,
    area: &'n Area,
    /// The session, and the shard.
    log: (u64, usize),
    merged: &'n Merged,
    reading: &'n mut Reading,
    /// How much it has merged.
    bytes: usize,
    buffer: Vec<u8>,
    /// Segments that it has read to their ends.
    freed: Vec<Segment>,
}

impl Work<'_> {
    /// Merges the next entry.
    fn next(&mut self) -> Next {
        let Some((number, offset)) = self.reading.cursor.place() else { return Next::Nothing };
        load(self.area, self.reading.rows[&number], offset, &mut self.buffer);
        let before = self.reading.cursor.clone();
        match self.reading.cursor.take(&self.buffer) {
            None => return Next::Nothing,
            Some(Taken::End(number)) => {
                self.bytes += HEADER;
                self.go_on(number);
            }
            // Merged before the memory node has started.
            Some(Taken::Entry(_, size)) if before.last() < self.reading.merged_before => self.bytes += size,
            Some(Taken::Entry(entry, size)) => {
                match self.data.apply(&entry, self.log, self.area) {
                    Ok(Progress::Done) => {}
                    Ok(Progress::Goes) => {
                        self.reading.cursor = before;
                        return Next::Again;
                    }
                    Err(error) => {
                        self.reading.cursor = before;
                        return Next::Stalled(error);
                    }
                }
                self.bytes += size;
                self.merged.entries.fetch_add(1, Relaxed);
                self.merged.bytes.fetch_add(size as u64, Relaxed);
            }
        }
        Next::Merged
    }

    /// Goes on behind the segment with this number.
    fn go_on(&mut self, number: u64) {
        let Reading { cursor, rows, .. } = &*self.reading;
        let segment = |number: u64| Segment { number, row: rows[&number] };
        let (ended, next) = (segment(number), cursor.place().map(|(next, _)| segment(next)));
        assert!(next != Some(ended), "a log goes on in another segment");
        match next {
            Some(next) => {
                segments::begin(self.area, next, cursor.last() + 1, self.reading.known());
                self.reading.rows.remove(&number);
                self.freed.push(ended);
            }
            // It stays, with what is merged.
            None => segments::set_merged(self.area, ended, self.reading.known()),
        }
    }

    /// Notes what is merged, if it is more than `began`.
    fn note(&self, began: u64) {
        let Reading { cursor, rows, .. } = &*self.reading;
        let Some((number, _)) = cursor.place().filter(|_| cursor.last() > began) else { return };
        segments::set_merged(self.area, Segment { number, row: rows[&number] }, self.reading.known());
    }
}

/// No whole entry is there.
fn end(logs: &Logs, nth: usize, to_the_end: bool) {
    match to_the_end {
        true => logs.shards[nth].is_ended.store(true, Release),
        // Its writer has told that there is one.
        false => logs.is_broken.store(true, Relaxed),
    }
}

/// Copies the bytes that an entry at this offset has, if there is one. A writer may still store to
/// the memory behind it.
fn load(area: &Area, row: u64, offset: usize, buffer: &mut Vec<u8>) {
    let body = area.body(row);
    let at = (body.start + offset).min(body.end);
    let left = body.end - at;
    buffer.clear();
    if left < HEADER {
        return;
    }
    let head = area.words()[at / 8].load(Acquire);
    buffer.resize((head as u32 as usize).clamp(HEADER, ENTRY_MAX.min(left)), 0);
    load_bytes(area.words(), at, buffer);
}
