//! The bytes of a file of the simulated file system: the visible ones, and what is durable of them.

use std::collections::{BTreeMap, BTreeSet};

/// Size of the smallest unit that a disk writes atomically.
pub(super) const SECTOR: usize = 512;
/// Size of the unit that a kernel writes.
pub(super) const PAGE: usize = 4096;

/// Size of the smallest part of a sector that a directed crash tears off.
const WORD: usize = 8;

/// What a directed crash leaves of a change that is not durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fate {
    Kept,
    Lost,
    /// Of a content: all of it but its first changed word, or its last one.
    WithoutFirst,
    WithoutLast,
}

/// A number below the argument, chosen at random or by enumeration.
pub(super) type Draw<'a> = &'a mut dyn FnMut(u64) -> u64;

/// A file's visible content, and what a crash may put in its place.
#[derive(Clone, Debug, Default)]
pub(super) struct Content {
    pub(super) now: Vec<u8>,
    kept_length: usize,
    /// Sectors whose visible and durable content may differ: the durable one, zero-padded. All
    /// other sectors are durable as they are.
    kept: BTreeMap<usize, [u8; SECTOR]>,
    /// Those of them that a crash always loses and that no sync keeps, until they are written
    /// again: a sync failed.
    lost: BTreeSet<usize>,
}

impl Content {
    pub(super) fn write(&mut self, bytes: &[u8], at: usize) {
        if bytes.is_empty() {
            return;
        }
        let end = at + bytes.len();
        if end > self.now.len() {
            self.set_length(end);
        }
        self.touch(at, end);
        self.now[at..end].copy_from_slice(bytes);
    }

    pub(super) fn set_length(&mut self, bytes: usize) {
        self.touch(bytes.min(self.now.len()), bytes.max(self.now.len()));
        self.now.resize(bytes, 0);
    }

    /// Remembers the durable content of a range that is about to change.
    fn touch(&mut self, from: usize, to: usize) {
        for nth in from / SECTOR..to.div_ceil(SECTOR) {
            self.lost.remove(&nth);
            self.kept.entry(nth).or_insert_with(|| sector(&self.now, nth));
        }
    }

    /// Makes everything durable that no failed sync has lost.
    pub(super) fn sync(&mut self) {
        self.kept_length = self.now.len();
        let lost = &self.lost;
        self.kept.retain(|nth, _| lost.contains(nth));
    }

    /// A failed sync: what it should have kept counts as clean, but is not durable.
    pub(super) fn lose(&mut self) {
        self.lost = self.kept.keys().copied().collect();
    }

    /// Whether a crash may change anything.
    pub(super) fn is_synced(&self) -> bool {
        self.kept.is_empty() && self.kept_length == self.now.len()
    }

    /// Leaves what a power failure might leave. Each unsynced unit, one of `units` in size, is kept
    /// or lost. The length is the old one, the new one, or a unit boundary in between.
    pub(super) fn crash(&mut self, units: &[usize], draw: Draw) {
        let unit = units[draw(units.len() as u64) as usize];
        let length = self.length_after(unit, draw);
        let mut left = self.durable();
        left.resize(length, 0);
        let dirty = self.kept.keys().filter(|nth| !self.lost.contains(nth));
        let mut of_units: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
        dirty.for_each(|nth| of_units.entry(nth * SECTOR / unit).or_default().push(*nth));
        let end = length.min(self.now.len());
        for sectors in of_units.values() {
            let ranges = sectors.iter().map(|nth| (nth * SECTOR).min(end)..((nth + 1) * SECTOR).min(end));
            let changed: Vec<_> =
                ranges.filter(|range| left[range.clone()] != self.now[range.clone()]).collect();
            if !changed.is_empty() && draw(2) == 1 {
                changed.into_iter().for_each(|range| left[range.clone()].copy_from_slice(&self.now[range]));
            }
        }
        *self = Self { kept_length: length, now: left, ..Self::default() };
    }

    fn length_after(&self, unit: usize, draw: Draw) -> usize {
        let (old, new) = (self.kept_length, self.now.len());
        let (least, most) = (old.min(new), old.max(new));
        if least == most {
            return most;
        }
        let (first, end) = (least / unit + 1, most.div_ceil(unit));
        match draw(if first < end { 3 } else { 2 }) {
            0 => old,
            1 => new,
            _ => (first + draw((end - first) as u64) as usize) * unit,
        }
    }

    /// How many states a crash may leave, at most, with units of this size.
    pub(super) fn states_max(&self, unit: usize) -> f64 {
        let (least, most) = (self.kept_length.min(self.now.len()), self.kept_length.max(self.now.len()));
        let units: BTreeSet<usize> = self.kept.keys().map(|nth| nth * SECTOR / unit).collect();
        let lengths = if least == most { 1 } else { 1 + most.div_ceil(unit) - least / unit };
        2f64.powi(units.len() as i32) * lengths as f64
    }

    /// Leaves what this fate says, but never what a failed sync has lost.
    pub(super) fn meet(&mut self, fate: Fate) {
        let durable = self.durable();
        let was = |at: usize| durable.get(at).copied().unwrap_or(0);
        let mut left = if fate == Fate::Lost { durable.clone() } else { self.now.clone() };
        let mut changed = (0..left.len()).filter(|&at| left[at] != was(at));
        let torn = match fate {
            Fate::Kept | Fate::Lost => None,
            Fate::WithoutFirst => changed.next(),
            Fate::WithoutLast => changed.next_back(),
        };
        let torn = torn.map(|at| at / WORD * WORD..at / WORD * WORD + WORD);
        let lost = self.lost.iter().map(|nth| nth * SECTOR..(nth + 1) * SECTOR);
        for at in torn.into_iter().chain(lost).flatten() {
            if let Some(byte) = left.get_mut(at) {
                *byte = was(at);
            }
        }
        *self = Self { kept_length: left.len(), now: left, ..Self::default() };
    }

    /// The durable content.
    fn durable(&self) -> Vec<u8> {
        let mut bytes = self.now.clone();
        bytes.resize(self.kept_length, 0);
        for (nth, sector) in &self.kept {
            let from = (nth * SECTOR).min(bytes.len());
            let to = (from + SECTOR).min(bytes.len());
            bytes[from..to].copy_from_slice(&sector[..to - from]);
        }
        bytes
    }

    /// Flips a bit of the visible and the durable content.
    pub(super) fn flip_bit(&mut self, bit: u64) {
        let (byte, mask) = ((bit / 8) as usize, 1 << (bit % 8));
        if let Some(flipped) = self.now.get_mut(byte) {
            *flipped ^= mask;
        }
        if let Some(sector) = self.kept.get_mut(&(byte / SECTOR)) {
            sector[byte % SECTOR] ^= mask;
        }
    }
}

/// A sector of `bytes`, zero-padded.
fn sector(bytes: &[u8], nth: usize) -> [u8; SECTOR] {
    let mut sector = [0; SECTOR];
    let from = (nth * SECTOR).min(bytes.len());
    let part = &bytes[from..(from + SECTOR).min(bytes.len())];
    sector[..part.len()].copy_from_slice(part);
    sector
}
