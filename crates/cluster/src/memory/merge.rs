//! Merging: the entries of a shard's log become the pool's, in order.
//!
//! That an entry is merged is durable before anybody is told. A crash in between merges it once
//! more: nothing else has written to its slots, since they are still its session's.

use super::area::Area;
use super::data::Data;
use super::logs::Logs;
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
    let reading = &mut *reading;
    let (mut buffer, mut bytes, mut freed, began) = (Vec::new(), 0, Vec::new(), reading.cursor.last());
    let outcome = loop {
        if bytes >= STEP {
            break Outcome::More;
        }
        if !to_the_end && reading.cursor.last() >= durable {
            break Outcome::Idle;
        }
        let Some((number, offset)) = reading.cursor.place() else {
            end(logs, nth, to_the_end);
            break Outcome::Idle;
        };
        load(area, reading.rows[&number], offset, &mut buffer);
        let before = reading.cursor.clone();
        match reading.cursor.take(&buffer) {
            None => {
                end(logs, nth, to_the_end);
                break Outcome::Idle;
            }
            Some(Taken::End(number)) => {
                let (last, ended) = (reading.cursor.last(), Segment { number, row: reading.rows[&number] });
                let known = last.max(reading.merged_before);
                match reading.cursor.place() {
                    Some((next, _)) => {
                        let next = Segment { number: next, row: reading.rows[&next] };
                        segments::begin(area, next, last + 1, known);
                        reading.rows.remove(&number);
                        freed.push(ended);
                    }
                    None => segments::set_merged(area, ended, known),
                }
                bytes += HEADER;
            }
            Some(Taken::Entry(entry, size)) => {
                bytes += size;
                if before.last() >= reading.merged_before {
                    if let Err(error) = data.apply(&entry, logs.session, area) {
                        reading.cursor = before;
                        break Outcome::Stalled(error);
                    }
                    merged.entries.fetch_add(1, Relaxed);
                    merged.bytes.fetch_add(size as u64, Relaxed);
                }
            }
        }
    };
    let known = reading.cursor.last().max(reading.merged_before);
    if reading.cursor.last() > began
        && let Some((number, _)) = reading.cursor.place()
    {
        segments::set_merged(area, Segment { number, row: reading.rows[&number] }, known);
    }
    shard.unread.fetch_sub(freed.len(), Relaxed);
    // ORDER: Release: who is told finds the entries in the pool.
    shard.merged.store(known, Release);
    (outcome, freed)
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
