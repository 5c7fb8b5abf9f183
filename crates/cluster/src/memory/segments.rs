//! Segments of the log area, and the rows that say whose they are.

use super::area::Area;
use super::error::MemoryError;
use super::format::{COUNTERS, SEGMENT_ROW, SEGMENTS};
use crate::arbiter::Incarnation;
use std::collections::{BTreeMap, BTreeSet};
use terrace_medium::MapError;

/// Where the number of the next segment is.
const NEXT: u64 = COUNTERS + 8;

/// A segment that is granted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Segment {
    /// Its row.
    pub(crate) row: u64,
    /// Its number, which no other segment has had.
    pub(crate) number: u64,
}

/// A shard's log as it was found.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Found {
    /// Its segments in order.
    pub(crate) segments: Vec<Segment>,
    /// Its first entry that is still there.
    pub(crate) first: u64,
    /// The last entry that is merged.
    pub(crate) merged: u64,
}

fn at(row: u64) -> u64 {
    SEGMENTS + row * SEGMENT_ROW
}
fn session(row: u64) -> u64 {
    at(row) + 8
}
fn shard_and_order(row: u64) -> u64 {
    at(row) + 16
}
fn first(row: u64) -> u64 {
    at(row) + 24
}
fn merged(row: u64) -> u64 {
    at(row) + 32
}

/// Which segments are free. It has one writer.
pub(crate) struct Segments {
    free: BTreeSet<u64>,
}

/// The logs of each session: shards, and what was found of them.
pub(crate) type Logs = BTreeMap<Incarnation, BTreeMap<u16, Found>>;

impl Segments {
    /// Reads the rows. Frees segments of sessions that have ended.
    pub(crate) fn open(area: &Area, sessions: &[Incarnation]) -> Result<(Self, Logs), MemoryError> {
        let mut this = Self { free: BTreeSet::new() };
        let mut found: BTreeMap<(Incarnation, u16), BTreeMap<u64, u64>> = BTreeMap::new();
        for row in 0..area.segments {
            (at(row)..at(row + 1)).step_by(8).try_for_each(|at| area.checked(at).map(drop))?;
            if area.number(at(row)) == 0 {
                this.free.insert(row);
                continue;
            }
            let (owner, place) = (area.number(session(row)), area.number(shard_and_order(row)));
            if !sessions.contains(&owner) {
                this.free_row(area, row);
                continue;
            }
            let rows = found.entry((owner, (place >> 32) as u16)).or_default();
            if area.number(at(row)) >= area.number(NEXT) || rows.insert(place & 0xffff_ffff, row).is_some() {
                return Err(area.damaged(at(row), "it describes no segment"));
            }
        }
        let mut logs = Logs::new();
        for ((owner, shard), mut rows) in found {
            Self::take_read(area, &mut rows).into_iter().for_each(|row| this.free_row(area, row));
            logs.entry(owner).or_default().insert(shard, Self::log(area, &rows)?);
        }
        Ok((this, logs))
    }

    /// Takes the rows that are read to their ends: those before the last one that the log has gone
    /// on in. Several threads may have been about to free them, so some may be missing.
    fn take_read(area: &Area, rows: &mut BTreeMap<u64, u64>) -> Vec<u64> {
        let current = rows.iter().rev().find(|(_, row)| area.number(first(**row)) != 0);
        let current = current.map_or(0, |(order, _)| *order);
        let rest = rows.split_off(&current);
        std::mem::replace(rows, rest).into_values().collect()
    }

    /// The log with these rows, by their order.
    fn log(area: &Area, rows: &BTreeMap<u64, u64>) -> Result<Found, MemoryError> {
        let begin = *rows.values().next().expect("a log has a segment");
        let orders: Vec<u64> = rows.keys().copied().collect();
        if area.number(first(begin)) == 0 || orders.windows(2).any(|two| two[0] + 1 != two[1]) {
            return Err(area.damaged(at(begin), "the log of a session has a gap"));
        }
        let segment = |row: &u64| Segment { row: *row, number: area.number(at(*row)) };
        let last = rows.values().map(|row| area.number(merged(*row))).max().unwrap_or(0);
        Ok(Found {
            segments: rows.values().map(segment).collect(),
            first: area.number(first(begin)),
            merged: last,
        })
    }

    /// Segments that are free.
    pub(crate) fn free(&self) -> u64 {
        self.free.len() as u64
    }

    /// Takes a segment for a log, if there is one. `first_entry` is 0 if it is not known yet.
    ///
    /// # Errors
    /// If the file system has no room for it.
    pub(crate) fn take(
        &mut self,
        area: &Area,
        owner: Incarnation,
        (shard, order): (u16, u32),
        first_entry: u64,
    ) -> Result<Option<Segment>, MapError> {
        assert!(owner > 0, "a segment is granted to a session");
        let Some(row) = self.free.first().copied() else { return Ok(None) };
        debug_assert!(area.number(at(row)) == 0, "a free segment has no number");
        area.allocate(row)?;
        self.free.remove(&row);
        let number = area.number(NEXT);
        area.set(NEXT, number + 1);
        area.set(session(row), owner);
        area.set(shard_and_order(row), u64::from(shard) << 32 | u64::from(order));
        area.set(first(row), first_entry);
        area.set(merged(row), 0);
        // From here on it is the session's.
        area.set(at(row), number);
        Ok(Some(Segment { row, number }))
    }

    /// Frees a segment. Nothing of its session can arrive in it any more, or its log has gone on.
    pub(crate) fn release(&mut self, area: &Area, segment: Segment) {
        assert!(Self::is_granted(area, segment), "a segment is freed once");
        self.free_row(area, segment.row);
    }

    fn free_row(&mut self, area: &Area, row: u64) {
        area.set(at(row), 0);
        let is_new = self.free.insert(row);
        assert!(is_new, "a segment is freed once");
    }

    /// Whether a segment is one that is granted: its row may be another one's meanwhile.
    fn is_granted(area: &Area, segment: Segment) -> bool {
        area.number(at(segment.row)) == segment.number
    }
}

/// Notes the last entry that is merged, of the log that this segment is the current one of.
pub(crate) fn set_merged(area: &Area, segment: Segment, entry: u64) {
    debug_assert!(area.number(at(segment.row)) == segment.number, "the segment is still its log's");
    debug_assert!(area.number(merged(segment.row)) <= entry, "what is merged stays so");
    area.set(merged(segment.row), entry);
}

/// Notes that a log goes on in this segment with the entry `next`. All up to `entry` is merged.
pub(crate) fn begin(area: &Area, segment: Segment, next: u64, entry: u64) {
    debug_assert!(area.number(at(segment.row)) == segment.number, "the segment is still its log's");
    area.set(merged(segment.row), entry);
    area.set(first(segment.row), next);
}
